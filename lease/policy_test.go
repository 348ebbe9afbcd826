package lease

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestZeroPolicyIsAGoodDefault(t *testing.T) {
	if err := (Policy{}).Validate(); err != nil {
		t.Fatal(err)
	}
	// given a burst that is large beside a Target's worth
	c := Policy{}.ConfigFor([]Limit{PerSecond(1000)}, 7, 0)
	if c.Target != 100*time.Millisecond || c.TTL != 400*time.Millisecond || c.Overcommit != 0 || c.StartEmpty {
		t.Errorf("%+v", c)
	}
	if c.Version != (Version{Deploy: 7}) {
		t.Errorf("the version is %+v", c.Version)
	}
	// a slow network makes T longer: two call timeouts
	if c := (Policy{}).ConfigFor([]Limit{PerSecond(1000)}, 0, time.Second); c.TTL != 2*time.Second {
		t.Errorf("T is %v", c.TTL)
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}

func TestTargetShrinksWithTheBurst(t *testing.T) {
	for _, c := range []struct {
		policy Policy
		limits []Limit
		want   time.Duration
	}{
		{Policy{}, []Limit{PerSecond(1000)}, 100 * time.Millisecond},
		{Policy{}, []Limit{PerSecond(1000).WithBurst(40)}, 10 * time.Millisecond},
		{Policy{Overcommit: 40}, []Limit{PerSecond(1000).WithBurst(40)}, 10 * time.Millisecond}, // by itself it makes none longer
		{Policy{Target: time.Second, Overcommit: 40}, []Limit{PerSecond(1000).WithBurst(40)}, 20 * time.Millisecond},
		{Policy{}, []Limit{PerSecond(1000), PerSecond(1000).WithBurst(40)}, 10 * time.Millisecond},
		{Policy{}, []Limit{PerSecond(1_000_000).WithBurst(1)}, time.Millisecond},
		{Policy{Target: 20 * time.Millisecond}, []Limit{PerHour(1)}, 20 * time.Millisecond},
	} {
		if got := c.policy.TargetFor(c.limits); got != c.want {
			t.Errorf("%+v for %v: %v, want %v", c.policy, c.limits, got, c.want)
		}
	}
}

func TestPolicyNamesEveryViolationAtOnce(t *testing.T) {
	err := Policy{Target: -1, TTL: -1, MinBatch: -1, MaxBatch: -1, Overcommit: -1, Weight: -1, ColdStart: 9, Fallback: -1}.Validate()
	for _, part := range []string{"Target is -1ns, must be 0 to 30m0s", "TTL is -1ns, must be 0 to 1h0m0s", "MinBatch is -1, must be at least 0",
		"MaxBatch is -1, must be at least 0", "Overcommit is -1, must be 0 to 2^52-1", "Weight is -1, must be 0 to 1048576",
		"ColdStart is 9", "Fallback is -1"} {
		if !errors.Is(err, ErrInvalidPolicy) || !strings.Contains(err.Error(), part) {
			t.Errorf("%v\nlacks %q", err, part)
		}
	}
	err = Policy{Target: time.Microsecond, TTL: time.Microsecond, MinBatch: 5, MaxBatch: 4}.Validate()
	for _, part := range []string{"Target is 1µs, must be 0 (default) or at least 1ms", "TTL is 1µs, must be at least 2*Target (2µs)",
		"MinBatch is 5, must be at most MaxBatch (4)"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v\nlacks %q", err, part)
		}
	}
}

func TestConfigNamesEveryViolationAtOnce(t *testing.T) {
	err := Config{Limits: []Limit{{}, PerSecond(1), PerSecond(1), PerSecond(1), PerSecond(1)}, TTL: -1, Target: 0, Version: Version{-1, -1}}.Validate()
	for _, part := range []string{"5 limits, must be 1 to 4", "limit 0: ", "Target is 0s", "TTL is -1ns, must be 2*Target (0s)", "Version is -1", "revision is -1"} {
		if !errors.Is(err, ErrInvalidConfig) || !strings.Contains(err.Error(), part) {
			t.Errorf("%v\nlacks %q", err, part)
		}
	}
}

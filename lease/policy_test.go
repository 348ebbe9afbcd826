package lease

import (
	"testing"
	"time"
)

func TestZeroPolicyIsAGoodDefault(t *testing.T) {
	if err := (Policy{}).Validate(); err != nil {
		t.Fatal(err)
	}
	// given a burst that is large beside a Target's worth
	c := Policy{}.ConfigFor([]Limit{PerSecond(1000)}, 7, 0)
	if c.Target != 100*time.Millisecond || c.TTL != 400*time.Millisecond || c.Overcommit != 0 ||
		c.StartEmpty {
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
		// By itself an overcommit makes no lease longer.
		{Policy{Overcommit: 40}, []Limit{PerSecond(1000).WithBurst(40)}, 10 * time.Millisecond},
		{Policy{Target: time.Second, Overcommit: 40}, []Limit{PerSecond(1000).WithBurst(40)},
			20 * time.Millisecond},
		{Policy{}, []Limit{PerSecond(1000), PerSecond(1000).WithBurst(40)}, 10 * time.Millisecond},
		{Policy{}, []Limit{PerSecond(1_000_000).WithBurst(1)}, time.Millisecond},
		{Policy{Target: 20 * time.Millisecond}, []Limit{PerHour(1)}, 20 * time.Millisecond},
	} {
		if got := c.policy.TargetFor(c.limits); got != c.want {
			t.Errorf("%+v for %v: %v, want %v", c.policy, c.limits, got, c.want)
		}
	}
}

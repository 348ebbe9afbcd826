package lease

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

func TestZeroPolicyIsAGoodDefault(t *testing.T) {
	testkit.NoErr(t, Policy{}.Validate())
	// given a burst that is large beside a Target's worth
	c := Policy{}.ConfigFor([]Limit{PerSecond(1000)}, 7, 0)
	testkit.NoErr(t, c.Validate())
	testkit.Check(t, c.Target == 100*time.Millisecond && c.TTL == 400*time.Millisecond && c.Overcommit == 0 &&
		!c.StartEmpty && c.Version == (Version{Deploy: 7}), "%+v", c)
	// a slow network makes T longer: two call timeouts
	c = Policy{}.ConfigFor([]Limit{PerSecond(1000)}, 0, time.Second)
	testkit.Check(t, c.TTL == 2*time.Second, "T is %v", c.TTL)
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
		got := c.policy.TargetFor(c.limits)
		testkit.Check(t, got == c.want, "%+v for %v: %v, want %v", c.policy, c.limits, got, c.want)
	}
}

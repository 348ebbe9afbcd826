package search

import (
	"slices"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

func TestTheScreeningFillsTheSpace(t *testing.T) {
	// Given room for any target,
	all := newSpace(fleet(), 0).screen(screenMax)
	// then it starts with the given policy,
	if all[0] != (choice{target: 100 * time.Millisecond, ttl: 400 * time.Millisecond}) {
		t.Errorf("the first is %+v", all[0])
	}
	// and goes from 5 ms to 2 s in factors below 1.8, with each TTL that two call timeouts leave.
	byTTL := map[int][]time.Duration{}
	for _, c := range all[1:] {
		m := int(c.ttl / c.target)
		if c.ttl == 200*time.Millisecond {
			m = 4
		}
		byTTL[m] = append(byTTL[m], c.target)
		if c.overcommit != 0 {
			t.Errorf("%+v changes what it may not", c)
		}
	}
	targets := byTTL[4]
	if targets[0] != 5*time.Millisecond || targets[len(targets)-1] != 2*time.Second || len(byTTL) != 3 {
		t.Errorf("%v", byTTL)
	}
	for i := range targets[1:] {
		if f := targets[i+1].Seconds() / targets[i].Seconds(); f < 1.5 || f > 1.9 {
			t.Errorf("%v and %v are a factor of %v apart", targets[i], targets[i+1], f)
		}
	}
}

func TestTheBurstCapsTheTargetsAndASmallOneStartsAtAMillisecond(t *testing.T) {
	s := fleet()
	s.Limits = []lease.Limit{lease.PerSecond(1000).WithBurst(20)} // a quarter of it is 5 ms
	targets := newSpace(s, 0).targets(0)
	if targets[0] != time.Millisecond || targets[len(targets)-1] != 5*time.Millisecond || len(targets) < 4 {
		t.Errorf("%v", targets)
	}
	s.Limits[0].Burst = 1
	if targets := newSpace(s, 0).targets(0); !slices.Equal(targets, []time.Duration{time.Millisecond}) {
		t.Errorf("burst 1: %v", targets)
	}
	// An overcommit makes room.
	if targets := newSpace(s, 79).targets(79); targets[len(targets)-1] != 20*time.Millisecond {
		t.Errorf("overcommit 79: %v", targets)
	}
}

func TestWhatIsTriedIsAllowedAndValidAndDifferent(t *testing.T) {
	r := testkit.Rand(t)
	for range 100 {
		// Given any limit, and any overcommit allowed,
		s := fleet()
		rate := int64(1) << r.IntN(20)
		s.Limits = []lease.Limit{lease.PerSecond(rate).WithBurst(1 + r.Int64N(4*rate))}
		if r.IntN(2) == 0 {
			s.Limits = append(s.Limits, lease.PerMinute(1+r.Int64N(60*rate)).WithBurst(1+r.Int64N(100*rate)))
		}
		s.CallTimeout = time.Millisecond << r.IntN(10)
		s.Policy.Overcommit = r.Int64N(3)
		if s.Validate() != nil {
			continue
		}
		overcommitMax := r.Int64N(1000)
		x := newSpace(s, overcommitMax)
		all := x.screen(screenMax)
		if len(all) > screenMax*3/2+1 {
			t.Fatalf("%d policies to screen for %v", len(all), s.Limits)
		}
		for i, c := range all {
			near := []choice{c}
			if i > 0 {
				near = append(near, x.around(c, 0)...)
				near = append(near, x.around(c, 1)...)
			}
			// then every policy that is tried, and every neighbour of one, keeps to that,
			for _, n := range near {
				one := x.scenario(n)
				config := one.Policy.ConfigFor(one.Limits, 0, one.CallTimeout)
				switch {
				case one.Validate() != nil:
					t.Fatalf("%v: %+v: %v", s.Limits, n, one.Validate())
				case config.Target != n.target || config.TTL != n.ttl:
					t.Fatalf("%v: %+v would be %v and %v", s.Limits, n, config.Target, config.TTL)
				case n.overcommit > max(overcommitMax, s.Policy.Overcommit):
					t.Fatalf("%v: %+v, allowed %d", s.Limits, n, overcommitMax)
				case n.ttl < 2*s.CallTimeout && i > 0:
					t.Fatalf("%+v has no time for a call and its retry (%v)", n, s.CallTimeout)
				}
			}
			// and none is tried twice.
			if slices.Contains(all[:i], c) {
				t.Fatalf("%v: %+v is there twice", s.Limits, c)
			}
		}
	}
}

func TestNeighboursKeepTheTTLThatCallTimeoutsDemand(t *testing.T) {
	// Given a TTL that is long beside the target for the call timeout's sake alone,
	near := newSpace(fleet(), 0).around(choice{target: 5 * time.Millisecond, ttl: 200 * time.Millisecond}, 0)
	// then a longer target does not take 40 times as long.
	if len(near) != 2 || near[0].target <= 5*time.Millisecond || near[1].target >= 5*time.Millisecond {
		t.Errorf("%v", near)
	}
	for _, c := range near {
		if c.ttl != 200*time.Millisecond {
			t.Errorf("%+v", c)
		}
	}
}

func TestADenseGridIsThinnedEvenly(t *testing.T) {
	x := newSpace(fleet(), 1000)
	thin := x.screen(screenMax)
	if len(thin) < screenMax/2 || len(thin) > screenMax+1 {
		t.Errorf("%d policies", len(thin))
	}
	// Every overcommit is still there, with short and long targets with each
	// overcommit.
	for _, e := range x.overcommits {
		short, long := false, false
		for _, c := range thin[1:] {
			short = short || c.overcommit == e && c.target < 50*time.Millisecond
			long = long || c.overcommit == e && c.target > 300*time.Millisecond
		}
		if !short || !long {
			t.Errorf("overcommit %d: %v", e, thin)
		}
	}
}

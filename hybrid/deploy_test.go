package hybrid_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// deploys replaces the processes by new ones with other limits, one in each second, while each is asked 10
// times a second, and returns the new ones, and how many requests were denied in each second. The limits in
// force change once, or not at all where cfg has those of before.
func (t *world) deploys(old []*hybrid.Limiter, cfg hybrid.Config) (fresh []*hybrid.Limiter, denied []int) {
	t.Helper()
	all, inForce := slices.Clone(old), [][]hybrid.Limit{nil}
	second := func() {
		n := 0
		for range 10 {
			for _, l := range all {
				if !l.Allow("k") {
					n++
				}
			}
			if now := t.state("k").Config.Limits; !slices.Equal(now, inForce[len(inForce)-1]) {
				inForce = append(inForce, now)
			}
			time.Sleep(100 * time.Millisecond)
		}
		denied = append(denied, n)
	}
	for i := range all {
		second()
		gone := all[i]
		all[i] = t.start(cfg)
		noErr(t, gone.Shutdown(context.Background()))
	}
	for range 5 {
		second()
	}
	check(t, len(inForce) <= 3, "the limits in force were %v", inForce[1:])
	return all, denied
}

// A rate, a quota or another kind of limit comes with a rolling deploy of five processes that use half of the
// rate, and goes with its rollback.
func TestLimitsChangeUnderALiveFleet(t *testing.T) {
	rate := hybrid.PerSecond(100)
	day := hybrid.Calendar(100_000, 24*time.Hour, 0)
	for name, c := range map[string]struct {
		after   []hybrid.Limit
		version int64 // of the deploy; that of its rollback is one higher, or the same for 0
		denies  int   // requests in a second at the end of the deploy
	}{
		"a higher rate, another version": {limits(hybrid.PerSecond(200)), 1, 0},
		"a higher rate":                  {limits(hybrid.PerSecond(200)), 0, 0},
		"a lower rate, another version":  {limits(hybrid.PerSecond(30).WithBurst(30)), 1, 20},
		"a lower rate":                   {limits(hybrid.PerSecond(30).WithBurst(30)), 0, 20},
		"a quota, another version":       {limits(rate, day), 1, 0},
		"a window, another version":      {limits(hybrid.Sliding(100, time.Second)), 1, 0},
		// Limits of one version may take turns for ever, so a new one has nothing to give:
		"a window": {limits(hybrid.Sliding(100, time.Second)), 0, 0}, // until its second is over
		"a quota":  {limits(rate, day), 0, 50},                       // until the day is over
	} {
		bubbleOf(t, name, func(t *world) {
			// given a fleet at work
			fleet := t.fleet(5, of(rate))
			fleet, denied := t.deploys(fleet, of(rate))
			equal(t, slices.Max(denied), 0, "denied before")
			// when it is replaced by one with other limits
			cfg := of(c.after...)
			cfg.Version = c.version
			fleet, denied = t.deploys(fleet, cfg)
			// then that denies what the new limits do, and nothing while it lasts
			check(t, slices.Max(denied[:5]) <= c.denies, "denied %v during the deploy", denied)
			last := denied[len(denied)-1]
			check(t, last >= c.denies-1 && last <= c.denies+1, "denied %v, at the end want %d", denied, c.denies)
			limitsAre(t, fleet[0], "k", c.after...)
			// and its rollback gives back what was there
			cfg = of(rate)
			if c.version > 0 {
				cfg.Version = c.version + 1
			}
			fleet, denied = t.deploys(fleet, cfg)
			equal(t, denied[len(denied)-1], 0, "denied after the rollback")
			limitsAre(t, fleet[0], "k", rate)
		})
	}
}

// While a process of before is at work its limits hold, however many propose others of the same version.
func TestADeployThatIsStoppedHalfwayChangesNothing(t *testing.T) {
	bubble(t, func(t *world) {
		before, after := hybrid.PerSecond(500), hybrid.PerSecond(50).WithBurst(20)
		bound, fleet := newMeter(before), t.fleet(3, of(before))
		for _, limit := range limits(before, after, before) {
			// when two of three processes are replaced, then put back, and all are at work for several T
			for i := range 2 {
				noErr(t, fleet[i].Shutdown(t.Context()))
				fleet[i] = t.process(limit)
			}
			used(5*ttl, func() {
				for _, l := range fleet {
					admits(10, 0, func() bool { return bound.admitIf(l.Allow("k")) })
				}
			}, func() {
				// then the limits in force never change
				check(t, slices.Equal(t.state("k").Config.Limits, limits(before)), "%v", t.state("k").Config.Limits)
			})
		}
		// and the bound holds over all windows.
		bound.check(t)
	})
}

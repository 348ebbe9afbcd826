package faults

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// A fleet that loses its store at one moment, and gets it back at one moment, in virtual time.
const (
	crowd  = 200
	asking = 30 // requests per second and process: twice the limit, all told
	target = 100 * time.Millisecond
	ttl    = 4 * target
)

// away is how long the store is away: less under the race detector, which makes virtual time slow.
var away = testkit.PlainOrRace(10*time.Second, 3*time.Second)

var crowded = hybrid.PerSecond(3000)

func TestRow36TheRecoveryOfTwoHundredAtOnceIsNoStorm(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fallback hybrid.Fallback
		down     func(context.Context) error
	}{
		"Deny, a store that hangs":              {hybrid.FallbackDeny, hanging},
		"LocalShare, a store that is not there": {hybrid.FallbackLocalShare, refusing},
		"AllowAll, a store that hangs":          {hybrid.FallbackAllowAll, hanging},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { recovery(t, c.fallback, c.down) })
		})
	}
}

func recovery(t *testing.T, fallback hybrid.Fallback, down func(context.Context) error) {
	// given two hundred limiters on one bucket, all in demand
	w := newWire(always(time.Millisecond))
	stores := make([]lease.Store, crowd)
	for i := range stores {
		stores[i] = w
	}
	f := NewFleetOn(t, hybrid.Config{Limits: []hybrid.Limit{crowded},
		Policy: hybrid.Policy{Fallback: fallback}}, stores...)
	load := f.Load("k", asking)
	time.Sleep(2 * time.Second)
	// when the store is away for a while
	before, downAt := f.Stats(), f.Now()
	w.goDown(down)
	time.Sleep(away)
	gone, backAt := f.Stats(), f.Now()
	w.goDown(nil)
	back := time.Now()
	leased := func(after time.Duration) int64 {
		time.Sleep(time.Until(back.Add(after)))
		s := f.Stats()
		return s.Admitted - s.Fallback
	}
	soon, then := leased(2*ttl), leased(2*ttl+time.Second)
	late, last := leased(3*time.Second), leased(5*time.Second)
	load.Stop()
	time.Sleep(time.Second) // for the last reports
	synctest.Wait()

	// then no second from the first on has more than 2N/tau calls,
	calls, _ := w.most(back, time.Second)
	allowed := int(2 * crowd * time.Second / target)
	t.Logf("at most %d calls within a second of the recovery, %d are allowed", calls, allowed)
	if calls > allowed {
		t.Errorf("%d calls within a second of the recovery, at most %d are allowed", calls, allowed)
	}
	checkRate(t, then-soon, (last-late)/2)
	// the holdings were spent first, and once they were, nobody waited: not for a nanosecond,
	had := before.Held + gone.Leased - before.Leased // what was on its way included
	if spent := gone.Admitted - gone.Fallback - (before.Admitted - before.Fallback); spent == 0 ||
		spent > had {
		t.Errorf("%d of %d held tokens were spent", spent, had)
	}
	if s := f.Seen("k", downAt+ttl+lease.DefaultCallTimeout, backAt); s.Slowest > 0 ||
		s.Admitted+s.Denied == 0 {
		t.Errorf("without the store: %+v", s)
	}
	checkDebt(t, f, w, fallback, gone.Fallback-before.Fallback)
}

// checkRate is oracle G on what was admitted by leases in the second from 2T after the recovery on,
// and per second later on. What a bucket makes right after it ran dry goes first into the reserve
// that it is fair with, R*tau/2, and into the processes' holdings, up to 2*R*tau, and is admitted
// later: so the first figure is lower, once.
func checkRate(t *testing.T, soon, late int64) {
	t.Helper()
	rate := float64(crowded.Tokens)
	t.Logf("admitted by leases: %d in the second from 2T on, %d/s from 3 s on, of %d/s", soon, late,
		crowded.Tokens)
	if want := rate - 3*rate*target.Seconds(); float64(soon) < want {
		t.Errorf("%d admitted by leases in the second from 2T after the recovery on, want %.0f", soon, want)
	}
	if float64(late) < 0.95*rate {
		t.Errorf("%d/s admitted by leases from 3 s after the recovery on, want %.0f", late, 0.95*rate)
	}
}

// checkDebt is what was admitted without the store, its bound, and where it went.
func checkDebt(t *testing.T, f *Fleet, w *wire, fallback hybrid.Fallback, without int64) {
	t.Helper()
	// and what was admitted without the store is within the mode's own bound,
	offered := int64(asking * crowd * (away / time.Second))
	bound := int64(0)
	switch fallback {
	case hybrid.FallbackLocalShare: // to each its share of the rate, and of the burst
		bound = crowded.Tokens*int64(away/time.Second) + crowded.Capacity()
	case hybrid.FallbackAllowAll:
		bound = offered
	}
	if without > bound {
		t.Errorf("%d admitted without the store, the bound is %d", without, bound)
	}
	// all of it was reported as debt, once,
	debts, repaid := w.owed()
	if all := f.Stats().Fallback; debts != all {
		t.Errorf("%d admitted without the store, %d reported as debt", all, debts)
	}
	// and over all windows no more was admitted beyond the limit than that.
	over := f.Audit("k", crowded, 0).ExceededBy
	if over > f.Stats().Fallback {
		t.Errorf("%d more than one bucket, %d without the store", over, f.Stats().Fallback)
	}
	t.Logf("without the store: %d of %d offered, bound %d; debt reported %d, taken from the bucket %d; the worst window: %d beyond one bucket",
		without, offered, bound, debts, repaid, over)
}

package faults

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/hook"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// twins are the taps of two limiters that call under one id, as processes do that were restored
// from one snapshot, until one of them takes another. The calls of both go on with their own seqs.
type twins []*tap

// clone makes the first two limiters of a fleet twins. renamed says how many have taken an id of their own.
func (f *fleet) clone() (_ twins, renamed *atomic.Int64) {
	renamed = new(atomic.Int64)
	for _, tap := range f.taps[:2] {
		born, own := "", false // the id that the limiter was made with; whether it has called under another
		tap.onCall = func(c *lease.Call) {
			born = cmp.Or(born, c.Request.Holder)
			if c.Request.Holder == born {
				c.Request.Holder = "cloned"
			} else if !own {
				own = true
				renamed.Add(1)
			}
		}
	}
	return f.taps[:2], renamed
}

// most is the largest holding that either had.
func (t twins) most() int64 { return max(t[0].counts().mostHeld, t[1].counts().mostHeld) }

// TestRow31ClonesExceedTheBoundByOneHoldingUnderAnyLoad: the same in virtual time, for many loads,
// with an adversary in every other pair that spends its whole holding just before every report.
func TestRow31ClonesExceedTheBoundByOneHoldingUnderAnyLoad(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) { cloneRun(t, seed) })
	}
}

func cloneRun(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 31))
	limit := hybrid.PerSecond(1000).WithBurst(20 + r.Int64N(1000))
	// Given two clones,
	f := newFleet(t, hybrid.Config{})
	cfg, wire := with(limit, denying), newWire(always(2*time.Millisecond))
	for i := range 2 {
		if seed%2 == 0 {
			cfg.InstanceID = hook.BeforeReport(func(key string) {
				for f.ask(key, func() bool { return f.limiters[i].Key(key).TryAllow() }) {
				}
			})
		}
		f.add(cfg, wire)
	}
	twins, renamed := f.clone()
	var wg sync.WaitGroup
	for i := range 2 {
		// (every other pair is in step: both get the same requests at the same moments)
		stream, gap := uint64(i), time.Duration(200+r.IntN(4000))*time.Microsecond
		if seed/2%2 == 0 {
			stream, gap = 0, time.Duration(200+seed*100)*time.Microsecond
		}
		// when they ask, with pauses in which the bucket fills,
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, stream))
			for range 4 {
				for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); {
					f.allow(i, key)
					time.Sleep(time.Duration(r.ExpFloat64() * float64(gap)))
				}
				time.Sleep(time.Second)
			}
		})
	}
	wg.Wait()
	f.close()
	// then no window exceeds the bound by more than a holding, and they part.
	f.checkBound(key, limit, twins.most())
	testkit.Check(t, renamed.Load() > 0 && !t.Failed(), "with seed %d", seed)
}

// A fleet whose processes all lose the store at one moment, and get it back at one moment, in virtual time.
const (
	crowd  = 200
	asking = 30 // requests per second and process: twice the limit in all
	target = 100 * time.Millisecond
	ttl    = 4 * target
)

var crowded = hybrid.PerSecond(3000)

func TestRow36TheRecoveryOfTwoHundredAtOnceIsNoStorm(t *testing.T) {
	type story struct {
		fallback hybrid.Fallback
		down     func(context.Context) error
	}
	each(t, map[string]story{
		"Deny, a store that hangs":              {hybrid.FallbackDeny, hanging},
		"LocalShare, a store that is not there": {hybrid.FallbackLocalShare, refusing},
		"AllowAll, a store that hangs":          {hybrid.FallbackAllowAll, hanging},
	}, func(t *testing.T, c story) {
		// less under the race detector, which makes virtual time slow
		seconds := testkit.ShortOrLong(t, 3, testkit.PlainOrRace(10, 3), "seconds without the store")
		away := time.Duration(seconds) * time.Second
		synctest.Test(t, func(t *testing.T) { recoverAtOnce(t, away, c.fallback, c.down) })
	})
}

func recoverAtOnce(
	t *testing.T, away time.Duration, fallback hybrid.Fallback, down func(context.Context) error,
) {
	// given two hundred limiters on one bucket, all in demand
	w := newWire(always(time.Millisecond))
	f := newFleet(t, with(crowded, hybrid.Policy{Fallback: fallback}), slices.Repeat([]lease.Store{w}, crowd)...)
	load := f.load(key, asking)
	time.Sleep(2 * time.Second)
	// when the store is away for a while
	before, downAt := f.stats(), f.now()
	w.goDown(down)
	time.Sleep(away)
	gone, backAt := f.stats(), f.now()
	w.goDown(nil)
	back := time.Now()
	leased := func(after time.Duration) int64 {
		time.Sleep(time.Until(back.Add(after)))
		s := f.stats()
		return s.Admitted - s.Fallback
	}
	soon, then := leased(2*ttl), leased(2*ttl+time.Second)
	late, last := leased(3*time.Second), leased(5*time.Second)
	load.stop()
	time.Sleep(time.Second) // for the last reports
	synctest.Wait()

	// then no second from the first on has more than 2N/tau calls,
	calls, allowed := w.most(back), int(2*crowd*time.Second/target)
	t.Logf("at most %d calls within a second of the recovery, %d are allowed", calls, allowed)
	testkit.Check(t, calls <= allowed, "%d calls within a second", calls)
	checkRate(t, then-soon, (last-late)/2)
	// the holdings were spent first, and after that no request waited, not for a nanosecond,
	had := before.Held + gone.Leased - before.Leased // including grants on their way
	spent := gone.Admitted - gone.Fallback - (before.Admitted - before.Fallback)
	testkit.Check(t, spent > 0 && spent <= had, "%d of %d held tokens were spent", spent, had)
	s := f.seen(key, downAt+ttl+lease.DefaultCallTimeout, backAt)
	testkit.Check(t, s.slowest == 0 && s.asked() > 0, "without the store: %v", s)
	checkDebt(t, f, w, away, fallback, gone.Fallback-before.Fallback)
}

// checkRate is oracle G on the admissions by leases: in the second from 2T after the recovery on, and per
// second later. The refill of a bucket that ran dry goes first into the reserve for fairness, R*tau/2, and
// into the processes' holdings, up to 2*R*tau, and is admitted later. That lowers the first figure.
func checkRate(t *testing.T, soon, late int64) {
	t.Helper()
	rate := float64(crowded.Tokens)
	t.Logf("admitted by leases: %d in the second from 2T on, %d/s from 3 s on, of %.0f/s", soon, late, rate)
	want := rate - 3*rate*target.Seconds()
	testkit.Check(t, float64(soon) >= want, "%d in the second from 2T on, want %.0f", soon, want)
	testkit.Check(t, float64(late) >= 0.95*rate, "%d/s from 3 s on, want %.0f", late, 0.95*rate)
}

// checkDebt checks the admissions without the store against their bound, and that they were reported as debt.
func checkDebt(
	t *testing.T, f *fleet, w *wire, away time.Duration, fallback hybrid.Fallback, without int64,
) {
	t.Helper()
	// and the admissions without the store are within the mode's own bound,
	bound := int64(0)
	switch fallback {
	case hybrid.FallbackLocalShare: // to each its share of the rate, and of the burst
		bound = crowded.Tokens*int64(away/time.Second) + crowded.Capacity()
	case hybrid.FallbackAllowAll:
		bound = int64(asking * crowd * (away / time.Second)) // all requests
	}
	testkit.Check(t, without <= bound, "%d admitted without the store, the bound is %d", without, bound)
	// all of it was reported as debt, once,
	all, over := f.stats().Fallback, f.excess(key, crowded)
	testkit.Check(t, w.debts == all, "%d admitted without the store, %d reported as debt", all, w.debts)
	// and no window exceeds the limit by more than that.
	testkit.Check(t, over <= all, "%d more than one bucket, %d without the store", over, all)
	t.Logf("without the store: %d, bound %d; the worst window: %d beyond one bucket", without, bound, over)
}

// askTwiceTheShare asks every limiter for twice its share of limit at random, until more returns
// false. It returns the admissions of each.
func (f *fleet) askTwiceTheShare(limit hybrid.Limit, more func() bool) (shares []float64) {
	gap := float64(len(f.limiters)) / (2 * limit.Rate()) * float64(time.Second)
	var wg sync.WaitGroup
	for i, l := range f.limiters {
		random, k := rand.New(rand.NewPCG(37, uint64(i))), l.Key(key)
		wg.Go(func() {
			for more() {
				time.Sleep(time.Duration(random.ExpFloat64() * gap)) // the load
				f.ask(key, k.Allow)
			}
		})
	}
	wg.Wait()
	for _, l := range f.limiters {
		shares = append(shares, float64(l.Stats().Admitted))
	}
	return shares
}

// TestRow37ABurstSmallerThanTheFleetIsShared: with a burst far smaller than the number of processes
// there are too few tokens for each to hold one. Leases shrink to the waiting requests, no process
// starves, and together they admit as much as one central bucket.
func TestRow37ABurstSmallerThanTheFleetIsShared(t *testing.T) {
	const longRun = 10_000
	for _, c := range []struct {
		processes int
		limit     hybrid.Limit
		each      int // tokens for every process
	}{
		{200, hybrid.PerSecond(200).WithBurst(5), 50},
		{100, hybrid.PerSecond(1000).WithBurst(1), 50},
		{16, hybrid.PerSecond(100).WithBurst(2),
			testkit.ShortOrLong(t, 500, testkit.PlainOrRace(longRun, 500), "tokens for each of sixteen processes")},
	} {
		t.Run(fmt.Sprintf("%d processes, %v", c.processes, c.limit), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// Given a fleet of which each process asks for twice its share,
				w := newWire(always(time.Millisecond))
				f := newFleet(t, with(c.limit, denying), slices.Repeat([]lease.Store{w}, c.processes)...)
				var grants [7]atomic.Int64 // by their size; larger ones count with the largest
				for _, tap := range f.taps {
					tap.onAnswer = func(c *lease.Call) { grants[min(c.Grant.Granted, 6)].Add(1) }
				}
				// when it has run for long,
				run := time.Duration(float64(c.each*c.processes) / c.limit.Rate() * float64(time.Second))
				shares := f.askTwiceTheShare(c.limit, func() bool { return f.now() < run })
				f.close()
				admitted, central := f.seen(key, 0, f.now()).admitted, f.centralBucket(c.limit)
				equal := float64(admitted) / float64(c.processes)
				jain, worst := testkit.Jain(shares), slices.Min(shares)/equal
				t.Logf("%v: admitted %d, a central bucket %d; Jain %.5f, the worst has %.3f of its share",
					run, admitted, central, jain, worst)
				// then the bound holds over all windows,
				f.checkBound(key, c.limit, 0)
				// the fleet admits at least 98 % of a central bucket's admissions,
				testkit.Check(t, float64(admitted) >= 0.98*float64(central), "%d of %d", admitted, central)
				// leases are as small as can be,
				for n := range grants {
					got := grants[n].Load()
					small := n < 2 || n == 2 && got <= grants[1].Load()/4
					testkit.Check(t, small || got == 0, "%d grants of %d", got, n)
				}
				// and shares differ by no more than chance: a token goes to the next request, so the shares of
				// n tokens vary by 1/n. (5 standard deviations; Jain's index is 1/(1+variance).)
				least := 1 - 5*math.Sqrt(1.2/equal)
				testkit.Check(t, worst >= least, "the worst has %.3f of its share, chance explains %.3f", worst, least)
				variance := 1/jain - 1
				testkit.Check(t, variance <= (1.2+5*math.Sqrt(2/float64(c.processes)))/equal,
					"the shares' variance is %.5f, chance explains %.5f", variance, 1.2/equal)
				// Over a long run that is next to nothing.
				testkit.Check(t, c.each < longRun || jain >= 0.999 && worst >= 0.95, "Jain %.5f, %.3f", jain, worst)
			})
		})
	}
}

// centralBucket returns the number of the requests that one central token bucket would have admitted.
func (f *fleet) centralBucket(l hybrid.Limit) (admitted int) {
	all := f.decisions[key]
	slices.SortFunc(all, func(a, b decision) int { return cmp.Compare(a.before, b.before) })
	full := l.Capacity() * int64(l.Per)
	level, at := full, all[0].before
	for _, d := range all {
		level = min(full, level+int64(d.before-at)*l.Tokens)
		at = d.before
		if level >= int64(l.Per) {
			level -= int64(l.Per)
			admitted++
		}
	}
	return admitted
}

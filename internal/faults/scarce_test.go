package faults

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// askTwiceTheShare asks every limiter for twice its share of limit at random, while more says so.
// It returns what each admitted.
func (f *Fleet) askTwiceTheShare(limit hybrid.Limit, more func() bool) (shares []float64) {
	gap := float64(len(f.Limiters)) / (2 * limit.Rate()) * float64(time.Second)
	var wg sync.WaitGroup
	for i, l := range f.Limiters {
		random, r, k := rand.New(rand.NewPCG(37, uint64(i))), f.record(key), l.Key(key)
		wg.Go(func() {
			for more() {
				time.Sleep(time.Duration(random.ExpFloat64() * gap)) // the load
				f.ask(r, k.Allow)
			}
		})
	}
	wg.Wait()
	for _, l := range f.Limiters {
		shares = append(shares, float64(l.Stats().Admitted))
	}
	return shares
}

// TestRow37ABurstSmallerThanTheFleetIsShared: with a burst far smaller than the number of processes
// there are not enough tokens for everybody to hold one. Leases shrink to what waits, nobody
// starves, and together the processes admit what one central bucket would.
func TestRow37ABurstSmallerThanTheFleetIsShared(t *testing.T) {
	for _, c := range []struct {
		processes int
		limit     hybrid.Limit
		each      int // tokens for every process
	}{
		{200, hybrid.PerSecond(200).WithBurst(5), 50},
		{100, hybrid.PerSecond(1000).WithBurst(1), 50},
		{16, hybrid.PerSecond(100).WithBurst(2), testkit.PlainOrRace(10_000, 500)},
	} {
		t.Run(fmt.Sprintf("%d processes, %v", c.processes, c.limit), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// Given a fleet of which each process asks for twice its share,
				store := &tap{Store: lease.NewMemoryStore(nil), oneWay: time.Millisecond / 2}
				f := NewFleetOn(t, hybrid.Config{Limits: []hybrid.Limit{c.limit}, Policy: denying},
					slices.Repeat([]lease.Store{store}, c.processes)...)
				// when it has run for long,
				run := time.Duration(float64(c.each*c.processes) / c.limit.Rate() * float64(time.Second))
				shares := f.askTwiceTheShare(c.limit, func() bool { return f.Now() < run })
				f.CheckConserved()
				f.close()
				admitted, central, grants := f.Seen(key, 0, f.Now()).Admitted, f.centralBucket(c.limit),
					store.bySize
				equal := float64(admitted) / float64(c.processes)
				jain, worst := testkit.Jain(shares), slices.Min(shares)/equal
				t.Logf("%v: admitted %d, a central bucket %d (%.4f); Jain %.5f, the worst has %.3f of its share, the best %.3f; grants by size %v",
					run, admitted, central, float64(admitted)/float64(central), jain, worst,
					slices.Max(shares)/equal, grants)
				// then the bound holds over all windows,
				f.CheckBound(key, c.limit, 0)
				// at least 98 % of what a central bucket admits is admitted,
				if float64(admitted) < 0.98*float64(central) {
					t.Errorf("admitted %d, a central bucket %d", admitted, central)
				}
				// leases are as small as can be,
				if slices.Max(grants[3:]) > 0 || grants[2] > grants[1]/4 {
					t.Errorf("grants by size: %v", grants)
				}
				// and shares differ by no more than chance: who asks when there is a token gets it, so the
				// shares of n tokens vary by 1/n. (5 standard deviations; Jain's index is 1/(1+variance).)
				if most := 1 - 5*math.Sqrt(1.2/equal); worst < most {
					t.Errorf("the worst has %.3f of its share, chance explains %.3f", worst, most)
				}
				if variance := 1/jain - 1; variance > (1.2+5*math.Sqrt(2/float64(c.processes)))/equal {
					t.Errorf("the shares' variance is %.5f, chance explains %.5f", variance, 1.2/equal)
				}
				// Over a long run that is next to nothing.
				if c.each >= 10_000 && (jain < 0.999 || worst < 0.95) {
					t.Errorf("Jain %.5f, the worst has %.3f of its share", jain, worst)
				}
			})
		})
	}
}

// centralBucket is how many of the requests one central token bucket would have admitted.
func (f *Fleet) centralBucket(l hybrid.Limit) (admitted int) {
	var all []decision
	f.each(key, 0, func(d decision) { all = append(all, d) })
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

// TestRow37ABurstSmallerThanTheFleetStarvesNobodyOnRedis: the same on Redis, where time is what it
// is.
func TestRow37ABurstSmallerThanTheFleetStarvesNobodyOnRedis(t *testing.T) {
	t.Parallel()
	// Given sixteen limiters on a burst of two,
	const processes, each = 16, 60
	limit := hybrid.PerSecond(300).WithBurst(2)
	policy := denying
	policy.TTL = time.Second
	f := NewFleet(t, Options{Size: processes, Addr: redistest.Start(t).Addr,
		Config: hybrid.Config{Limits: []hybrid.Limit{limit}, CallTimeout: 10 * time.Second, Policy: policy}})
	// when all of them ask for twice their share until they have admitted a good number,
	shares := f.askTwiceTheShare(limit, func() bool { return f.Stats().Admitted < processes*each })
	// then everybody has a good part of an equal share,
	s := f.Stats()
	worst := slices.Min(shares) / float64(s.Admitted) * processes
	t.Logf("%d admitted in %v, %.2f of the rate; Jain %.4f, the worst has %.2f of its share; %d calls",
		s.Admitted, f.Now(), float64(s.Admitted)/limit.Rate()/f.Now().Seconds(), testkit.Jain(shares), worst,
		s.Calls)
	if worst < 0.4 {
		t.Errorf("shares of %v", shares)
	}
	// and the bound holds over all windows.
	f.CheckBound(key, limit, 0)
	f.CheckConserved()
}

package faults

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/audit"
)

// asked is one request of one process.
type asked struct {
	before, after int64 // ns of virtual time
	process       int
	ok            bool
}

// With a burst far smaller than the number of processes there are not enough tokens for everybody to hold one. Leases
// shrink to what waits, nobody starves, and together the processes admit what one central bucket would.
func TestABurstSmallerThanTheFleetIsShared(t *testing.T) {
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
				// Given a fleet of which each process asks for twice its share at random,
				run := time.Duration(float64(c.each*c.processes) / c.limit.Rate() * float64(time.Second))
				all, grants := scarceRun(t, c.limit, c.processes, run)
				// when it has run for long,
				s := summarise(all, c.processes)
				central := centralBucket(all, c.limit)
				t.Logf("%v: admitted %d of %d, a central bucket %d (%.4f); Jain %.5f, the worst has %.3f of its share, the best %.3f; grants by size %v",
					run, s.admitted, len(all), central, float64(s.admitted)/float64(central), s.jain, s.worst, s.best, grants)
				// then the bound holds over all windows,
				w, err := audit.Worst(s.spans, audit.Bound{Tokens: c.limit.Tokens, Per: c.limit.Per, Burst: c.limit.Capacity()})
				if err != nil || w.ExceededBy > 0 {
					t.Errorf("%+v, %v", w, err)
				}
				// at least 98 % of what a central bucket admits is admitted,
				if float64(s.admitted) < 0.98*float64(central) {
					t.Errorf("admitted %d, a central bucket %d", s.admitted, central)
				}
				// leases are as small as can be,
				if sumOf(grants[3:]) > 0 || grants[2] > grants[1]/4 {
					t.Errorf("grants by size: %v", grants)
				}
				// and shares differ by no more than chance: who asks when there is a token gets it, so the shares of n
				// tokens vary by 1/n. (5 standard deviations; Jain's index is 1/(1+variance).)
				n := float64(s.admitted) / float64(c.processes)
				if most := 1 - 5*math.Sqrt(1.2/n); s.worst < most {
					t.Errorf("the worst has %.3f of its share, chance explains %.3f", s.worst, most)
				}
				if variance := 1/s.jain - 1; variance > (1.2+5*math.Sqrt(2/float64(c.processes)))/n {
					t.Errorf("the shares' variance is %.5f, chance explains %.5f", variance, 1.2/n)
				}
				// Over a long run that is next to nothing.
				if c.each >= 10_000 && (s.jain < 0.999 || s.worst < 0.95) {
					t.Errorf("Jain %.5f, the worst has %.3f of its share", s.jain, s.worst)
				}
			})
		})
	}
}

// shares is how a fleet shared what it admitted.
type shares struct {
	admitted          int
	spans             []audit.Span
	jain, worst, best float64 // worst and best as parts of an equal share
}

func summarise(all []asked, processes int) (s shares) {
	of := make([]float64, processes)
	for _, a := range all {
		if a.ok {
			of[a.process]++
			s.admitted++
			s.spans = append(s.spans, audit.Span{Before: a.before, After: a.after, N: 1})
		}
	}
	equal := float64(s.admitted) / float64(processes)
	s.jain, s.worst, s.best = testkit.Jain(of), slices.Min(of)/equal, slices.Max(of)/equal
	return s
}

// scarceRun returns all requests in the order of their arrival, and how many grants there were of each size; those of
// more tokens count with the largest.
func scarceRun(t *testing.T, limit hybrid.Limit, processes int, run time.Duration) ([]asked, []int) {
	store := &counted{Store: delayed{lease.NewMemoryStore(nil), time.Millisecond / 2}, grants: make([]int, 7)}
	gap := float64(processes) / (2 * limit.Rate()) * float64(time.Second)
	var mu sync.Mutex
	var all []asked
	var wg sync.WaitGroup
	var ls []*hybrid.Limiter
	for i := range processes {
		l, err := hybrid.New(store, hybrid.Config{Limits: []hybrid.Limit{limit}, Policy: hybrid.Policy{Fallback: hybrid.FallbackDeny}})
		if err != nil {
			t.Fatal(err)
		}
		ls = append(ls, l)
		wg.Go(func() {
			r := rand.New(rand.NewPCG(37, uint64(i)))
			k := l.Key("k")
			for end := time.Now().Add(run); time.Now().Before(end); {
				time.Sleep(time.Duration(r.ExpFloat64() * gap))
				a := asked{before: time.Now().UnixNano(), process: i}
				a.ok = k.Allow()
				a.after = time.Now().UnixNano()
				mu.Lock()
				all = append(all, a)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for _, l := range ls {
		if s := l.Stats(); s.Leased != s.Admitted+s.Returned+s.Burnt+s.Held {
			t.Errorf("tokens were lost or forged: %+v", s)
		}
		l.Close()
	}
	time.Sleep(time.Second) // calls under way come back: time stands still once the test is over
	slices.SortFunc(all, func(a, b asked) int { return int(a.before - b.before) })
	return all, store.grants
}

// counted is a Store that counts grants by size.
type counted struct {
	lease.Store
	mu     sync.Mutex
	grants []int
}

// centralBucket is how many of the requests one central token bucket would have admitted.
func centralBucket(all []asked, l hybrid.Limit) (admitted int) {
	full := l.Capacity() * int64(l.Per)
	level, at := full, all[0].before
	for _, a := range all {
		level = min(full, level+(a.before-at)*l.Tokens)
		at = a.before
		if level >= int64(l.Per) {
			level -= int64(l.Per)
			admitted++
		}
	}
	return admitted
}

func sumOf(n []int) (sum int) {
	for _, v := range n {
		sum += v
	}
	return sum
}

// Exchange implements lease.Store.
func (s *counted) Exchange(ctx context.Context, calls []*lease.Call, done func([]*lease.Call)) {
	s.Store.Exchange(ctx, calls, func(group []*lease.Call) {
		s.mu.Lock()
		for _, c := range group {
			if c.Err == nil {
				s.grants[min(c.Grant.Granted, int64(len(s.grants)-1))]++
			}
		}
		s.mu.Unlock()
		done(group)
	})
}

package hybrid_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

// load is how one process asks: on for a while, off for a while.
type load struct {
	name    string
	on, off time.Duration
	gap     time.Duration // between two requests
}

// However many processes share a bucket, and however they ask, no window admits more than one central bucket
// would, though an adversary in each of them spends all that it holds just before every report.
func TestTheBoundHoldsOverAllWindows(t *testing.T) {
	for _, limit := range []hybrid.Limit{hybrid.PerSecond(1000), hybrid.PerSecond(200).WithBurst(20), hybrid.PerSecond(50).WithBurst(2)} {
		for _, ld := range []load{
			{"steady", time.Second, 0, 3 * time.Millisecond},
			{"on and off", 300 * time.Millisecond, 700 * time.Millisecond, time.Millisecond},
		} {
			for _, overcommit := range []int64{0, 5} {
				t.Run(fmt.Sprintf("%v %s E %d", limit, ld.name, overcommit), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { boundRun(t, limit, ld, overcommit) })
				})
			}
		}
	}
}

func boundRun(t *testing.T, limit hybrid.Limit, ld load, overcommit int64) {
	const processes = 5
	s := newFaulty()
	bound := newMeter(limit.WithBurst(limit.Capacity() + overcommit))
	var drained atomic.Int64
	ls := make([]*hybrid.Limiter, processes)
	var own [processes]atomic.Pointer[hybrid.Limiter]
	for i := range ls {
		cfg := hybrid.Config{Limits: limits(limit), Policy: hybrid.Policy{Overcommit: overcommit}}
		cfg.Events.BeforeReport = func(key string) {
			for l := own[i].Load(); l.TryAllow(key); drained.Add(1) {
				bound.admit(1)
			}
		}
		ls[i] = start(t, s, cfg)
		own[i].Store(ls[i])
	}
	var wg sync.WaitGroup
	for i, l := range ls {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(7, uint64(i)))
			for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
				for off := time.Now().Add(ld.on); time.Now().Before(off); {
					if r.IntN(4) == 0 {
						if n := 1 + r.Int64N(2); l.AllowN("k", n) {
							bound.admit(n)
						}
					} else if l.TryAllow("k") {
						bound.admit(1)
					}
					time.Sleep(time.Duration(r.ExpFloat64() * float64(ld.gap)))
				}
				time.Sleep(ld.off)
			}
		})
	}
	wg.Wait()
	time.Sleep(3 * time.Second) // the adversaries spend what is left
	bound.check(t)
	check(t, drained.Load() != 0, "the adversary never spent anything")
	var sum hybrid.Stats
	for _, l := range ls {
		st := l.Stats()
		sum.Admitted += st.Admitted
		sum.Leased += st.Leased
		sum.Calls += st.Calls
		sum.Burnt += st.Burnt
	}
	check(t, sum.Admitted == bound.sum,
		"Stats say %d admitted, the callers %d", sum.Admitted, bound.sum)
	least := int64(limit.Rate() * 5 * 0.5)
	if ld.off > 0 {
		least /= 4
	}
	if limit.Capacity() < 5 { // fewer tokens than processes that hold some
		least /= 3
	}
	check(t, bound.sum >= least, "only %d admitted in 5 s", bound.sum)
}

// The bound and the account survive a network that loses, delays, duplicates and refuses.
func TestTheBoundHoldsThroughABadNetwork(t *testing.T) {
	for seed := range uint64(6) {
		bubbleOf(t, fmt.Sprint(seed), func(t *testing.T, s *faultyStore) {
			limit := hybrid.PerSecond(500).WithBurst(100)
			r := rand.New(rand.NewPCG(seed, 3))
			s.setJudge(func(*lease.Call) verdict {
				switch r.IntN(10) {
				case 0:
					return verdict{lost: true}
				case 1:
					return verdict{err: lease.ErrUnavailable}
				case 2:
					return verdict{twice: true}
				case 3:
					return verdict{delay: time.Duration(r.Int64N(int64(20 * time.Millisecond)))}
				}
				return verdict{delay: time.Millisecond}
			})
			bound := newMeter(limit)
			var wg sync.WaitGroup
			for i := range 4 {
				l := start(t, s, hybrid.Config{Limits: limits(limit), Policy: hybrid.Policy{Fallback: hybrid.FallbackDeny}})
				wg.Go(func() {
					r := rand.New(rand.NewPCG(seed, 10+uint64(i)))
					for range 2000 {
						// Only TryAllow's tokens are spent at the moment that it returns.
						if l.TryAllow("k") {
							bound.admit(1)
						}
						time.Sleep(time.Duration(r.ExpFloat64() * float64(5*time.Millisecond)))
					}
					if i%2 == 0 {
						l.Shutdown(context.Background())
					}
				})
			}
			wg.Wait()
			bound.check(t)
			check(t, bound.sum >= 1000, "only %d admitted in about 10 s", bound.sum)
		})
	}
}

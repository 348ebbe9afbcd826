package hybrid_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/audit"
)

// load is how one process asks: on for a while, off for a while.
type load struct {
	name    string
	on, off time.Duration
	gap     time.Duration // between two requests
}

// However many processes share a bucket, and however they ask, no window admits more than one
// central bucket would, though an adversary in each of them spends all that it holds just before
// every report.
func TestTheBoundHoldsOverAllWindows(t *testing.T) {
	for limit, least := range map[hybrid.Limit]int64{ // admitted at least, adversaries included
		hybrid.PerSecond(1000):              8730, // 97 % of what one bucket has in the eight seconds
		hybrid.PerSecond(200).WithBurst(20): 900,
		hybrid.PerSecond(50).WithBurst(2):   60, // fewer tokens than processes that hold some
	} {
		for _, ld := range []load{
			{"steady", time.Second, 0, 3 * time.Millisecond},
			{"on and off", 300 * time.Millisecond, 700 * time.Millisecond, time.Millisecond},
		} {
			for _, overcommit := range []int64{0, 5} {
				bubbleOf(t, fmt.Sprintf("%v %s E %d", limit, ld.name, overcommit), func(t *testing.T, s *faultyStore) {
					boundRun(t, s, limit, ld, overcommit, least)
				})
			}
		}
	}
}

func boundRun(t *testing.T, s *faultyStore, limit hybrid.Limit, ld load, overcommit, least int64) {
	const processes = 5
	bound := newMeter(limit.WithBurst(limit.Capacity() + overcommit))
	var drained atomic.Int64
	ls := make([]*hybrid.Limiter, processes)
	var own [processes]atomic.Pointer[hybrid.Limiter]
	for i := range ls {
		cfg := by(hybrid.Policy{Overcommit: overcommit}, limit)
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
					} else {
						bound.admitIf(l.TryAllow("k"))
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
	admitted := int64(0)
	for _, l := range ls {
		admitted += l.Stats().Admitted
	}
	check(t, admitted == bound.sum, "Stats say %d admitted, the callers %d", admitted, bound.sum)
	check(t, bound.sum >= least, "only %d admitted, want %d", bound.sum, least)
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
					return away
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
				l := start(t, s, by(denying, limit))
				wg.Go(func() {
					r := rand.New(rand.NewPCG(seed, 10+uint64(i)))
					for range 2000 {
						// Only TryAllow's tokens are spent at the moment that it returns.
						bound.admitIf(l.TryAllow("k"))
						time.Sleep(time.Duration(r.ExpFloat64() * float64(5*time.Millisecond)))
					}
					if i%2 == 0 {
						l.Shutdown(context.Background())
					}
				})
			}
			wg.Wait()
			bound.check(t)
			check(t, bound.sum >= 4000, "only %d admitted in about 10 s", bound.sum)
		})
	}
}

// Everything at once, in real time, under the race detector: at the end no token is lost or forged,
// every request is accounted for, everybody was told, and no window has more than the limits allow.
func TestEverythingAtOnce(t *testing.T) {
	policies := []hybrid.Policy{
		{StrictExpiry: true},
		{TTL: time.Minute}, // so that a machine that stalls lets no lease end, whose timer would come late
	}
	for i := range 2 * len(policies) {
		shutdown, policy := i%2 == 0, policies[i/2]
		policy.Target, policy.Fallback = 5*time.Millisecond, hybrid.FallbackDeny
		s := newFaulty()
		var n atomic.Int64
		s.setJudge(func(*lease.Call) verdict {
			switch n.Add(1) % 50 {
			case 7:
				return away
			case 23:
				return verdict{twice: true, delay: time.Millisecond}
			}
			return verdict{delay: time.Duration(rand.IntN(500)) * time.Microsecond}
		})
		both := limits(hybrid.PerSecond(20000).WithBurst(500), hybrid.PerMinute(600_000).WithBurst(3000))
		l := start(t, s, hybrid.Config{Limits: both, Policy: policy, CallTimeout: 5 * time.Millisecond, KeysMax: 12})
		var admitted atomic.Int64
		var mu sync.Mutex
		record := make(map[string][]audit.Span)
		var wg sync.WaitGroup
		stop := time.Now().Add(500 * time.Millisecond)
		for i := range 16 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(i), 1))
				own := l.Key("0")
				mine := make(map[string][]audit.Span)
				defer func() {
					mu.Lock()
					defer mu.Unlock()
					for key, spans := range mine {
						record[key] = append(record[key], spans...)
					}
				}()
				for j := 0; j%64 != 0 || time.Now().Before(stop); j++ {
					key := fmt.Sprint(r.IntN(16))
					tokens, ok := int64(1), false
					from := clock.System().Now()
					switch r.IntN(7) {
					case 0:
						ok = l.Allow(key)
					case 1:
						tokens = 1 + r.Int64N(5)
						ok = l.AllowN(key, tokens)
					case 2:
						ok = l.TryAllow(key)
					case 3:
						ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.IntN(3000))*time.Microsecond)
						res, _ := l.Take(ctx, key, 1)
						ok = res.OK
						cancel()
					case 4:
						key, ok = own.Name(), own.TryAllow()
					default:
						key, ok = own.Name(), own.Allow()
					}
					if ok {
						admitted.Add(tokens)
						before, after := wholeMicroseconds(from), wholeMicroseconds(clock.System().Now())
						mine[key] = append(mine[key], audit.Span{Before: before, After: after, N: tokens})
					}
				}
			})
		}
		wg.Go(func() {
			for time.Now().Before(stop) {
				conserved(t, l)
				time.Sleep(time.Millisecond)
			}
		})
		wg.Go(func() {
			time.Sleep(400 * time.Millisecond)
			if shutdown {
				l.Shutdown(context.Background())
			} else {
				l.Close()
			}
		})
		wg.Wait()
		l.Close()
		st := conserved(t, l)
		check(t, st.Held == 0, "%+v", st)
		// What was drawn for requests that had gone does not count as admitted.
		check(t, st.Admitted == admitted.Load(),
			"Stats says %d admitted, the callers %d", st.Admitted, admitted.Load())
		for key, spans := range record {
			for _, limit := range both {
				w, err := audit.Worst(spans, audit.Bound{Tokens: limit.Tokens, Per: limit.Per, Burst: limit.Capacity()})
				check(t, err == nil && w.ExceededBy == 0, "key %s, %v: %+v, %v", key, limit, w, err)
			}
		}
	}
}

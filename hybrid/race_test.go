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

// Everything at once, in real time, under the race detector: at the end no token is lost or forged, every
// request is accounted for, everybody was told, and no window has more than the limits allow.
func TestEverythingAtOnce(t *testing.T) {
	policies := []hybrid.Policy{
		{StrictExpiry: true},
		{TTL: time.Minute}, // so that a machine that stalls lets no lease end, whose timer would come late
	}
	for i := range 2 * len(policies) {
		shutdown, policy := i%2 == 0, policies[i/2]
		policy.Target, policy.Fallback = 5*time.Millisecond, hybrid.FallbackDeny
		s := newFaulty()
		s.inner = lease.NewMemoryStore(clock.System())
		var n atomic.Int64
		s.setJudge(func(*lease.Call) verdict {
			switch n.Add(1) % 50 {
			case 7:
				return verdict{err: lease.ErrUnavailable}
			case 23:
				return verdict{twice: true, delay: time.Millisecond}
			}
			return verdict{delay: time.Duration(rand.IntN(500)) * time.Microsecond}
		})
		both := limits(hybrid.PerSecond(20000).WithBurst(500), hybrid.PerMinute(600_000).WithBurst(3000))
		l, err := hybrid.New(s, hybrid.Config{
			Limits:      both,
			Policy:      policy,
			CallTimeout: 5 * time.Millisecond,
			KeysMax:     12,
		})
		noErr(t, err)
		var admitted, asked atomic.Int64
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
					asked.Add(tokens)
					if ok {
						admitted.Add(tokens)
						mine[key] = append(mine[key], audit.Span{Before: int64(from), After: int64(clock.System().Now()), N: tokens})
					}
				}
			})
		}
		wg.Go(func() {
			for time.Now().Before(stop) {
				s := l.Stats()
				check(t, s.Leased == s.Admitted-s.Fallback+s.Returned+s.Burnt+s.Held,
					"on the way: %+v", s)
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
		st := l.Stats()
		check(t, st.Leased == st.Admitted-st.Fallback+st.Returned+st.Burnt+st.Held && st.Held == 0,
			"tokens lost or forged: %+v", st)
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

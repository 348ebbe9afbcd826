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
)

// Everything at once, in real time, under the race detector: at the end no token is lost or forged, every
// request is accounted for, and everybody was told.
func TestEverythingAtOnce(t *testing.T) {
	for _, shutdown := range []bool{false, true} {
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
		l, err := hybrid.New(s, hybrid.Config{
			Limits:      limits(hybrid.PerSecond(20000).WithBurst(5000), hybrid.PerMinute(600000)),
			Policy:      hybrid.Policy{Target: 5 * time.Millisecond},
			CallTimeout: 5 * time.Millisecond,
			KeysMax:     12,
		})
		if err != nil {
			t.Fatal(err)
		}
		var admitted, asked atomic.Int64
		var wg sync.WaitGroup
		stop := time.Now().Add(500 * time.Millisecond)
		for i := range 16 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(i), 1))
				own := l.Key("0")
				for j := 0; j%64 != 0 || time.Now().Before(stop); j++ {
					key := fmt.Sprint(r.IntN(16))
					tokens, ok := int64(1), false
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
						ok = own.TryAllow()
					default:
						ok = own.Allow()
					}
					asked.Add(tokens)
					if ok {
						admitted.Add(tokens)
					}
				}
			})
		}
		wg.Go(func() {
			for time.Now().Before(stop) {
				if s := l.Stats(); s.Leased != s.Admitted-s.Fallback+s.Returned+s.Burnt+s.Held {
					t.Errorf("on the way: %+v", s)
				}
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
		if st.Leased != st.Admitted-st.Fallback+st.Returned+st.Burnt+st.Held || st.Held != 0 {
			t.Errorf("tokens lost or forged: %+v", st)
		}
		// What was drawn for requests that had gone counts as admitted, and is refunded or lost with the limiter.
		if over := st.Admitted - admitted.Load(); over < st.Refunded || over > st.Refunded+500 {
			t.Errorf("Stats says %d admitted and %d refunded, the callers %d", st.Admitted, st.Refunded, admitted.Load())
		}
		t.Logf("%d tokens asked for, %+v", asked.Load(), st)
	}
}

package hybrid_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

func newLimiter(t *testing.T, cfg hybrid.Config) *hybrid.Limiter {
	t.Helper()
	l, err := hybrid.New(lease.NewMemoryStore(nil), cfg)
	noErr(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

func TestATightLoopAdmitsExactlyTheBurst(t *testing.T) {
	for _, burst := range []int64{1, 2, 3, 10, 100, 1000, 40000} {
		synctest.Test(t, func(t *testing.T) {
			// Given a full bucket that refills far more slowly than the loop runs,
			l := newLimiter(t, hybrid.Config{Limits: []hybrid.Limit{hybrid.PerHour(1).WithBurst(burst)}})
			// when one goroutine asks again and again,
			for i := range burst {
				if !l.Allow("k") {
					t.Fatalf("burst %d: request %d was denied; stats %+v", burst, i+1, l.Stats())
				}
			}
			// then exactly the burst is admitted.
			for range 10 {
				must(t, !l.Allow("k"), "burst %d: one more was admitted", burst)
			}
		})
	}
}

func TestSteadyOverloadIsAdmittedAtTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, hybrid.Config{Limits: []hybrid.Limit{hybrid.PerSecond(1000)}})
		var wg sync.WaitGroup
		admitted := 0
		wg.Go(func() {
			for range 20000 {
				if l.TryAllow("k") {
					admitted++
				}
				time.Sleep(500 * time.Microsecond)
			}
		})
		wg.Wait()
		s := l.Stats()
		check(t, admitted <= 11000 && admitted >= 10850,
			"admitted %d in 10 s at 1000/s with burst 1000", admitted)
		check(t, s.Calls <= 200, "%d calls in 10 s, want at most 2/tau a second", s.Calls)
	})
}

package hybrid_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// overload has every limiter asked so many times a second for a while, and returns what each was
// admitted.
func overload(ls []*hybrid.Limiter, rate int, span time.Duration, ask func(*hybrid.Limiter) bool) []int {
	admitted := make([]int, len(ls))
	var wg sync.WaitGroup
	for i, l := range ls {
		wg.Go(func() {
			n, gap := int(span.Seconds()*float64(rate)), time.Second/time.Duration(rate)
			admitted[i] = admits(n, gap, func() bool { return ask(l) })
		})
	}
	wg.Wait()
	return admitted
}

// Under contention each process gets the rate in proportion to its weight, whoever asks for more.
func TestWeightsShareAContendedRate(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		weights := []int64{1, 2, 5}
		var ls []*hybrid.Limiter
		for _, w := range weights {
			ls = append(ls, start(t, s, by(hybrid.Policy{Weight: w}, hybrid.PerSecond(800))))
		}
		allow := func(l *hybrid.Limiter) bool { return l.Allow("k") }
		overload(ls, 1000, 5*time.Second, allow)
		got := overload(ls, 1000, 20*time.Second, allow)
		for i, w := range weights {
			want := 100 * int(w) * 20
			share := float64(got[i]) / float64(want)
			check(t, share >= 0.95 && share <= 1.05,
				"weight %d of 8 was admitted %d in 20 s, want about %d", w, got[i], want)
		}
	})
}

// Several limits are drawn from in one call: bursts are held by one of them, the long run by the
// other.
func TestSeveralLimitsInOneCall(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		second, minute := hybrid.PerSecond(10), hybrid.PerMinute(300)
		l := start(t, s, of(second, minute))
		bySecond, byMinute := newMeter(second), newMeter(minute)
		admitted := 0
		binding := map[hybrid.Limit]int{}
		for range 10 * 60 * 20 { // ten minutes at 20/s
			r, err := l.Take(t.Context(), "k", 1)
			noErr(t, err)
			if r.OK {
				bySecond.admit(1)
				byMinute.admit(1)
				admitted++
			} else {
				binding[r.Limit]++
			}
			time.Sleep(50 * time.Millisecond)
		}
		bySecond.check(t)
		byMinute.check(t)
		// 300 at once, and 5 a second from then on.
		check(t, admitted >= 3290 && admitted <= 3300,
			"%d admitted in ten minutes, want 300 + 3000", admitted)
		check(t, binding[second] != 0 && binding[minute] != 0,
			"the binding limits of the denials: %v", binding)
		_, calls := s.counts()
		check(t, int64(calls) == l.Stats().Calls,
			"%d calls arrived, %d were made", calls, l.Stats().Calls)
	})
}

// A denial names the binding limit also where the level, as last heard, would do: the fair share
// denies then, not the bucket.
func TestEveryDenialOfASharedRateNamesItsLimit(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		limit := hybrid.PerSecond(100).WithBurst(50)
		var ls []*hybrid.Limiter
		for range 4 {
			ls = append(ls, start(t, s, by(hybrid.Policy{TTL: 400 * time.Millisecond}, limit)))
		}
		var denied atomic.Int64
		overload(ls, 500, 5*time.Second, func(l *hybrid.Limiter) bool {
			r, err := l.Take(t.Context(), "k", 1)
			check(t, err == nil && r.Limit == limit, "%+v, %v", r, err)
			if !r.OK {
				denied.Add(1)
			}
			return r.OK
		})
		check(t, denied.Load() != 0, "nothing was denied, so nothing was tested")
	})
}

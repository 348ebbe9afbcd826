package hybrid_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// A key with a steady demand below its limit is renewed before it runs dry: nobody waits and nobody
// is denied, at about one call per Target.
func TestAWarmKeyIsRenewedInTheBackground(t *testing.T) {
	for _, c := range []struct {
		limit hybrid.Limit
		gap   time.Duration
	}{
		{hybrid.PerSecond(1000), 1250 * time.Microsecond},
		{hybrid.PerSecond(1000), 2 * time.Millisecond},
		{hybrid.PerSecond(10000), 125 * time.Microsecond},
		{hybrid.PerMinute(60000).WithBurst(2000), 5 * time.Millisecond},
	} {
		bubbleOf(t, c.limit.String()+" every "+c.gap.String(), func(t *testing.T, s *faultyStore) {
			// Given a store a millisecond away, and a key that has been in use for a second,
			s.every(verdict{delay: time.Millisecond})
			l := start(t, s, of(c.limit))
			k := l.Key("k")
			ask := func(d time.Duration) (denied, waited int) {
				next := time.Now() // requests come when they come, however long the last one took
				for end := next.Add(d); next.Before(end); next = next.Add(c.gap) {
					time.Sleep(time.Until(next))
					ok := false
					if took(func() { ok = k.Allow() }) > 0 {
						waited++
					}
					if !ok {
						denied++
					}
				}
				return denied, waited
			}
			ask(time.Second)
			_, before := s.counts()
			// when it is used for ten more,
			denied, waited := ask(10 * time.Second)
			_, after := s.counts()
			// then the calls stay in the background, and few.
			check(t, denied <= 0 && waited == 0, "%d denied, %d waited", denied, waited)
			calls := float64(after-before) / 10
			check(t, calls <= 20 && calls >= 2,
				"%.1f calls a second, want about 10 and at most 20", calls)
		})
	}
}

// A process that stops asking gives everything back within a few Targets, and is silent from then
// on.
func TestAnIdleKeyGivesBackAndIsSilent(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		// Given a key in steady use,
		l := start(t, s, of(hybrid.PerSecond(1000)))
		admits(1000, 2*time.Millisecond, func() bool { return l.Allow("k") })
		must(t, l.Stats().Held != 0, "it holds nothing while in use")
		// when nobody asks any more,
		time.Sleep(time.Second)
		// then all that it held is back, and the bucket knows it,
		st := l.Stats()
		check(t, st.Held == 0 && st.Returned != 0 && st.Burnt == 0, "%+v", st)
		s.has(t, "k", 1000, 0)
		// and there is not one more call.
		s.silent(t, time.Hour)
	})
}

// After a shortfall requests are denied here until the delay that the bucket gave is over, but for
// one call in a T, should somebody have changed the limits; then the first request is admitted.
func TestTheDenialCacheEndsOnTime(t *testing.T) {
	for _, limit := range []hybrid.Limit{hybrid.PerSecond(2), hybrid.PerMinute(6).WithBurst(3), hybrid.Every(10 * time.Second)} {
		bubble(t, func(t *testing.T, s *faultyStore) {
			l := start(t, s, of(limit))
			// Given an emptied bucket that will have a token in one period,
			drain(l, "k")
			period := limit.Per / time.Duration(limit.Tokens)
			const heartbeat = 300 * time.Millisecond // three quarters of a TTL
			_, before := s.counts()
			// when requests go on,
			from, denied := time.Now(), 0
			for !l.Allow("k") {
				denied++
				if _, calls := s.counts(); calls-before > int(time.Since(from)/heartbeat) {
					t.Fatalf("%v: %d calls after %v", limit, calls-before, time.Since(from))
				}
				time.Sleep(period / 100)
			}
			// then one is admitted when the period is over: nobody else is there, so there is no
			// jitter.
			d := time.Since(from)
			check(t, d >= period && d <= period*101/100,
				"%v: admitted after %v, want %v", limit, d, period)
			got := l.Stats().Denied
			check(t, got == int64(denied)+1, "%v: Stats says %d denied, were %d", limit, got, denied+1)
		})
	}
}

// A key with hardly any demand leases exactly what waits, so that nothing lies stranded.
func TestASlowKeyLeasesWhatWaits(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, of(hybrid.PerSecond(100).WithBurst(1000)))
		l.Allow("k") // the first call asks for at most a Target's worth
		time.Sleep(time.Second)
		for _, n := range []int64{1, 1, 3, 1, 7} {
			// Given a request now and then,
			time.Sleep(time.Second)
			must(t, l.AllowN("k", n), "denied")
			// then each draws its own tokens and no more.
			r := s.last()
			check(t, r.Want == n && r.Waiting == n,
				"for %d tokens it asked for %d, of which %d wait", n, r.Want, r.Waiting)
		}
		check(t, l.Stats().Held == 0, "%+v", l.Stats())
	})
}

// One call leases from all limits of a key; the scarcest decides.
func TestAllLimitsMustHaveRoom(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, hybrid.Config{
			Limits: limits(hybrid.PerSecond(10), hybrid.PerHour(25)),
			LimitsFor: func(key string) []hybrid.Limit {
				if key == "vip" {
					return limits(hybrid.PerSecond(100))
				}
				return nil
			},
		})
		admitted := int64(0)
		for range 100 {
			admitted += drain(l, "k")
			time.Sleep(time.Second)
		}
		check(t, admitted == 25, "%d admitted in 100 s, want 25", admitted)
		for i := range 100 {
			must(t, l.Allow("vip"), "request %d of a key with limits of its own was denied", i+1)
		}
	})
}

// TestAFleetThatStartsOnAFullBucketLosesLittle: the first leases take the whole burst, and while
// the bucket counts them as held it cannot refill, so holders report what they have spent after one
// Target.
func TestAFleetThatStartsOnAFullBucketLosesLittle(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		// Given four processes on one full bucket,
		from := time.Now()
		var admitted atomic.Int64
		var wg sync.WaitGroup
		for range 4 {
			l := start(t, s, of(hybrid.PerSecond(50000).WithBurst(10000)))
			// when each offers half the rate for ten seconds,
			wg.Go(func() {
				for ms := range 10000 {
					for range 25 {
						if l.Allow("k") {
							admitted.Add(1)
						}
					}
					time.Sleep(time.Until(from.Add(time.Duration(ms+1) * time.Millisecond)))
				}
			})
		}
		wg.Wait()
		// then they are admitted what one bucket gives, but for the last lease.
		share := float64(admitted.Load()) / (10000 + 50000*10)
		check(t, share >= 0.9875 && share <= 1,
			"admitted %d of 510000, %.2f %%", admitted.Load(), 100*share)
	})
}

package hybrid_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// perTick asks n times in each tick for d, by the bubble's clock: request i of a tick is request tick*n+i of all.
func perTick(tick time.Duration, n int, d time.Duration, ask func(i int)) {
	i := 0
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(tick) {
		for range n {
			ask(i)
			i++
		}
	}
}

// One key of 100,000/s with the least burst that keeps the Target: 5,000 admissions and more for each round trip.
func TestABusyKeyAdmitsThousandsPerRoundTrip(t *testing.T) {
	const perSecond, burst, goal = 100_000, 40_000, 5_000
	for _, load := range []float64{0.5, 1} {
		bubbleOf(t, fmt.Sprintf("load %v", load), func(t *testing.T, s *faultyStore) {
			// Given a store a millisecond away, and a key whose demand is known,
			s.every(verdict{delay: time.Millisecond})
			l := start(t, s, hybrid.Config{
				Limits: limits(hybrid.PerSecond(perSecond).WithBurst(burst)),
				Policy: hybrid.Policy{Target: 100 * time.Millisecond},
			})
			key := l.Key("k")
			ask := func(int) { key.Allow() }
			n := int(load * perSecond / 10_000)
			perTick(100*time.Microsecond, n, 2*time.Second, ask)
			// when it is asked for three seconds more,
			before := l.Stats()
			perTick(100*time.Microsecond, n, 3*time.Second, ask)
			// then each round trip brings thousands of tokens that are spent.
			after := l.Stats()
			admitted, trips := after.Admitted-before.Admitted, after.RoundTrips-before.RoundTrips
			check(t, float64(admitted) >= 0.99*load*perSecond*3, "only %d admitted", admitted)
			want := int64(goal * load)
			check(t, admitted >= want*trips,
				"%d admitted in %d round trips, want %d in each", admitted, trips, want)
		})
	}
}

// However many keys are in use, a thousand pipelines a second carry their calls: ten times the keys make ten times the
// calls, and the bound stays.
func TestPipelinesDoNotGrowWithTheNumberOfKeys(t *testing.T) {
	const perSecond, bound = 100, 1001 // one a millisecond, and a second has 1,001 edges
	const apart = 7919                 // neighbours come into use that far apart: a prime, so each key once
	for _, keys := range []int{1_000, 10_000} {
		bubbleOf(t, fmt.Sprint(keys), func(t *testing.T, s *faultyStore) {
			// Given a store a millisecond away, and keys that are asked 100 times a second and came into use one after
			// the other, so that no two are due together,
			s.every(verdict{delay: time.Millisecond})
			l := start(t, s, hybrid.Config{
				Limits: limits(hybrid.PerSecond(perSecond).WithBurst(4 * perSecond)),
				Policy: hybrid.Policy{Target: time.Second},
			})
			all := make([]*hybrid.Key, keys)
			for i := range all {
				all[i] = l.Key(fmt.Sprint(i))
			}
			const tick = 100 * time.Microsecond
			n := keys * perSecond / int(time.Second/tick)
			perTick(tick, n, time.Second, func(i int) {
				if k := i % keys; k*apart%keys <= i/perSecond {
					all[k].TryAllow()
				}
			})
			ask := func(i int) { all[i%keys].TryAllow() }
			perTick(tick, n, time.Second, ask)
			// when a second passes,
			before, callsBefore := s.counts()
			perTick(tick, n, time.Second, ask)
			// then all their calls travel in a bounded number of pipelines.
			after, callsAfter := s.counts()
			batches, calls := after-before, callsAfter-callsBefore
			check(t, calls >= keys/2,
				"%d calls for %d keys in use: this is not about renewals", calls, keys)
			check(t, calls <= 2*keys,
				"%d calls for %d keys in a Target, want two each at most", calls, keys)
			check(t, batches <= bound,
				"%d pipelines in a second, want %d at most", batches, bound)
		})
	}
}

// A denied request costs no round trip: what an empty bucket costs is set by the delay that it gave, however often it is
// asked.
func TestDeniedRequestsCostNoRoundTrips(t *testing.T) {
	const target = 100 * time.Millisecond
	for _, c := range []struct {
		limit hybrid.Limit
		every time.Duration // between two calls, at least
	}{
		{hybrid.PerHour(1), 300 * time.Millisecond}, // three quarters of a TTL, in case the limits were changed
		{hybrid.PerSecond(1000), target / 2},        // the delay after a shortfall
	} {
		bubbleOf(t, c.limit.String(), func(t *testing.T, s *faultyStore) {
			// Given a key whose bucket is empty,
			s.every(verdict{delay: time.Millisecond})
			l := start(t, s, hybrid.Config{Limits: limits(c.limit), Policy: hybrid.Policy{Target: target}})
			key := l.Key("k")
			for key.Allow() {
			}
			// when it is asked a million times at one moment,
			const requests = 1_000_000
			_, before := s.counts()
			for range requests / 2 {
				key.TryAllow()
				key.Allow()
			}
			// then nothing is sent,
			synctest.Wait()
			if _, after := s.counts(); after > before {
				t.Errorf("%d calls for a million requests at one moment", after-before)
			}
			// and when it is asked a million times in ten seconds,
			const tick, d = time.Millisecond, 10 * time.Second
			_, before = s.counts()
			perTick(tick, int(requests*tick/d), d, func(int) { key.TryAllow() })
			// then no call goes out but when the delay ends.
			_, after := s.counts()
			most := int(d/c.every) + 1
			check(t, after-before <= most,
				"%d calls in %v, want %d at most", after-before, d, most)
		})
	}
}

// Where the burst is small beside the round trip nothing is leased ahead. Requests that do not wait then get what the bucket
// has all the same: a call asks for as many as were refused, not for one.
func TestTryAllowIsServedThoughTheBurstIsSmallBesideTheRoundTrip(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		// Given 260 ms to the store, in which a limit of 1,000/s makes more than a quarter of its burst,
		s.every(verdict{delay: 260 * time.Millisecond})
		limit := hybrid.PerSecond(1000)
		l := start(t, s, hybrid.Config{Limits: limits(limit), CallTimeout: time.Second, Policy: hybrid.Policy{ColdStart: hybrid.ColdStartDeny}})
		bound := newMeter(limit)
		// when twice the limit is asked for, without waiting,
		ask := func(span time.Duration) (admitted int) {
			for range int(span / (500 * time.Microsecond)) {
				if l.TryAllow("k") {
					bound.admit(1)
					admitted++
				}
				time.Sleep(500 * time.Microsecond)
			}
			return admitted
		}
		ask(3 * time.Second)
		// then most of the limit is admitted.
		got := ask(10 * time.Second)
		check(t, got >= 7500, "%d of 10,000 admitted; %+v", got, l.Stats())
		bound.check(t)
	})
}

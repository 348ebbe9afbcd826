package yuzhi_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
)

// pace calls ask(0), ask(1), ... at so many a second for d, a few at a time as a timer allows, and returns how many it
// came to: fewer than it should on a machine that is too slow.
func pace(perSecond float64, d time.Duration, ask func(i int)) (asked int) {
	const tick = 200 * time.Microsecond
	for from := time.Now(); ; time.Sleep(tick) {
		spent := time.Since(from)
		if spent >= d {
			return asked
		}
		for due := int(perSecond * spent.Seconds()); asked < due; asked++ {
			ask(asked)
		}
	}
}

// window is what a Limiter did in a while.
type window struct {
	hybrid.Stats
	asked int
	took  time.Duration
}

// watch is what l does while it is asked at a pace.
func watch(l *hybrid.Limiter, perSecond float64, d time.Duration, ask func(i int)) window {
	before, from := l.Stats(), time.Now()
	w := window{asked: pace(perSecond, d, ask), took: time.Since(from)}
	w.Stats = l.Stats()
	w.Admitted -= before.Admitted
	w.RoundTrips -= before.RoundTrips
	w.Calls -= before.Calls
	return w
}

func (w window) perSecond(n int64) float64 { return float64(n) / w.took.Seconds() }

// One key is asked 100,000 times a second, which is its limit, with the least burst for which the Target is not
// reduced. The reference is the goal of 5,000 admissions a round trip.
func BenchmarkRoundTripsOfOneKey(b *testing.B) {
	const (
		perSecond = 100_000
		burst     = 40_000
		goal      = 5_000
	)
	l, _ := onRedis(b, redistest.Start(b).Addr, hybrid.Config{
		Limits: []hybrid.Limit{hybrid.PerSecond(perSecond).WithBurst(burst)},
		Policy: hybrid.Policy{Target: 100 * time.Millisecond},
	})
	key := l.Key("k")
	ask := func(int) { key.Allow() }
	pace(perSecond, span(time.Second), ask) // the demand becomes known
	w := watch(l, perSecond, span(2*time.Second), ask)
	perRoundTrip := float64(w.Admitted) / float64(max(1, w.RoundTrips))
	b.ReportMetric(perRoundTrip, "admitted/roundtrip")
	b.ReportMetric(perRoundTrip/goal, "ratio")
	b.ReportMetric(w.perSecond(w.RoundTrips), "roundtrips/s")
	b.ReportMetric(w.perSecond(int64(w.asked)), "requests/s")
	b.ReportMetric(float64(w.Admitted)/float64(w.asked), "admitted/request")
	b.ReportMetric(0, "ns/op")
}

// Many keys are asked 100 times a second each, which is their limit, one after the other; the same with a tenth of the
// keys is the reference: the ratio says how many times the pipelines are that ten times the keys cost. requests/s
// says whether the machine kept the pace.
func BenchmarkRoundTripsOfManyKeys(b *testing.B) {
	const keys = 10_000
	addr := redistest.Start(b).Addr
	few := manyKeys(b, addr, keys/10)
	many := manyKeys(b, addr, keys)
	b.ReportMetric(many.perSecond(many.RoundTrips), "pipelines/s")
	b.ReportMetric(few.perSecond(few.RoundTrips), "reference-pipelines/s")
	b.ReportMetric(many.perSecond(many.RoundTrips)/few.perSecond(few.RoundTrips), "ratio")
	b.ReportMetric(many.perSecond(many.Calls), "calls/s")
	b.ReportMetric(float64(many.Admitted)/float64(max(1, many.Calls)), "admitted/call")
	b.ReportMetric(many.perSecond(int64(many.asked)), "requests/s")
	b.ReportMetric(float64(many.Admitted)/float64(many.asked), "admitted/request")
	b.ReportMetric(0, "ns/op")
}

func manyKeys(b *testing.B, addr string, n int) window {
	b.Helper()
	const (
		perSecond = 100
		target    = time.Second
	)
	l, _ := onRedis(b, addr, hybrid.Config{
		Limits: []hybrid.Limit{hybrid.PerSecond(perSecond).WithBurst(4 * perSecond)},
		Policy: hybrid.Policy{Target: target},
		// A thousand scripts are one pipeline, and on a busy machine several are ahead of it.
		CallTimeout: time.Second,
	})
	keys := make([]*hybrid.Key, n)
	for i := range keys {
		keys[i] = l.Key(strconv.Itoa(n) + "/" + strconv.Itoa(i))
	}
	// One goroutine asks for all keys, so it may not wait for any of them. The keys come into use one after the other:
	// this is about the steady state, not about 10,000 first calls at one moment.
	const (
		warmUp = 2 * target
		apart  = 7919 // neighbours come into use that far apart: a prime, so each key once
	)
	pace(float64(n*perSecond), warmUp, func(i int) {
		if k := i % n; k*apart%n <= i/int(perSecond*warmUp.Seconds()) {
			keys[k].TryAllow()
		}
	})
	pace(float64(n*perSecond), target, func(i int) { keys[i%n].TryAllow() })
	w := watch(l, float64(n*perSecond), span(3*time.Second), func(i int) { keys[i%n].TryAllow() })
	// What is held goes back, so that the next Limiter does not share the server with this one's calls.
	ctx, cancel := context.WithTimeout(context.Background(), 10*target)
	defer cancel()
	_ = l.Shutdown(ctx) // what does not go back in time expires
	return w
}

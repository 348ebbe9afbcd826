package hybrid_test

import (
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// span is how long a benchmark on a real server measures. Such a benchmark is about a rate or a percentile
// over time, so it takes a time of its own and not b.N decisions; a sixteenth in a smoke run.
func span(full time.Duration) time.Duration {
	if smoke() {
		return full / 16
	}
	return full
}

// storeAt is a store on the server at addr.
func storeAt(b *testing.B, addr string) lease.Store {
	b.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	b.Cleanup(func() { rdb.Close() })
	store, err := redisbucket.New(rdb, redisbucket.Config{})
	testkit.NoErr(b, err)
	return store
}

// One goroutine asks 100,000 times a second for a key of 50,000/s, which so renews all the time, on
// a Redis beside it and behind a network that takes 200 ms. The reference is x/time/rate at the
// same limit, asked in the same loop right after. The ratio is that of the two p99.99.
func BenchmarkTryAllowLatency(b *testing.B) {
	b.Run("near", func(b *testing.B) { tryAllowLatency(b, redistest.Start(b).Addr) })
	b.Run("200ms", func(b *testing.B) {
		proxy := redistest.NewProxy(b, redistest.Start(b).Addr)
		proxy.Set(redistest.Fate{Delay: 200 * time.Millisecond})
		tryAllowLatency(b, proxy.Addr)
	})
}

func tryAllowLatency(b *testing.B, addr string) {
	const (
		perSecond = 50_000
		overload  = 2
		gap       = time.Second / (overload * perSecond)
		// burst is above 4 x rate x round trip, also where the first call takes two because the server
		// does not know the script. With less, every request would want a call of its own.
		burst = 100_000
		// warmUp is the time to spend the burst: the overload starts then.
		warmUp = time.Second * burst / ((overload - 1) * perSecond)
	)
	l := newLimiter(b, storeAt(b, addr), hybrid.Config{
		Limits:      []hybrid.Limit{hybrid.PerSecond(perSecond).WithBurst(burst)},
		Policy:      hybrid.Policy{Target: 100 * time.Millisecond},
		CallTimeout: 500 * time.Millisecond,
	})
	key := l.Key("k")
	reference := rate.NewLimiter(perSecond, burst)
	long := span(4 * time.Second)
	var own, other histogram
	var before hybrid.Stats
	for from, asked := time.Now(), time.Duration(0); asked < (warmUp+long)/gap; asked++ {
		for time.Since(from) < asked*gap {
			runtime.Gosched() // a sleep would be coarser than the gap
		}
		if asked == warmUp/gap {
			before = l.Stats()
		}
		start := time.Now()
		key.TryAllow()
		middle := time.Now()
		reference.Allow()
		end := time.Now()
		if asked >= warmUp/gap {
			own.add(middle.Sub(start))
			other.add(end.Sub(middle))
		}
	}
	after := l.Stats()
	percentiles := map[string]float64{"p50": 0.5, "p99": 0.99, "p99.99": 0.9999, "max": 1}
	own.report(b, "own", percentiles)
	other.report(b, "reference", percentiles)
	b.ReportMetric(float64(own.quantile(0.9999))/float64(other.quantile(0.9999)), "ratio")
	b.ReportMetric(float64(after.Calls-before.Calls)/long.Seconds(), "calls/s")
	b.ReportMetric(float64(after.Admitted-before.Admitted)/float64(long/gap), "admitted/request")
	b.ReportMetric(0, "ns/op")
}

// arrivals is a Store that notes when tokens last arrived.
type arrivals struct {
	lease.Store
	last atomic.Pointer[time.Time]
}

// Exchange implements lease.Store.
func (a *arrivals) Exchange(ctx context.Context, calls []*lease.Call, done func([]*lease.Call)) {
	a.Store.Exchange(ctx, calls, func(group []*lease.Call) {
		if slices.ContainsFunc(group, func(c *lease.Call) bool { return c.Grant.Granted > 0 }) {
			now := time.Now()
			a.last.Store(&now)
		}
		done(group)
	})
}

// 64 goroutines wait again and again for a key that grants 1,000 tokens a second, some 50 at a time. The
// latency is from the reply's return by the Store to that of Wait; a wait that found a token there does not
// count. The reference wakes as many goroutines as often through a channel, in turns with ours.
func BenchmarkWaitLatency(b *testing.B) {
	const (
		waiters   = 64
		perSecond = 1000
		turns     = 4
	)
	noting := &arrivals{Store: storeAt(b, redistest.Start(b).Addr)}
	key := newLimiter(b, noting, hybrid.Config{
		Limits: []hybrid.Limit{hybrid.PerSecond(perSecond)}, CallTimeout: time.Second,
	}).Key("k")
	for key.Allow() { // the burst
	}
	var own, other histogram
	for range turns {
		wakeByTokens(b, key, noting, waiters, span(time.Second), &own)
		wakeByChannels(waiters, perSecond, span(time.Second), &other)
	}
	testkit.Must(b, own.count() != 0, "no request waited")
	percentiles := map[string]float64{"p50": 0.5, "p99": 0.99, "max": 1}
	own.report(b, "own", percentiles)
	other.report(b, "reference", percentiles)
	b.ReportMetric(float64(own.quantile(0.99))/float64(other.quantile(0.99)), "ratio")
	b.ReportMetric(float64(own.count()), "waits")
	b.ReportMetric(0, "ns/op")
}

// crowd runs waiters goroutines, and adds up the latencies of each when the caller waits for them.
func crowd(waiters int, all *histogram, collect func(*histogram)) (wait func()) {
	each := make([]histogram, waiters)
	ended := together(waiters, func(i int) { collect(&each[i]) })
	return func() {
		ended()
		for i := range each {
			all.merge(&each[i])
		}
	}
}

func wakeByTokens(
	b *testing.B, key *hybrid.Key, noting *arrivals, waiters int, d time.Duration, all *histogram,
) {
	b.Helper()
	over := time.Now().Add(d)
	crowd(waiters, all, func(own *histogram) {
		for start := time.Now(); start.Before(over); start = time.Now() {
			if err := key.Wait(context.Background()); err != nil {
				b.Error(err)
				break
			}
			woke := time.Now()
			if last := noting.last.Load(); last != nil && last.After(start) {
				own.add(woke.Sub(*last))
			}
		}
	})()
}

// wakeByChannels is the reference: what the Go scheduler needs for the same crowd.
func wakeByChannels(waiters, perSecond int, d time.Duration, all *histogram) {
	const batch = 50
	wake := make(chan time.Time, waiters)
	woken := crowd(waiters, all, func(own *histogram) {
		for sent := range wake {
			own.add(time.Since(sent))
		}
	})
	for tokens := 0; tokens < int(d.Seconds()*float64(perSecond)); tokens += batch {
		time.Sleep(batch * time.Second / time.Duration(perSecond))
		now := time.Now()
		for range batch {
			wake <- now
		}
	}
	close(wake)
	woken()
}

// pace calls ask(0), ask(1), ... perSecond times a second for d, in bursts as the timer allows. It
// returns the number of calls, which is too small on a machine that is too slow.
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

// One key is asked 100,000 times a second, which is its limit, with the least burst for which the
// Target is not reduced. The reference is the goal of 5,000 admissions a round trip.
func BenchmarkRoundTripsOfOneKey(b *testing.B) {
	const (
		perSecond = 100_000
		burst     = 40_000
		goal      = 5_000
	)
	l := newLimiter(b, storeAt(b, redistest.Start(b).Addr), hybrid.Config{
		Limits: []hybrid.Limit{hybrid.PerSecond(perSecond).WithBurst(burst)},
		Policy: hybrid.Policy{Target: 100 * time.Millisecond},
	})
	key := l.Key("k")
	ask := func(int) { key.Allow() }
	pace(perSecond, span(time.Second), ask) // the demand becomes known
	before, from := l.Stats(), time.Now()
	asked := pace(perSecond, span(2*time.Second), ask)
	after, seconds := l.Stats(), time.Since(from).Seconds()
	admitted, roundTrips := float64(after.Admitted-before.Admitted), float64(after.RoundTrips-before.RoundTrips)
	perRoundTrip := admitted / max(1, roundTrips)
	b.ReportMetric(perRoundTrip, "admitted/roundtrip")
	b.ReportMetric(perRoundTrip/goal, "ratio")
	b.ReportMetric(roundTrips/seconds, "roundtrips/s")
	b.ReportMetric(float64(asked)/seconds, "requests/s")
	b.ReportMetric(admitted/float64(asked), "admitted/request")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkStart takes a Limiter from its constructor to the decision of its first request, on a client whose
// connection is open, to a server that knows the scripts. The reference is a limiter of redis_rate, in turns
// with ours, each on a client of its own.
//
//	go test ./hybrid -run '^$' -bench Start -benchtime 2000x -count 3
func BenchmarkStart(b *testing.B) {
	ctx := context.Background()
	addr := redistest.Start(b).Addr
	own := func(rdb *redis.Client) (end func()) {
		l, err := hybrid.Redis(rdb, "start", hybrid.PerSecond(1000))
		testkit.NoErr(b, err)
		testkit.Must(b, l.Key("k").Allow(), "denied")
		return func() { l.Close() }
	}
	peer := func(rdb *redis.Client) (end func()) {
		r, err := redis_rate.NewLimiter(rdb).Allow(ctx, "k", redis_rate.PerSecond(1_000_000))
		testkit.NoErr(b, err)
		testkit.Must(b, r.Allowed == 1, "denied")
		return func() {}
	}
	var took [2][]time.Duration
	var allocations [2]uint64
	for range b.N {
		for i, start := range []func(*redis.Client) func(){own, peer} {
			rdb := redis.NewClient(&redis.Options{Addr: addr})
			testkit.NoErr(b, rdb.Ping(ctx).Err())
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			began := time.Now()
			end := start(rdb)
			took[i] = append(took[i], time.Since(began))
			runtime.ReadMemStats(&after)
			allocations[i] += after.Mallocs - before.Mallocs
			end()
			rdb.Close()
		}
	}
	for i, name := range []string{"own", "redis_rate"} {
		slices.Sort(took[i])
		b.ReportMetric(float64(took[i][b.N/2].Microseconds()), name+"-us")
		b.ReportMetric(float64(allocations[i])/float64(b.N), name+"-allocs")
	}
	b.ReportMetric(float64(took[0][b.N/2])/float64(took[1][b.N/2]), "ratio")
	b.ReportMetric(0, "ns/op")
}

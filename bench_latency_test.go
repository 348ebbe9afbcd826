package yuzhi_test

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/lease"
)

// latencies are samples, kept whole: a few hundred thousand are a few megabytes, and sorted they are exact.
type latencies []time.Duration

// report sorts l and reports its percentiles under name, in microseconds.
func (l latencies) report(b *testing.B, name string, percentiles map[string]float64) {
	b.Helper()
	slices.Sort(l)
	for label, p := range percentiles {
		b.ReportMetric(l.quantile(p), name+"-"+label+"-us")
	}
}

// quantile is the p-th quantile of sorted samples, in microseconds.
func (l latencies) quantile(p float64) float64 {
	if len(l) == 0 {
		return 0
	}
	return float64(l[min(len(l)-1, int(p*float64(len(l))))]) / float64(time.Microsecond)
}

// One goroutine asks 100,000 times a second for a key of 50,000/s, which so renews all the time, on a Redis beside it and
// behind a network that takes 200 ms. The reference is x/time/rate at the same limit, asked in the same loop right
// after: what the machine does to one it does to the other, and the ratio is that of the two p99.99.
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
		// burst is above 4 x rate x round trip, also where the first call takes two (the server does not know the
		// script): with less, every request would want a call of its own, and a few tokens a second were admitted.
		burst = 100_000
		// warmUp is what it takes to spend the burst: from then on the overload is one.
		warmUp = time.Second * burst / ((overload - 1) * perSecond)
	)
	l, _ := onRedis(b, addr, hybrid.Config{
		Limits:      []hybrid.Limit{hybrid.PerSecond(perSecond).WithBurst(burst)},
		Policy:      hybrid.Policy{Target: 100 * time.Millisecond},
		CallTimeout: 500 * time.Millisecond,
	})
	key := l.Key("k")
	reference := rate.NewLimiter(perSecond, burst)
	long := span(4 * time.Second)
	own, other := make(latencies, 0, long/gap), make(latencies, 0, long/gap)
	var before hybrid.Stats
	for from, asked := time.Now(), time.Duration(0); len(own) < cap(own); asked++ {
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
			own, other = append(own, middle.Sub(start)), append(other, end.Sub(middle))
		}
	}
	after := l.Stats()
	percentiles := map[string]float64{"p50": 0.5, "p99": 0.99, "p99.99": 0.9999, "max": 1}
	own.report(b, "own", percentiles)
	other.report(b, "reference", percentiles)
	b.ReportMetric(own.quantile(0.9999)/other.quantile(0.9999), "ratio")
	b.ReportMetric(float64(after.Calls-before.Calls)/long.Seconds(), "calls/s")
	b.ReportMetric(float64(after.Admitted-before.Admitted)/float64(len(own)), "admitted/request")
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

// 64 goroutines wait again and again for a key that grants 1,000 tokens a second, some 50 at a time. The latency is that
// from the reply's return by the Store to that of WaitN; a wait that found a token there is not counted. The
// reference wakes as many goroutines as often through a channel, in turns with ours.
func BenchmarkWaitLatency(b *testing.B) {
	const (
		waiters   = 64
		perSecond = 1000
		turns     = 4
	)
	_, store := onRedis(b, redistest.Start(b).Addr, hybrid.Config{Limits: []hybrid.Limit{hybrid.PerSecond(perSecond)}})
	noting := &arrivals{Store: store}
	l := limiterOn(b, noting, hybrid.Config{Limits: []hybrid.Limit{hybrid.PerSecond(perSecond)}, CallTimeout: time.Second})
	for key := l.Key("k"); key.Allow(); { // the burst
	}
	var own, other latencies
	for range turns {
		own = append(own, wakeByTokens(b, l, noting, waiters, span(time.Second))...)
		other = append(other, wakeByChannels(waiters, perSecond, span(time.Second))...)
	}
	if len(own) == 0 {
		b.Fatal("nobody waited")
	}
	percentiles := map[string]float64{"p50": 0.5, "p99": 0.99, "max": 1}
	own.report(b, "own", percentiles)
	other.report(b, "reference", percentiles)
	b.ReportMetric(own.quantile(0.99)/other.quantile(0.99), "ratio")
	b.ReportMetric(float64(len(own)), "waits")
	b.ReportMetric(0, "ns/op")
}

func wakeByTokens(b *testing.B, l *hybrid.Limiter, noting *arrivals, waiters int, d time.Duration) latencies {
	b.Helper()
	each := make([]latencies, waiters)
	over := time.Now().Add(d)
	var wg sync.WaitGroup
	for i := range each {
		wg.Go(func() {
			for start := time.Now(); start.Before(over); start = time.Now() {
				if err := l.Wait(context.Background(), "k"); err != nil {
					b.Error(err)
					return
				}
				woke := time.Now()
				if last := noting.last.Load(); last != nil && last.After(start) {
					each[i] = append(each[i], woke.Sub(*last))
				}
			}
		})
	}
	wg.Wait()
	return slices.Concat(each...)
}

// wakeByChannels is the reference: what the Go scheduler needs for the same crowd.
func wakeByChannels(waiters, perSecond int, d time.Duration) latencies {
	const batch = 50
	wake := make(chan time.Time, waiters)
	each := make([]latencies, waiters)
	var wg sync.WaitGroup
	for i := range each {
		wg.Go(func() {
			for sent := range wake {
				each[i] = append(each[i], time.Since(sent))
			}
		})
	}
	for tokens := 0; tokens < int(d.Seconds()*float64(perSecond)); tokens += batch {
		time.Sleep(batch * time.Second / time.Duration(perSecond))
		now := time.Now()
		for range batch {
			wake <- now
		}
	}
	close(wake)
	wg.Wait()
	return slices.Concat(each...)
}

package live

import (
	"cmp"
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/stamps"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
)

const (
	// step is the shortest pause between requests: timers are precise to about a millisecond.
	step = time.Millisecond
	// lateMost is the time after the end of its load for which a process makes late requests.
	lateMost = time.Second
	// activeMost is the largest number of requests in flight in one process; servers have such a bound. With
	// more goroutines, a burst would keep the processor busy with starting them.
	activeMost = 1000
)

type request struct {
	slot int // slot in the file
	key  *hybrid.Key
	n    int64
}

// play makes each request of the process at its time. The load of all processes starts at began.
func (c *child) play(began time.Time) error {
	requests, err := sim.Requests(c.Scenario, c.Index)
	if err != nil {
		return err
	}
	w := cmp.Or(c.Scenario.Groups[0].Workload, &c.Scenario.Workload) // all groups have the same workload
	verb := (*hybrid.Key).AllowN
	if w.Verb == sim.VerbWait {
		verb = func(k *hybrid.Key, n int64) bool {
			ctx, cancel := context.WithTimeout(context.Background(), w.Deadline)
			defer cancel()
			return k.WaitN(ctx, n) == nil
		}
	}
	keys := map[int]*hybrid.Key{}
	var wg sync.WaitGroup
	defer wg.Wait()
	var due []request
	end := began.Add(c.Scenario.Duration)
	slot := 0
	for q := range requests {
		at := began.Add(q.At)
		if wait := time.Until(at); wait > 0 {
			c.makeAll(&wg, due, verb)
			due = nil
			if !c.sleep(max(wait, step)) {
				return nil
			}
		}
		if time.Until(end) < -lateMost {
			return nil
		}
		c.took.observe(lags, time.Since(at))
		if keys[q.Key] == nil {
			keys[q.Key] = c.limiter.Key(c.keyName(q.Key))
		}
		due = append(due, request{slot, keys[q.Key], q.Cost})
		slot++
	}
	c.makeAll(&wg, due, verb)
	c.sleep(time.Until(end)) // hold the lease until the end, as simulated processes do
	return nil
}

func (c *child) keyName(key int) string { return c.Key + "-" + strconv.Itoa(key) }

// sleep waits for d. sleep returns false as soon as the parent has ended the load.
func (c *child) sleep(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-c.ended:
		return false
	}
}

// makeAll makes all requests at once, without waiting for their answers. Each goroutine starts the next
// goroutine before its own request, so that a request that waits for a lease call does not delay other
// requests.
func (c *child) makeAll(wg *sync.WaitGroup, all []request, verb func(*hybrid.Key, int64) bool) {
	var taken atomic.Int64
	var worker func()
	worker = func() {
		if c.active.Add(1) < activeMost && int(taken.Load())+1 < len(all) {
			wg.Go(worker)
		}
		defer c.active.Add(-1)
		for i := int(taken.Add(1)) - 1; i < len(all); i = int(taken.Add(1)) - 1 {
			c.makeOne(all[i], verb)
		}
	}
	wg.Go(worker)
}

// makeOne makes one request and records it. In the file, a denial has a negative time before the call.
func (c *child) makeOne(q request, verb func(*hybrid.Key, int64) bool) bool {
	before := stamps.Now()
	ok := verb(q.key, q.n)
	if after := stamps.After(); ok {
		c.file.Put(q.slot, before, after)
	} else {
		c.file.Put(q.slot, -before, after)
	}
	c.file.Offered().Add(q.n)
	return ok
}

// attack makes only the requests that renew the lease. The function of hook.BeforeReport spends the held
// tokens. With a sliding window, all processes together request the limit just before and after each end of a
// window.
func (c *child) attack(began time.Time) {
	limit, target := c.limit(), c.leased().Target
	share := limit.Tokens/int64(len(c.weights())*workers) + 1
	end := began.Add(c.Scenario.Duration)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for last := turn(limit, began, began, target); time.Now().Before(end) && c.sleep(target/4); {
				c.try()
				if now := turn(limit, began, time.Now(), target); now != last {
					last = now
					for range share {
						c.try()
					}
				}
			}
		})
	}
	wg.Wait()
}

// try makes one request of an adversary, without waiting for a lease call.
func (c *child) try() bool {
	q := request{int(c.tried.Add(1)) - 1, c.limiter.Key(c.keyName(0)), 1}
	return c.makeOne(q, func(k *hybrid.Key, _ int64) bool { return k.TryAllow() })
}

// turn counts the moments half a Target before and after the ends of windows until now. A token bucket has no
// windows.
func turn(limit lease.Limit, began, now time.Time, target time.Duration) int64 {
	if !limit.Windowed() {
		return 0
	}
	since := now.Sub(began)
	return int64((since+target/2)/limit.Per + (since-target/2)/limit.Per)
}

// roundTrips and lags are the kinds of durations that latencies counts.
const (
	roundTrips = iota
	lags       // delays of requests after their due times
	kinds
)

// latencies has histograms of durations up to a minute, precise to 1 %. Goroutines may share a latencies
// value.
type latencies struct {
	mu sync.Mutex
	of [kinds]*hdrhistogram.Histogram
}

const longest = time.Minute

func newLatencies() *latencies {
	l := &latencies{}
	for i := range l.of {
		l.of[i] = hdrhistogram.New(1, int64(longest), 2)
	}
	return l
}

func (l *latencies) observe(kind int, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.of[kind].RecordValue(int64(min(max(took, 0), longest))) // min and max keep the value within the range
}

func (l *latencies) snapshots() (all []*hdrhistogram.Snapshot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.of {
		all = append(all, h.Export())
	}
	return all
}

func (l *latencies) merge(all []*hdrhistogram.Snapshot) {
	for i, s := range all {
		l.of[i].Merge(hdrhistogram.Import(s))
	}
}

// Quantiles has the median and the 99th percentile of durations in nanoseconds, or 0 without a duration.
type Quantiles struct {
	P50 int64 `json:"p50"`
	P99 int64 `json:"p99"`
}

func (l *latencies) quantiles(kind int) Quantiles {
	return Quantiles{P50: l.of[kind].ValueAtQuantile(50), P99: l.of[kind].ValueAtQuantile(99)}
}

// isOverloaded reports whether one request in a hundred was late by more than 10 ms, and by more than a tenth
// of the target.
func isOverloaded(late Quantiles, target time.Duration) bool {
	return time.Duration(late.P99) > max(10*time.Millisecond, target/10)
}

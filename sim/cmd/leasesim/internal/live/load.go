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
	// step is the shortest pause between two requests: timers are precise to about a millisecond.
	step = time.Millisecond
	// lateMost is how long after the end of its load a process still makes late requests.
	lateMost = time.Second
	// askersMost is the most requests of a process that wait at the same time, as in a server. Other requests
	// wait for an answer first, because a burst on a busy processor would keep it busy with waiting
	// goroutines.
	askersMost = 1000
)

type question struct {
	slot int // slot of the request in the file
	key  *hybrid.Key
	n    int64
}

// play makes each request of the process when it is due. began is the start of the load in all processes.
func (c *child) play(began time.Time) error {
	requests, err := sim.Requests(c.Scenario, c.Index)
	if err != nil {
		return err
	}
	w := cmp.Or(c.Scenario.Groups[0].Workload, &c.Scenario.Workload) // all groups have the same workload
	verb := func(k *hybrid.Key, n int64) bool {
		if n == 1 {
			return k.Allow()
		}
		return k.AllowN(n)
	}
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
	var due []question
	end := began.Add(c.Scenario.Duration)
	slot := 0
	for q := range requests {
		at := began.Add(q.At)
		if wait := time.Until(at); wait > 0 {
			c.crowd(&wg, due, verb)
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
		due = append(due, question{slot, keys[q.Key], q.Cost})
		slot++
	}
	c.crowd(&wg, due, verb)
	c.sleep(time.Until(end)) // keep the lease alive until the end, as simulated processes do
	return nil
}

func (c *child) keyName(key int) string {
	if c.Scenario.Keys.Count <= 1 {
		return c.Key
	}
	return c.Key + "-" + strconv.Itoa(key)
}

// sleep waits for d, and returns false if the load has ended.
func (c *child) sleep(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-c.ended:
		return false
	}
}

// crowd makes all requests at once. Each goroutine starts the next goroutine before its own request, up to
// askersMost, so that a request that waits for a lease call does not delay other requests.
func (c *child) crowd(wg *sync.WaitGroup, all []question, verb func(*hybrid.Key, int64) bool) {
	if len(all) == 0 {
		return
	}
	var taken atomic.Int64
	var asker func()
	asker = func() {
		if c.askers.Add(1) < askersMost && int(taken.Load())+1 < len(all) {
			wg.Go(asker)
		}
		defer c.askers.Add(-1)
		for i := int(taken.Add(1)) - 1; i < len(all); i = int(taken.Add(1)) - 1 {
			c.ask(all[i], verb)
		}
	}
	wg.Go(asker)
}

// ask makes one request and records it. An admission counts once the file has it. A denial has a negative
// start time in the file.
func (c *child) ask(q question, verb func(*hybrid.Key, int64) bool) bool {
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

// attack makes just enough requests to renew its lease; hook.BeforeReport spends the held tokens. For a
// window limit, all processes together request the whole limit just before and after each end of a window.
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

// try makes one request of an adversary, which never waits.
func (c *child) try() bool {
	q := question{int(c.tried.Add(1)) - 1, c.limiter.Key(c.Key), 1}
	return c.ask(q, func(k *hybrid.Key, _ int64) bool { return k.TryAllow() })
}

// turn counts the moments half a Target before and after each end of a window. A token bucket has no such
// moments.
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
	lags       // delays of requests
	kinds
)

// latencies counts round trips and delays of requests within 1 %, up to a minute. Goroutines may share a
// latencies value.
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
	_ = l.of[kind].RecordValue(int64(min(max(took, 0), longest))) // the value is in the histogram's range
}

// snapshots returns the counts that a process sends to its parent at the end, as JSON.
func (l *latencies) snapshots() (all []*hdrhistogram.Snapshot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.of {
		all = append(all, h.Export())
	}
	return all
}

// merge adds the counts of another process. A killed process sends no counts.
func (l *latencies) merge(all []*hdrhistogram.Snapshot) {
	for i, s := range all {
		l.of[i].Merge(hdrhistogram.Import(s))
	}
}

// Quantiles has quantiles of a duration in nanoseconds, as the caller saw it, or 0 without a sample.
type Quantiles struct {
	P50 int64 `json:"p50"`
	P99 int64 `json:"p99"`
}

func (l *latencies) quantiles(kind int) Quantiles {
	return Quantiles{P50: l.of[kind].ValueAtQuantile(50), P99: l.of[kind].ValueAtQuantile(99)}
}

// isOverloaded reports whether one request in a hundred was late by more than a tenth of a lease.
func isOverloaded(late Quantiles, target time.Duration) bool {
	return time.Duration(late.P99) > max(10*time.Millisecond, target/10)
}

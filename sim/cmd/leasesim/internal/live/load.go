package live

import (
	"cmp"
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/stamps"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
)

const (
	// step is the shortest pause between two requests: a timer is no more precise than about a millisecond.
	step = time.Millisecond
	// lateMost is how long after the end of its load a process makes the requests that it is late with.
	lateMost = time.Second
	// askersMost bounds how many requests of a process wait at one time, as a server would; the others
	// are made when one is answered. Without a bound, a burst that finds the processor busy would keep
	// it busy with goroutines that only wait.
	askersMost = 1000
)

// question is one request of a process.
type question struct {
	slot int // of the file
	key  *hybrid.Key
	n    int64
}

// play makes each request of the process when it is due. began is when the load begins, for all processes.
func (c *child) play(began time.Time) error {
	requests, err := sim.Requests(c.Scenario, c.Index)
	if err != nil {
		return err
	}
	w := cmp.Or(c.Scenario.Groups[0].Workload, &c.Scenario.Workload) // all groups ask alike
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
	c.sleep(time.Until(end)) // the simulated processes go on calling until the end, too
	return nil
}

func (c *child) keyName(key int) string {
	if c.Scenario.Keys.Count <= 1 {
		return c.Key
	}
	return c.Key + "-" + strconv.Itoa(key)
}

// sleep waits for d, and reports whether the load goes on.
func (c *child) sleep(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-c.ended:
		return false
	}
}

// crowd has users make requests at once. A request that waits for a lease call does not keep the others
// from being made: each goroutine that asks starts the next one first, up to askersMost of them, so
// that there is one to go on.
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

// ask makes one request and records it. An admission counts only after it is in the file, where a denial has
// a negative beginning.
func (c *child) ask(q question, verb func(*hybrid.Key, int64) bool) bool {
	before, began := stamps.Now(), stopwatch()
	ok := verb(q.key, q.n)
	took := stopwatch() - began
	if after := stamps.After(); ok {
		c.file.Put(q.slot, before, after)
	} else {
		c.file.Put(q.slot, -before, after)
	}
	c.file.Offered().Add(q.n)
	c.took.observe(decisions, took)
	return ok
}

// attack asks just often enough that its lease is renewed; hook.BeforeReport spends what it holds. Where the
// limit is a window, all processes together also ask for all of it, just before and just after each moment at
// which one ends.
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

// try makes a request of an adversary, which never waits.
func (c *child) try() bool {
	q := question{int(c.tried.Add(1)) - 1, c.limiter.Key(c.Key), 1}
	return c.ask(q, func(k *hybrid.Key, _ int64) bool { return k.TryAllow() })
}

// turn counts the moments at half a target before and after each end of a window or a period. There
// are none where the limit is a bucket.
func turn(limit lease.Limit, began, now time.Time, target time.Duration) int64 {
	if !limit.Windowed() {
		return 0
	}
	since := now.Sub(began)
	if limit.Kind == lease.KindCalendar {
		since = time.Duration(now.UnixNano()) - limit.Offset
	}
	return int64((since+target/2)/limit.Per + (since-target/2)/limit.Per)
}

package live

import (
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
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
	// step is how often the steady load wakes: a timer is no more precise than about a millisecond.
	step = time.Millisecond
	// backlogMax bounds how much of the load that it missed a process makes up for after a stop.
	backlogMax = 50 * time.Millisecond
	// askersMax bounds how many requests of a process wait at one time, as a server would; the others
	// are made when one is answered. Without a bound, a burst that finds the processor busy would keep
	// it busy with goroutines that only wait.
	askersMax = 1000
)

// offer runs the load for the whole duration, until its last request is answered.
func (c *child) offer() {
	rate := c.Options.Offered * c.limit.Rate() / float64(c.Options.Processes) / workers
	end := time.Now().Add(c.Options.Duration)
	phase := rand.Float64()
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			switch c.Options.Shape {
			case ShapeBursts:
				c.bursts(&wg, rate, end)
			case ShapeAdversary:
				c.adversary(end)
			default:
				// Each process starts at a random phase, and its workers divide the time between two
				// requests evenly, so that a slow load does not come from all at once.
				own := phase + float64(i)/workers
				c.pace(&wg, rate, own-math.Floor(own), end)
			}
		})
	}
	wg.Wait()
}

// before reports whether t is before end, and the load has not been ended.
func (c *child) before(t, end time.Time) bool { return t.Before(end) && !c.ended.Load() }

// pace asks rate times a second until end, as evenly as the timer allows; but a steady load on a
// window is Poisson's, as of many users. due is the fraction of a request that is due at the
// beginning; pace returns the fraction that is left at the end.
func (c *child) pace(wg *sync.WaitGroup, rate, due float64, end time.Time) float64 {
	gap := func() float64 { return 1 }
	if c.limit.Windowed() && c.Options.Shape == ShapeSteady {
		gap = rand.ExpFloat64
	}
	for last, next := time.Now(), gap(); c.before(last, end); {
		time.Sleep(step)
		now := time.Now()
		if now.After(end) {
			now = end
		}
		c.took.observe(lags, now.Sub(last)-step)
		due += rate * min(now.Sub(last), backlogMax).Seconds()
		last = now
		asks := int64(0)
		for ; due >= next; asks++ {
			due -= next
			next = gap()
		}
		c.crowd(wg, asks)
	}
	return due
}

// bursts asks for a whole period's load at once, or within Options.Within. Bursts begin when the
// wall clock shows a multiple of the period, which is the same moment in every process.
func (c *child) bursts(wg *sync.WaitGroup, rate float64, end time.Time) {
	due := 0.0
	for {
		next := time.Now().Truncate(period).Add(period)
		if !c.before(next, end) {
			return
		}
		time.Sleep(time.Until(next))
		c.took.observe(lags, time.Since(next))
		if within := c.Options.Within; within > 0 {
			due = c.pace(wg, rate*period.Seconds()/within.Seconds(), due, time.Now().Add(within))
			continue
		}
		for due += rate * period.Seconds(); due >= 1 && c.before(time.Now(), end); due-- {
			c.ask(c.key.Allow)
		}
	}
}

// crowd has n users ask at once. A request that waits for a lease call does not keep the others
// from being made: each goroutine that asks starts the next one first, up to askersMax of them, so
// that there is one to go on.
func (c *child) crowd(wg *sync.WaitGroup, n int64) {
	if n < 1 {
		return
	}
	var left atomic.Int64
	left.Store(n)
	var asker func()
	asker = func() {
		if c.askers.Add(1) < askersMax && left.Load() > 1 {
			wg.Go(asker)
		}
		defer c.askers.Add(-1)
		for left.Add(-1) >= 0 {
			c.ask(c.key.Allow)
		}
	}
	wg.Go(asker)
}

// adversary asks just often enough that its lease is renewed; hook.BeforeReport spends what it
// holds. Where the limit is a window, all processes together also ask for all of it, just before
// and just after each moment at which one ends.
func (c *child) adversary(end time.Time) {
	target, began := c.Options.leased().Target, time.Now()
	share := c.limit.Tokens/int64(c.Options.Processes*workers) + 1
	for turn := c.turn(began, began, target); c.before(time.Now(), end); {
		time.Sleep(target / 4)
		c.ask(c.key.TryAllow)
		if now := c.turn(began, time.Now(), target); now != turn {
			turn = now
			for range share {
				c.ask(c.key.TryAllow)
			}
		}
	}
}

// turn counts the moments at half a target before and after each end of a window or a period. There
// are none where the limit is a bucket.
func (c *child) turn(began, now time.Time, target time.Duration) int64 {
	if !c.limit.Windowed() {
		return 0
	}
	since := now.Sub(began)
	if c.limit.Kind == lease.KindCalendar {
		since = time.Duration(now.UnixNano()) - c.limit.Offset
	}
	return int64((since+target/2)/c.limit.Per + (since-target/2)/c.limit.Per)
}

// tracePath returns the file of requests that belongs to a file of admissions.
func tracePath(path string) string { return path + "-trace" }

// parts are the trace's requests by process, as the simulator divides them.
func (o Options) parts() [][]sim.TraceRequest {
	parts := make([][]sim.TraceRequest, o.Processes)
	for _, q := range o.Trace {
		if q.At < o.Duration {
			i := q.Process % o.Processes
			parts[i] = append(parts[i], sim.TraceRequest{At: q.At, Key: q.Key % o.Keys, Cost: q.Cost})
		}
	}
	return parts
}

// writeTrace leaves a process its part.
func writeTrace(path string, part []sim.TraceRequest) error {
	text, err := json.Marshal(part)
	if err != nil {
		return err
	}
	return os.WriteFile(tracePath(path), text, 0o600)
}

// play makes each request of the process's part of the trace when it is due.
func (c *child) play() error {
	text, err := os.ReadFile(tracePath(c.Path))
	var part []sim.TraceRequest
	if err == nil {
		err = json.Unmarshal(text, &part)
	}
	if err != nil {
		return err
	}
	keys := make([]*hybrid.Key, c.Options.Keys)
	for _, q := range part {
		if keys[q.Key] == nil {
			keys[q.Key] = c.limiter.Key(c.Options.Key + "-" + strconv.Itoa(q.Key))
		}
	}
	var wg sync.WaitGroup
	began := time.Now().Truncate(period).Add(period) // the same moment in every process, see align
	for i, q := range part {
		due := began.Add(q.At)
		time.Sleep(time.Until(due))
		if c.ended.Load() {
			break
		}
		c.took.observe(lags, time.Since(due))
		wg.Go(func() {
			before, asked := stamps.Now(), stopwatch()
			if c.asks(keys[q.Key], q.Cost) {
				c.file.Put(i, before, stamps.After())
			}
			c.file.Offered().Add(q.Cost)
			c.took.observe(decisions, stopwatch()-asked)
		})
	}
	wg.Wait()
	// The simulated processes go on calling until the end, too.
	for end := began.Add(c.Options.Duration); c.before(time.Now(), end); {
		time.Sleep(min(time.Until(end), 10*time.Millisecond))
	}
	return nil
}

// asks makes a request for n tokens, and reports whether it was admitted.
func (c *child) asks(key *hybrid.Key, n int64) bool {
	if c.Options.Deadline == 0 {
		return key.AllowN(n)
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.Options.Deadline)
	defer cancel()
	return key.WaitN(ctx, n) == nil
}

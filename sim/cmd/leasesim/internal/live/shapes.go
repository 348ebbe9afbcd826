package live

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// workers share a process's load, so that its pool is contended as in a service.
	workers = 2
	// step is how often the steady load wakes: a timer is no more precise than about a millisecond.
	step = time.Millisecond
	// period is from one burst to the next.
	period = 500 * time.Millisecond
	// backlogMax bounds how much of the load that it missed a process makes up for after a stop.
	backlogMax = 50 * time.Millisecond
	// askersMax bounds how many requests of a process wait at one time, as a server would; the others
	// are made when one is answered. Without a bound, a burst that finds the processor busy would keep
	// it busy with goroutines that only wait.
	askersMax = 1000
)

// offer runs the load for the whole duration, until its last request is answered.
func (c *child) offer() {
	rate := c.Options.Offered * float64(c.Options.Rate) / float64(c.Options.Processes) / workers
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

// pace asks rate times a second until end, as evenly as the timer allows. due is the fraction of a
// request that is due at the beginning; pace returns the fraction that is left at the end.
func (c *child) pace(wg *sync.WaitGroup, rate, due float64, end time.Time) float64 {
	for last := time.Now(); last.Before(end); {
		time.Sleep(step)
		now := time.Now()
		if now.After(end) {
			now = end
		}
		due += rate * min(now.Sub(last), backlogMax).Seconds()
		last = now
		c.crowd(wg, int64(due))
		due -= math.Floor(due)
	}
	return due
}

// bursts asks for a whole period's load at once, or within Options.Within. Bursts begin when the
// wall clock shows a multiple of the period, which is the same moment in every process.
func (c *child) bursts(wg *sync.WaitGroup, rate float64, end time.Time) {
	due := 0.0
	for {
		next := time.Now().Truncate(period).Add(period)
		if !next.Before(end) {
			return
		}
		time.Sleep(time.Until(next))
		if within := c.Options.Within; within > 0 {
			due = c.pace(wg, rate*period.Seconds()/within.Seconds(), due, time.Now().Add(within))
			continue
		}
		for due += rate * period.Seconds(); due >= 1 && time.Now().Before(end); due-- {
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

// adversary asks just often enough that its lease is renewed; Events.BeforeReport spends what it
// holds.
func (c *child) adversary(end time.Time) {
	for time.Now().Before(end) {
		time.Sleep(c.Options.target() / 4)
		c.ask(c.key.TryAllow)
	}
}

package live

import (
	"sync"
	"time"
)

const (
	// workers share a process's load, so that its pool is contended as in a service.
	workers = 2
	// step is how often the steady load wakes: a timer is no more precise than about a millisecond.
	step = time.Millisecond
	// period is from one burst to the next.
	period = 500 * time.Millisecond
	// backlogMax is how much of the load that a stopped process missed it makes up for.
	backlogMax = 50 * time.Millisecond
)

// offer runs the load for the whole duration.
func (c *child) offer() {
	rate := c.Options.Offered * float64(c.Options.Rate) / float64(c.Options.Processes) / workers
	end := time.Now().Add(c.Options.Duration)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			switch c.Options.Shape {
			case ShapeBursts:
				c.bursts(rate, end)
			case ShapeAdversary:
				c.adversary(end)
			default:
				c.steady(rate, end)
			}
		})
	}
	wg.Wait()
}

// steady asks rate times a second, evenly but for the timer's grain.
func (c *child) steady(rate float64, end time.Time) {
	if rate <= 0 {
		return
	}
	due := 0.0
	last := time.Now()
	for last.Before(end) {
		time.Sleep(step)
		now := time.Now()
		due += rate * min(now.Sub(last), backlogMax).Seconds()
		last = now
		for ; due >= 1 && time.Now().Before(end); due-- {
			c.ask(c.key.Allow)
		}
	}
}

// bursts asks for a whole period's load at once, at the moments that are multiples of the period on the wall
// clock and so the same in every process.
func (c *child) bursts(rate float64, end time.Time) {
	due := 0.0
	for {
		next := time.Now().Truncate(period).Add(period)
		if !next.Before(end) {
			return
		}
		time.Sleep(time.Until(next))
		for due += rate * period.Seconds(); due >= 1 && time.Now().Before(end); due-- {
			c.ask(c.key.Allow)
		}
	}
}

// adversary asks just often enough that leases are renewed; its Events.BeforeReport spends them.
func (c *child) adversary(end time.Time) {
	for time.Now().Before(end) {
		time.Sleep(c.Options.target() / 4)
		c.ask(c.key.TryAllow)
	}
}

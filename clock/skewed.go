package clock

import (
	"sync"
	"time"
)

// Skewed is a clock that is wrong in a known way: it shows another clock, its base, plus an offset
// that can change at run time. An offset moves readings and never a timer, as a machine's timers do
// not move when an operator or NTP sets its clock.
//
// Readings more than 292 years off stop at the end of the scale; one that would be zero or less is
// 1. Any number of goroutines may share a Skewed. Make one with NewSkewed.
type Skewed struct {
	base Clock

	mu     sync.Mutex
	offset time.Duration
}

// NewSkewed returns a clock that shows base plus offset.
func NewSkewed(base Clock, offset time.Duration) *Skewed {
	return &Skewed{base: base, offset: offset}
}

// Now returns what the wrong clock shows. It goes back only where Step takes it back.
func (c *Skewed) Now() Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(1, c.base.Now().Add(c.offset))
}

// Step sets the clock by hand: every reading from now on is d later, or earlier if d is negative.
func (c *Skewed) Step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset = time.Duration(Instant(c.offset).Add(d))
}

// AfterFunc calls f after d by the base. f runs where base runs its callbacks.
func (c *Skewed) AfterFunc(d time.Duration, f func()) Timer { return c.base.AfterFunc(d, f) }

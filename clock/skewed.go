package clock

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

// million is how many parts DriftPPM counts in.
const million = 1_000_000

// Skew says how a clock is wrong. The zero Skew is a clock that is right. It is a plain value.
type Skew struct {
	// Offset is added to every reading; negative makes the clock late. It does not change how long
	// anything lasts.
	Offset time.Duration

	// DriftPPM is how many microseconds the clock gains in each second of its base; negative makes it
	// slow. A quartz crystal is within 100 either way. It must lie strictly between -1,000,000 (a
	// clock that stands still) and 1,000,000 (one that runs at double speed).
	DriftPPM int64
}

// Skewed is a clock that is wrong in a known way: it sees another clock, its base, through an
// offset and a drift that can change at run time.
//
// It has two parts, as a real machine's clock has. An oscillator ticks at the rate that the drift
// gives; it alone decides when timers fire. A display shows the ticks plus the offset plus all
// steps; Now reads it alone. So an offset or a step moves readings and never a timer, while a change
// of drift moves both, from then on.
//
// The ticks are the exact sum, rounded down once to a nanosecond. Readings more than 292 years off
// stop at the end of the scale; one that would be zero or less is 1. Any number of goroutines may
// share a Skewed. Make one with NewSkewed.
type Skewed struct {
	base  Clock
	start Instant // the base's reading when this clock was made

	mu    sync.Mutex
	skew  Skew
	shift time.Duration // offset and steps: reading = start + ticks + shift
	at    Instant       // the base's reading when ticks was last brought up to date
	ticks Instant       // what the oscillator has counted by then
	part  int64         // and the part of the next tick, in millionths: [0, million)
	queue queue         // due at a count of ticks
}

// NewSkewed returns a clock that shows base plus s.Offset now and drifts away from there. It panics
// if s.DriftPPM is out of range. A base that goes back is taken to have stood still.
func NewSkewed(base Clock, s Skew) *Skewed {
	s.check()
	now := base.Now()
	return &Skewed{base: base, start: now, skew: s, shift: s.Offset, at: now}
}

func (s Skew) check() {
	if s.DriftPPM <= -million || s.DriftPPM >= million {
		panic(fmt.Sprintf("clock: DriftPPM %d is not between -%d and %d", s.DriftPPM, million, million))
	}
}

// Now returns what the wrong clock shows. It goes back only where Step or Set takes it back.
func (c *Skewed) Now() Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tickLocked()
	return max(1, c.start.Add(time.Duration(c.ticks)).Add(c.shift))
}

// Step sets the clock by hand: every reading from now on is d later, or earlier if d is negative.
// Pending timers do not move, as a machine's do not when an operator or NTP sets its clock.
func (c *Skewed) Step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shift = saturate(c.shift, d)
}

// Set replaces the skew from now on. The gain so far and past steps stay; pending timers follow the
// new rate for the rest of their time. The reading jumps at once by the difference
// of the offsets. It panics if s.DriftPPM is out of range.
func (c *Skewed) Set(s Skew) {
	s.check()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tickLocked()
	c.shift = saturate(c.shift, Instant(s.Offset).Sub(Instant(c.skew.Offset)))
	rateChanged := s.DriftPPM != c.skew.DriftPPM
	c.skew = s
	if !rateChanged {
		return
	}
	// Timers that are due together go on firing in the order in which they were set.
	bySeq := func(a, b *call) int { return cmp.Compare(a.seq, b.seq) }
	for _, next := range slices.SortedFunc(slices.Values(c.queue.calls), bySeq) {
		next.onBase.Reset(c.baseTimeLocked(next.due))
	}
}

// AfterFunc calls f after d by this clock's own oscillator: on a clock that gains, sooner by its
// base. f runs where base runs its callbacks. It panics if f is nil.
func (c *Skewed) AfterFunc(d time.Duration, f func()) Timer {
	t := &skewedTimer{clock: c, call: newCall(f)}
	c.mu.Lock()
	defer c.mu.Unlock()
	t.onBase = c.base.AfterFunc(t.scheduleLocked(d), t.fire)
	return t
}

// tickLocked brings the count of ticks up to date.
func (c *Skewed) tickLocked() {
	now := c.base.Now()
	e := now.Sub(c.at)
	c.at = now
	if e <= 0 {
		return
	}
	// The gain is e*ppm/million. Splitting e keeps both products small: the first is at most e, the
	// second at most million*million.
	gain := int64(e/million) * c.skew.DriftPPM
	rest := int64(e%million)*c.skew.DriftPPM + c.part
	whole := floorDiv(rest, million)
	gain += whole
	c.part = rest - whole*million
	c.ticks = c.ticks.Add(saturate(e, time.Duration(gain)))
}

// baseTimeLocked returns the shortest time of the base in which the oscillator, at its present
// rate, comes to due. tickLocked has been called.
func (c *Skewed) baseTimeLocked(due Instant) time.Duration {
	ticks := int64(due.Sub(c.ticks))
	if ticks <= 0 {
		return 0
	}
	// In millionths of a tick: part + x*rate >= ticks*million, for the least x. With ticks = q*rate +
	// r this is q*million and a rest that cannot overflow.
	rate := million + c.skew.DriftPPM
	q, r := ticks/rate, ticks%rate
	if q > math.MaxInt64/million {
		return math.MaxInt64
	}
	rest := -floorDiv(c.part-r*million, rate) // rounded up
	return saturate(time.Duration(q*million), time.Duration(rest))
}

// saturate adds two durations and stops at the longest or shortest there is.
func saturate(a, b time.Duration) time.Duration { return time.Duration(Instant(a).Add(b)) }

// floorDiv divides and rounds down, also below zero where Go's / rounds up. b is above zero.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// skewedTimer is a call that is due at a count of its clock's ticks, whatever the rate at which
// these come. A timer of the base stands for it and is moved when the rate changes.
type skewedTimer struct {
	clock *Skewed
	call
}

// scheduleLocked makes t due d from now and returns how long that is by the base.
func (t *skewedTimer) scheduleLocked(d time.Duration) time.Duration {
	t.clock.tickLocked()
	t.clock.queue.add(&t.call, t.clock.ticks.Add(max(d, 0)))
	return t.clock.baseTimeLocked(t.due)
}

// Stop implements Timer.
func (t *skewedTimer) Stop() bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	t.onBase.Stop()
	return t.clock.queue.remove(&t.call)
}

// Reset implements Timer.
func (t *skewedTimer) Reset(d time.Duration) bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	was := t.clock.queue.remove(&t.call)
	t.onBase.Reset(t.scheduleLocked(d))
	return was
}

// fire runs when the base's timer does. By the time it has the lock, the timer may have been stopped,
// or put off by a Reset or a lower rate. So the count of ticks decides, and not the base's call.
func (t *skewedTimer) fire() {
	if t.takeIfDue() {
		t.f()
	}
}

func (t *skewedTimer) takeIfDue() bool {
	c := t.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.index == notPending {
		return false
	}
	c.tickLocked()
	if c.ticks < t.due {
		t.onBase.Reset(c.baseTimeLocked(t.due))
		return false
	}
	return c.queue.remove(&t.call)
}

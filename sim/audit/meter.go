package audit

import (
	"fmt"
	"math"
	"math/bits"
)

// A Meter audits admissions as they happen, when each moment is known exactly: in a simulator, or
// behind one lock. It keeps a leaky bucket
//
//	X = max(0, X - R*dt) + n
//
// and the highest X it has seen. X after an admission is the largest count - R*(e-s) over all
// windows that end there (unrolling the recursion gives a sum from the last moment it was empty),
// so the promise (1) holds for every window if and only if X never exceeds Burst + Overcommit.
//
// X is an exact 128-bit integer in units of 1/Per tokens. Make one with NewMeter. One goroutine at
// a time.
type Meter struct {
	bound   Bound
	rate    rate
	last    int64 // when level was brought up to date
	level   uint128
	peak    uint128
	started bool
}

type uint128 struct{ hi, lo uint64 }

func (a uint128) less(b uint128) bool { return a.hi < b.hi || a.hi == b.hi && a.lo < b.lo }

// NewMeter returns a Meter that has seen nothing. It panics if b.Validate fails.
func NewMeter(b Bound) *Meter {
	if err := b.Validate(); err != nil {
		panic(err)
	}
	return &Meter{bound: b, rate: b.rate()}
}

// Admit records that n tokens were admitted at a moment in nanoseconds, on any one clock. It panics
// if n is negative or at lies before an earlier call's: an audit of a record in disorder would mean
// nothing.
func (m *Meter) Admit(at, n int64) {
	if n < 0 || m.rate.nanos == 0 || m.started && at < m.last {
		m.misused(at, n)
	}
	if n == 0 {
		return
	}
	// Two's complement makes the difference right for any two times in order. Before the first
	// admission the level is zero and time has no effect.
	hi, lo := bits.Mul64(m.rate.tokens, uint64(at)-uint64(m.last))
	m.drain(uint128{hi, lo})
	m.started, m.last = true, at

	// A carry out of 128 bits goes unused: one admission adds less than 2^126, so a level that is
	// about to wrap has been a peak beyond the clamp of peakTokens already.
	hi, lo = bits.Mul64(uint64(n), m.rate.nanos)
	var carry uint64
	m.level.lo, carry = bits.Add64(m.level.lo, lo, 0)
	m.level.hi, _ = bits.Add64(m.level.hi, hi, carry)
	if m.peak.less(m.level) {
		m.peak = m.level
	}
}

// drain lowers the level, to zero at least.
func (m *Meter) drain(by uint128) {
	if by.less(m.level) {
		var borrow uint64
		m.level.lo, borrow = bits.Sub64(m.level.lo, by.lo, 0)
		m.level.hi, _ = bits.Sub64(m.level.hi, by.hi, borrow)
		return
	}
	m.level = uint128{}
}

// misused is out of line to keep Admit small.
func (m *Meter) misused(at, n int64) {
	switch {
	case m.rate.nanos == 0:
		panic("audit: Admit on a Meter that NewMeter did not make")
	case n < 0:
		panic(fmt.Sprintf("audit: Admit(%d, %d): n must be 0 or more", at, n))
	default:
		panic(fmt.Sprintf("audit: Admit(%d, %d) after Admit(%d, ...): time must not decrease", at, n, m.last))
	}
}

// peakTokens is the highest level so far, rounded up: the smallest Burst + Overcommit that would
// have sufficed. It is clamped to MaxInt64.
func (m *Meter) peakTokens() int64 {
	if m.peak.hi >= m.rate.nanos {
		if m.rate.nanos == 0 {
			return 0
		}
		return math.MaxInt64
	}
	whole, rest := bits.Div64(m.peak.hi, m.peak.lo, m.rate.nanos)
	if whole >= math.MaxInt64 {
		return math.MaxInt64
	}
	if rest > 0 {
		whole++
	}
	return int64(whole)
}

// ExceededBy returns by how many tokens, rounded up, the worst window so far exceeds the bound; 0
// while the promise holds.
func (m *Meter) ExceededBy() int64 { return max(0, m.peakTokens()-m.bound.ceiling()) }

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
// A refund is a new permit: it lowers X. Tokens that were used without a permit (a charge) raise X. The
// bucket takes them back from what flows in; until then they are owed, and may be beyond the bound. So
// a second leaky bucket holds what is owed, charges less refunds, and X - owed must not exceed Burst +
// Overcommit.
//
// X is an exact 128-bit integer in units of 1/Per tokens. For a window or a calendar X counts its
// tokens, see windows.go. Make one with NewMeter. One goroutine at a time.
type Meter struct {
	bound   Bound
	rate    rate
	last    int64 // when level and owed were brought up to date
	level   uint128
	owed    uint128
	peak    uint128
	started bool
	window  *window // nil for a token bucket
}

type uint128 struct{ hi, lo uint64 }

func (a uint128) less(b uint128) bool { return a.hi < b.hi || a.hi == b.hi && a.lo < b.lo }

// plus adds two numbers. A carry out of 128 bits goes unused: one admission adds less than 2^126,
// so a level that is about to wrap has been a peak beyond the clamp of peakTokens already.
func (a uint128) plus(b uint128) uint128 {
	lo, carry := bits.Add64(a.lo, b.lo, 0)
	hi, _ := bits.Add64(a.hi, b.hi, carry)
	return uint128{hi, lo}
}

// minus returns a - b, at least 0.
func (a uint128) minus(b uint128) uint128 {
	if !b.less(a) {
		return uint128{}
	}
	lo, borrow := bits.Sub64(a.lo, b.lo, 0)
	hi, _ := bits.Sub64(a.hi, b.hi, borrow)
	return uint128{hi, lo}
}

func product(a, b uint64) uint128 {
	hi, lo := bits.Mul64(a, b)
	return uint128{hi, lo}
}

// NewMeter returns a Meter that has seen nothing. It panics if b.Validate fails.
func NewMeter(b Bound) *Meter {
	if err := b.Validate(); err != nil {
		panic(err)
	}
	return &Meter{bound: b, rate: b.rate(), window: newWindow(b)}
}

// Admit records that n tokens were admitted at a moment in nanoseconds, on any one clock. It panics
// if n is negative or at lies before an earlier call's: an audit of a record in disorder would mean
// nothing.
func (m *Meter) Admit(at, n int64) {
	if m.isMisused(at, n) {
		m.misused(at, n)
	}
	if n == 0 {
		return
	}
	if m.window != nil {
		m.started, m.last = true, at
		m.window.net(at, n, 0, 0)
		return
	}
	if m.owed != (uint128{}) {
		m.admitOwing(at, n)
		return
	}
	// This is pass, and is spelt out because every simulated admission comes here.
	m.level = m.level.minus(product(m.rate.tokens, uint64(at)-uint64(m.last)))
	m.started, m.last = true, at
	m.level = m.level.plus(product(uint64(n), m.rate.nanos))
	if m.peak.less(m.level) {
		m.peak = m.level
	}
}

// admitOwing is Admit while something is owed.
func (m *Meter) admitOwing(at, n int64) {
	m.pass(at, n)
	m.level = m.level.plus(product(uint64(n), m.rate.nanos))
	if net := m.level.minus(m.owed); m.peak.less(net) {
		m.peak = net
	}
}

// Refund records that the bucket credited n tokens. It panics as Admit does.
func (m *Meter) Refund(at, n int64) { m.Net(at, 0, 0, n) }

// Net records the tokens admitted, charged and refunded at one moment. Their order is unknown: the one
// that exceeds the bound least counts. It panics as Admit does.
func (m *Meter) Net(at, n, charged, refunded int64) {
	m.pass(at, min(n, charged, refunded))
	if m.window != nil {
		m.window.net(at, n, charged, refunded)
		return
	}
	back := product(uint64(refunded), m.rate.nanos)
	more := product(uint64(charged), m.rate.nanos)
	m.level = m.level.plus(product(uint64(n), m.rate.nanos)).plus(more).minus(back)
	m.owed = m.owed.minus(back).plus(more)
	if net := m.level.minus(m.owed); m.peak.less(net) {
		m.peak = net
	}
}

// Charge records that the bucket was told of n tokens that were used without a permit. It panics as
// Admit does.
func (m *Meter) Charge(at, n int64) {
	m.pass(at, n)
	if m.window != nil {
		m.window.net(at, 0, n, 0)
		return
	}
	more := product(uint64(n), m.rate.nanos)
	m.level, m.owed = m.level.plus(more), m.owed.plus(more)
}

func (m *Meter) isMisused(at, n int64) bool {
	return n < 0 || m.rate.nanos == 0 || m.started && at < m.last
}

// pass drains what flows in until something happens to n tokens.
func (m *Meter) pass(at, n int64) {
	if m.isMisused(at, n) {
		m.misused(at, n)
	}
	// Two's complement makes the difference right for any two times in order. Before the first
	// admission the level is zero and time has no effect.
	flow := product(m.rate.tokens, uint64(at)-uint64(m.last))
	m.level, m.owed = m.level.minus(flow), m.owed.minus(flow)
	m.started, m.last = true, at
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
	if m.window != nil {
		return m.window.peak
	}
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

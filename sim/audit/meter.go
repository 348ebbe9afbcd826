package audit

import (
	"fmt"

	"github.com/yuzhi-go/yuzhi/internal/exact"
)

// A Meter audits admissions as they happen, if each time is known exactly: in a simulator, or behind one
// lock. A Meter keeps a leaky bucket
//
//	X = max(0, X - R*dt) + n
//
// and the highest X so far. X after an admission at e is the largest count - R*(e-s) over all windows [s, e]:
// unrolled, the recursion is a sum since the bucket was last empty. Promise (1) therefore holds for every
// window if and only if X never exceeds Burst + Overcommit.
//
// A refund is a new permit, so a refund lowers X. Tokens that were used without a permit (a charge) raise X.
// The refill repays the charged tokens; until the refill, charged tokens are owed and may exceed the bound. A
// second leaky bucket therefore has the owed tokens (charges less refunds), and X - owed must not exceed
// Burst + Overcommit.
//
// X is an exact 128-bit integer in units of 1/Per tokens. For a window or a calendar, X is the number of
// tokens in the window, see windows.go. NewMeter makes a Meter.
type Meter struct {
	bound   Bound
	rate    rate
	last    int64 // time of the last update of level and owed
	level   exact.Uint128
	owed    exact.Uint128
	peak    exact.Uint128
	started bool
	window  *window // nil for a token bucket
}

// NewMeter returns a Meter without admissions. NewMeter panics if b.Validate fails.
func NewMeter(b Bound) *Meter {
	if err := b.Validate(); err != nil {
		panic(err)
	}
	return &Meter{bound: b, rate: b.rate(), window: newWindow(b)}
}

// Admit records that n tokens were admitted at a time in nanoseconds, on any single clock. Admit panics if n
// is negative, or if at is before the time of an earlier call.
func (m *Meter) Admit(at, n int64) {
	m.check(at, n)
	if n == 0 {
		return
	}
	if m.window != nil {
		m.started, m.last = true, at
		m.window.net(at, n)
		return
	}
	if m.owed != (exact.Uint128{}) {
		m.Net(at, n, 0, 0)
		return
	}
	// For speed, Admit repeats code of Net: every simulated admission calls Admit.
	m.level = m.level.Minus(exact.Product(m.rate.tokens, uint64(at)-uint64(m.last)))
	m.started, m.last = true, at
	m.level = m.level.Plus(exact.Product(uint64(n), m.rate.nanos))
	if m.peak.Less(m.level) {
		m.peak = m.level
	}
}

// Net records the tokens admitted, charged and refunded at one time. The order within the time is unknown, so
// Net uses the order with the smallest excess. Net panics as Admit does.
func (m *Meter) Net(at, n, charged, refunded int64) {
	m.check(at, min(n, charged, refunded))
	flow := exact.Product(m.rate.tokens, uint64(at)-uint64(m.last)) // right in two's complement
	m.started, m.last = true, at
	if m.window != nil {
		m.window.net(at, n-refunded)
		return
	}
	back := exact.Product(uint64(refunded), m.rate.nanos)
	more := exact.Product(uint64(charged), m.rate.nanos)
	m.level = m.level.Minus(flow).Plus(exact.Product(uint64(n), m.rate.nanos)).Plus(more).Minus(back)
	m.owed = m.owed.Minus(flow).Minus(back).Plus(more)
	if net := m.level.Minus(m.owed); m.peak.Less(net) {
		m.peak = net
	}
}

func (m *Meter) check(at, n int64) {
	if n < 0 || m.rate.nanos == 0 || m.started && at < m.last {
		panic(fmt.Sprintf("audit: Admit(%d, %d) after Admit(%d, ...): n must be 0 or more, time must not decrease, "+
			"and NewMeter must have made the Meter", at, n, m.last))
	}
}

// peakTokens returns the highest level so far, rounded up and clamped to MaxInt64: the smallest Burst +
// Overcommit that allows all admissions.
func (m *Meter) peakTokens() int64 {
	if m.window != nil {
		return m.window.peak
	}
	return m.rate.wholeTokens(m.peak.Plus(exact.Uint128{Lo: m.rate.nanos - 1}))
}

// ExceededBy returns the number of tokens, rounded up, by which the worst window so far exceeds the bound, or
// 0 while the promise holds.
func (m *Meter) ExceededBy() int64 { return max(0, m.peakTokens()-m.bound.ceiling()) }

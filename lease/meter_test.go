package lease

import (
	"fmt"
	"testing"
	"time"
)

// meterUnit is one token in a meter: fine enough for every rate that the tests use to be whole per
// microsecond.
const meterUnit = 1_000_000_000

// meter audits promise (1) of one limit over ALL windows at once, in integers. With A what was
// admitted and C(t) what a window that begins at t may admit beyond R*w, the largest excess over
// every window that ends now is
//
//	y = max(y - R*dt, -C(now)) + admitted            (Lindley 1952)
//
// and the promise says that y never exceeds 0. C is B + E, but for a while after the limits were
// changed: until the leases of before have ended, windows that begin in that time may admit what
// was leased at the change where that is more. A credited refund is admitted, negatively. A request
// that gave up was never admitted.
type meter struct {
	limit    Limit
	drain    int64 // units per microsecond
	capacity int64 // B + E, tokens
	y        int64 // units
	at       int64 // microseconds
	peak     int64 // the largest y + C so far, units: what the worst window held beyond R*w
	admitted int64 // tokens, net of refunds

	leased      int64 // tokens, until leasedUntil
	leasedUntil int64
}

func newMeter(l Limit, overcommit, now int64) *meter {
	m := &meter{at: now}
	m.set(l, overcommit)
	m.y = -m.capacity * meterUnit
	return m
}

func (m *meter) set(l Limit, overcommit int64) {
	per := micros(l.Per)
	m.limit, m.capacity = l, l.Capacity()+overcommit
	m.drain = l.Tokens * (meterUnit / per)
	if meterUnit%per != 0 {
		m.drain = l.Tokens * meterUnit / per
		if l.Tokens*meterUnit%per != 0 {
			panic(fmt.Sprintf("the meter cannot count %v exactly", l))
		}
	}
}

// change makes the limit another one from now on. Leases of before, of so many tokens at most, end
// by until.
func (m *meter) change(now int64, l Limit, overcommit, leased, until int64) {
	m.advance(now)
	m.set(l, overcommit)
	m.leased, m.leasedUntil = leased, until
	m.advance(now)
}

// most is C(now), in units.
func (m *meter) most(now int64) int64 {
	if now < m.leasedUntil {
		return max(m.capacity, m.leased) * meterUnit
	}
	return m.capacity * meterUnit
}

func (m *meter) advance(now int64) {
	if now <= m.at {
		m.y = max(m.y, -m.most(m.at))
		return
	}
	if m.at < m.leasedUntil && m.leasedUntil < now {
		m.pass(m.leasedUntil - 1)
	}
	m.pass(now)
}

func (m *meter) pass(now int64) {
	most := m.most(now)
	m.y = max(m.y-min(now-m.at, (m.y+most)/m.drain+1)*m.drain, -most) // months do not overflow
	m.at = now
}

func (m *meter) admit(now, n int64) { m.add(now, n*meterUnit); m.admitted += n }

func (m *meter) refund(now, n int64) { m.admit(now, -n) }

// add is admit in units.
func (m *meter) add(now, units int64) {
	m.advance(now)
	m.y = max(m.y+units, -m.most(now))
	m.peak = max(m.peak, m.y+m.most(now))
}

// excess is by how many units the worst window exceeds what (1) allows; 0 or less is well.
func (m *meter) excess() int64 { return m.y }

func (m *meter) String() string {
	return fmt.Sprintf("%v: the worst window held %.6f tokens beyond R*w, C = %.0f", m.limit,
		float64(m.y+m.most(m.at))/meterUnit, float64(m.most(m.at))/meterUnit)
}

func TestMeterCountsTheWorstWindow(t *testing.T) {
	// given one token per microsecond and room for two
	m := newMeter(Limit{Tokens: 1, Per: time.Microsecond, Burst: 2}, 0, 0)
	// when two are admitted at once, one a microsecond later, and one more at the same moment
	m.admit(0, 2)
	m.admit(1, 1)
	if m.excess() > 0 {
		t.Errorf("three tokens in a microsecond are B + R*w: %v", m)
	}
	m.admit(1, 1)
	// then only the last one exceeds the bound
	if m.excess() != meterUnit {
		t.Errorf("four tokens in a microsecond exceed B + R*w by one: %v", m)
	}
	m.refund(1, 1)
	if m.excess() != 0 {
		t.Errorf("a refund takes the excess back: %v", m)
	}
}

func TestMeterKnowsWhichBoundHoldsFromWhenToWhen(t *testing.T) {
	// given a burst of 5 that becomes one of 2 at 100, while leases of 4 tokens last until 110
	for _, c := range []struct {
		at, admits, exceeds int64
	}{{99, 5, 0}, {100, 4, 0}, {100, 5, 1}, {109, 4, 0}, {110, 2, 0}, {110, 3, 1}} {
		m := newMeter(Limit{Tokens: 1, Per: time.Microsecond, Burst: 5}, 0, 0)
		m.advance(99)
		if c.at >= 100 {
			m.change(100, Limit{Tokens: 1, Per: time.Second, Burst: 2}, 0, 4, 110)
		}
		// when so many are admitted at one moment
		m.admit(c.at, c.admits)
		// then the window that begins there has the bound of its beginning
		if max(0, m.excess()) != c.exceeds*meterUnit {
			t.Errorf("%d at %d: exceeded by %d units, want %d tokens", c.admits, c.at, m.excess(), c.exceeds)
		}
	}
	// A window that begins before the change has the old burst, and the rate of each part.
	m := newMeter(Limit{Tokens: 1, Per: time.Microsecond, Burst: 5}, 0, 0)
	m.admit(98, 5)
	m.change(100, Limit{Tokens: 1, Per: time.Second, Burst: 2}, 0, 4, 110)
	m.admit(105, 2)
	if m.excess() > 0 {
		t.Errorf("5 + 2 are the burst and two microseconds of the old rate: %v", m)
	}
	m.admit(105, 1)
	if m.excess() <= 0 {
		t.Errorf("the old rate ended at the change: %v", m)
	}
}

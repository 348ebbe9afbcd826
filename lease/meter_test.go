package lease

import (
	"fmt"
	"testing"
	"time"
)

// meterUnit is one token in a meter: fine enough for every rate that the tests use to be whole per microsecond.
const meterUnit = 1_000_000_000

// meter audits bound (1) over ALL windows at once, in integers. The largest excess of what was admitted over
// R*w, over every window that ends now, is X = max(0, X - R*dt) + admitted (Lindley 1952), and
// (1) says that X never exceeds B + E. A credited refund is admitted, negatively.
type meter struct {
	drain    int64 // units per microsecond
	capacity int64 // B + E, tokens
	x        int64 // units
	at       int64 // microseconds
	peak     int64 // the largest X so far, units
	admitted int64 // tokens, net of refunds

	// After a change of the limit the larger capacity holds until the meter was empty and the leases that the
	// old limit gave out fit into the new one.
	lingering int64
}

func newMeter(l Limit, overcommit, now int64) *meter {
	m := &meter{at: now}
	m.set(l, overcommit)
	return m
}

// set changes the limit from now on; advance first.
func (m *meter) set(l Limit, overcommit int64) {
	per := micros(l.Per)
	if l.Tokens*meterUnit%per != 0 {
		panic(fmt.Sprintf("the meter cannot count %v exactly", l))
	}
	m.drain = l.Tokens * (meterUnit / per)
	if rest := meterUnit % per; rest != 0 {
		m.drain = l.Tokens * meterUnit / per
	}
	m.lingering = max(m.lingering, m.capacity)
	m.capacity = l.Capacity() + overcommit
}

func (m *meter) advance(now int64) {
	if now > m.at {
		m.x = max(0, m.x-(now-m.at)*m.drain)
		m.at = now
	}
}

// settled tells the meter what processes hold now, so that it can forget an older, larger capacity.
func (m *meter) settled(held int64) {
	if m.x == 0 && held <= m.capacity {
		m.lingering = 0
	}
}

func (m *meter) admit(now, n int64) {
	m.advance(now)
	m.admitted += n
	m.x = max(0, m.x+n*meterUnit)
	m.peak = max(m.peak, m.x)
}

func (m *meter) refund(now, n int64) { m.admit(now, -n) }

// excess is by how many units X exceeds what (1) allows; 0 or less is well.
func (m *meter) excess() int64 { return m.x - max(m.capacity, m.lingering)*meterUnit }

func (m *meter) String() string {
	return fmt.Sprintf("X = %.6f tokens, B + E = %d", float64(m.x)/meterUnit, max(m.capacity, m.lingering))
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

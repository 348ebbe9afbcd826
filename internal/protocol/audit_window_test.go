package protocol

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// start is a window that begins just before something was admitted. A meter of windows keeps all
// that are not over, so that y is the largest excess over them: what was admitted from a start on,
// less what the window may admit that begins there.
//
// A window that a change of limits falls into may admit what the larger of both allows.
type start struct {
	at     int64 // microseconds
	period int64 // of a calendar
	most   int64 // units
	n      int64 // units admitted here; a refund is admitted negatively
}

// expire drops the windows that are over now.
func (m *meter) expire(now int64) {
	m.at = max(m.at, now)
	if m.forgets > 0 && m.at >= m.forgets {
		m.starts, m.forgets = nil, 0
	}
	if p := m.periodOf(m.at); p != m.period {
		if over := m.worst(); over > 0 { // what was owed in a period is not paid in the next
			m.again = append(m.again, again{m.period, m.period, over})
		}
		m.period, m.latest = p, max(m.latest, p)
	}
	last := m.period - exact.Micros(20*time.Second)/exact.Micros(m.limit.Per) // to which the clock may step back
	if m.clock == nil {                                                       // which is that of the meter
		last = m.period
	}
	over := 0
	for over < len(m.starts) && (m.limit.Kind == lease.KindSliding &&
		m.starts[over].at+exact.Micros(m.limit.Per) <= m.at ||
		m.limit.Kind == lease.KindCalendar && m.starts[over].period < last) {
		over++
	}
	m.starts = m.starts[over:] // what began earlier is over earlier
	for len(m.again) > 0 && m.again[0].to < last {
		m.again = m.again[1:]
	}
}

// stepsBack follows the server's clock, which has just stepped back: in the periods that come once
// more, and in the present one, tokens may be spent that are leased now or not reported, and N: what the
// period has left to which the clock had come.
func (m *meter) stepsBack(now, leased int64) {
	if m.limit.Kind != lease.KindCalendar {
		return
	}
	before := m.period
	m.expire(now)
	m.comeAgain(before, leased+m.capacity)
}

// comeAgain lets every period from the present one to last have n tokens more.
func (m *meter) comeAgain(last, n int64) {
	if n > 0 && m.period <= last {
		m.again = append(m.again, again{m.period, last, n * meterUnit})
	}
}

// overshoots admits n tokens that were used beyond what there was. In a period that comes once more the
// bucket does not owe them: it charges them to the one after, to which the clock had come.
func (m *meter) overshoots(now, n int64) {
	m.admit(now, n)
	if m.limit.Kind == lease.KindCalendar && m.period < m.latest {
		m.comeAgain(m.period, n)
	}
}

// again are periods that may exceed their limit by units.
type again struct{ from, to, units int64 }

// periodOf is the period of a calendar, by the server's clock.
func (m *meter) periodOf(now int64) int64 {
	if m.limit.Kind != lease.KindCalendar {
		return 0
	}
	if m.clock != nil {
		now = m.clock()
	}
	return exact.FloorDiv(now-exact.Micros(m.limit.Offset), exact.Micros(m.limit.Per))
}

// start adds a window that begins just before that number of units is admitted.
func (m *meter) start(now, units int64) {
	s := start{now, m.period, m.most(now), units}
	if units < 0 && m.counts > s.period {
		// A refund counts in the period that its request was admitted in, and the bucket is in, too.
		m.starts = append(m.starts, start{now, m.counts, m.most(now), units})
	}
	if last := len(m.starts) - 1; last >= 0 && m.starts[last].n > 0 && units > 0 &&
		m.starts[last].at == s.at && m.starts[last].period == s.period && m.starts[last].most == s.most {
		m.starts[last].n += units
	} else {
		m.starts = append(m.starts, s)
	}
	m.peak = max(m.peak, m.worst()+m.most(now))
}

// worst is y of a window: the largest excess over all starts, or of a window that begins now. Those of
// a calendar are in the present period, as nothing is admitted in another.
func (m *meter) worst() int64 {
	more, sum, worst := int64(0), int64(0), -m.most(m.at)
	for _, a := range m.again {
		more += a.units * flags(a.from <= m.period && m.period <= a.to)
	}
	for i := len(m.starts) - 1; i >= 0; i-- {
		if s := &m.starts[i]; s.period == m.period {
			sum += s.n
			worst = max(worst, sum-s.most-more)
		}
	}
	return worst
}

// forgive takes units off every window that has begun.
func (m *meter) forgive(units int64) {
	if last := len(m.starts) - 1; last >= 0 {
		m.starts[last].n -= units
	}
	m.y -= units
}

// forgets has the windows count nothing of what was before at: a bucket was lost, and its leases have ended
// then.
func (b *bounds) forgets(at int64) {
	for _, m := range b.all() {
		if m.limit.Windowed() {
			m.forgets = at
		}
	}
}

// soundWindow says what is wrong with what w counts.
func soundWindow(w *window, now int64) error {
	if w.sum < 0 {
		return fmt.Errorf("%d are charged", w.sum)
	}
	if w.cells == nil {
		return nil
	}
	sum := int64(0)
	for j := w.first; j <= now/w.Cell; j++ {
		if *w.slot(j) < 0 {
			return fmt.Errorf("cell %d has %d", j, *w.slot(j))
		}
		sum += *w.slot(j)
	}
	if sum != w.sum || now/w.Cell-w.first >= windowSlots {
		return fmt.Errorf("cells %d to %d have %d, together %d", w.first, now/w.Cell, sum, w.sum)
	}
	return nil
}

// admission is one admission as the brute force counts it.
type admission struct{ at, n int64 }

// worstOf looks at every window, one by one: the most that was admitted in (t, t+w], less capacity.
// It is never below an empty window's.
func worstOf(all []admission, now, w, capacity int64) int64 {
	worst := -capacity
	for t := now - w; t <= now; t++ {
		sum := int64(0)
		for _, a := range all {
			if a.at > t && a.at <= now {
				sum += a.n
			}
		}
		worst = max(worst, sum-capacity)
	}
	return worst
}

func TestMeterKnowsTheWorstOfAllWindows(t *testing.T) {
	for seed := range testkit.Seeds(t, 300) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		// given a sliding window and a calendar
		n, w, offset := 1+rnd.Int64N(5), 1+rnd.Int64N(20), int64(0)
		l := lease.Sliding(n, exact.Duration(w))
		if rnd.IntN(2) == 0 {
			offset = rnd.Int64N(w)
			l = lease.Calendar(n, exact.Duration(w), exact.Duration(offset))
		}
		m := newMeter(l, 0, 1000)
		var all []admission
		for now := int64(1000); now < 1100; now += rnd.Int64N(4) {
			// when tokens are admitted and refunded at random
			a := admission{now, rnd.Int64N(5) - 1}
			all = append(all, a)
			m.admit(now, a.n)
			// then the meter and a look at every window say the same
			length := w
			if l.Kind == lease.KindCalendar {
				length = (now-offset)%w + 1 // since the boundary, which is in the period
			}
			want := int64(math.MinInt64)
			for i := range all { // a window may begin between two admissions of one moment
				want = max(want, worstOf(all[i:], now, length, n))
			}
			testkit.Must(t, m.excess() == want*meterUnit, "seed %d, %v at %d: %d, want %d tokens: %v", seed, l,
				now, m.excess(), want, all)
		}
	}
}

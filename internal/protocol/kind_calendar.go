package protocol

import (
	"time"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

type calendarKind struct{}

func (calendarKind) tally(sp spec) tally { return &window{spec: sp, past: &period{number: -2}} }

func (calendarKind) timeFor(lease.Limit, int64) time.Duration { return 0 }

// reset returns the boundary, at which all tokens come.
func (calendarKind) reset(_ lease.Limit, until time.Duration) time.Duration { return until }

func (calendarKind) reportIn(lease.Limit, float64) time.Duration { return exact.MaxTime }

// counts returns all cells of the period, or 0 after it. Without the server's clock a calendar forgets
// gradually, like a sliding window.
func (calendarKind) counts(l lease.Limit, now, age int64, isServer bool) int64 {
	if !isServer {
		return slidingKind{}.counts(l, now, age, isServer)
	}
	length, into := exact.Micros(l.Per), now-exact.Micros(l.Offset)
	if into-exact.FloorDiv(into, length)*length >= age {
		return exact.WindowCells
	}
	return 0
}

// usedAt dates the charge so that the share waits until the boundary, not for a whole window.
func (calendarKind) usedAt(l lease.Limit, replied int64, next time.Duration) int64 {
	if next > 0 {
		return max(0, min(replied, replied+exact.Micros(next)-exact.Micros(l.Per)))
	}
	return replied
}

// period is the past of a calendar: its number by the server's clock, and the running time at which it began.
type period struct {
	number int64
	begun  int64
}

func (p *period) clone() past {
	o := *p
	return &o
}

func (p *period) clear() { p.number = -2 }

// pass starts the next period at the boundary. After the clock has stepped back, the period that has begun
// goes on, or counts as the next one: a clock that was a year ahead must not leave one N for a year.
func (p *period) pass(w *window, m *moment) {
	since := m.clock - w.Offset
	n := exact.FloorDiv(since, w.Tick)
	if n <= p.number {
		p.number = min(p.number, n+1)
		return
	}
	w.sum, p.number, p.begun = 0, n, m.now-(since-n*w.Tick)
}

func (p *period) add(*window, int64, int64) {}

func (p *period) remove(int64) {}

func (p *period) covers(_ *window, at int64) bool { return at >= p.begun }

func (p *period) next(w *window, m *moment, _ int64) int64 { return p.boundary(w) - m.clock }

// boundary returns when the period ends, by the server's clock.
func (p *period) boundary(w *window) int64 { return (p.number+1)*w.Tick + w.Offset }

func (p *period) dump(d *WindowDump) { d.Period, d.Begun = p.number, p.begun }

func (p *period) restore(d *WindowDump) { p.number, p.begun = d.Period, d.Begun }

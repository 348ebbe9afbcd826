package protocol

import (
	"math"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

// lates lists tokens to report, sorted by the time of their draw or use: docs/protocol.md, section 5.8.
type lates []late

// late is a number of tokens that were drawn or used between the times first and last.
type late struct{ tokens, first, last int64 }

func (l lates) sum() (n int64) {
	for _, e := range l {
		n += e.tokens
	}
	return n
}

// dating has the limits and clocks that decide how long a token counts. A dating dates an entry by its oldest
// token if oldest is set, otherwise by its latest token.
type dating struct {
	oldest bool
	limits []lease.Limit
	server int64 // the server's clock in microseconds; 0 if unknown
	now    int64 // the present time by the clock of the entries
	micro  int64 // units of the entries' clock per microsecond
}

// counted returns the number of cells for which a token of the time at still counts, summed over the limits.
func (d dating) counted(at int64) (cells int64) {
	now := d.server
	if now == 0 {
		now = d.now / d.micro
	}
	for _, l := range d.limits {
		cells += counts(l, now, (d.now-at)/d.micro, d.server != 0)
	}
	return cells
}

// counts returns the number of cells for which l still counts a token of this age. age and now are in
// microseconds, now is by the server's clock if isServer is set.
func counts(l lease.Limit, now, age int64, isServer bool) int64 {
	switch {
	case !l.Windowed():
		return 0
	case l.Kind == lease.KindCalendar && isServer: // without the server's clock a calendar counts like a sliding window
		length, into := exact.Micros(l.Per), now-exact.Micros(l.Offset)
		if into-exact.FloorDiv(into, length)*length >= age {
			return exact.WindowCells
		}
		return 0
	}
	// Cells begin at fixed times: by age alone any two entries would at some time count alike, and be merged.
	// Two cells are added because the bucket's clock may count the token for longer.
	cell := max(1, exact.Micros(l.Per)/exact.WindowCells)
	return max(0, exact.WindowCells+2+exact.FloorDiv(now-age, cell)-exact.FloorDiv(now, cell))
}

func (d dating) dateOf(e late) int64 {
	if d.oldest {
		return e.first
	}
	return e.last
}

// add adds n tokens that were drawn or used at the time at.
func (l *lates) add(n, at int64, d dating) {
	if n = min(n, lease.WaitingMax-l.sum()); n <= 0 {
		return
	}
	i := len(*l)
	for i > 0 && (*l)[i-1].last > at {
		i--
	}
	*l = slices.Insert(*l, i, late{n, at, at})
	l.join(d)
}

// join merges neighbouring entries that count for equally many cells. While there are more than LateMax
// entries, join merges the neighbours that misdate the fewest tokens by the fewest cells.
func (l *lates) join(d dating) {
	for i := 0; i+1 < len(*l); {
		if a, b := (*l)[i], (*l)[i+1]; d.counted(d.dateOf(a)) == d.counted(d.dateOf(b)) {
			l.merge(i)
		} else {
			i++
		}
	}
	for len(*l) > lease.LateMax {
		best, least := 0, math.Inf(1)
		for i := range len(*l) - 1 {
			e := (*l)[i].with((*l)[i+1])
			if cost := float64(e.tokens) * float64(d.counted(e.last)-d.counted(e.first)); cost < least {
				best, least = i, cost
			}
		}
		l.merge(best)
	}
}

func (l *lates) merge(i int) {
	(*l)[i] = (*l)[i].with((*l)[i+1])
	*l = slices.Delete(*l, i+1, i+2)
}

func (e late) with(o late) late {
	return late{min(e.tokens+o.tokens, lease.WaitingMax), min(e.first, o.first), max(e.last, o.last)}
}

// trim drops the oldest tokens until n are left.
func (l *lates) trim(n int64) {
	for excess := l.sum() - n; excess > 0 && len(*l) > 0; {
		dropped := min(excess, (*l)[0].tokens)
		excess -= dropped
		if (*l)[0].tokens -= dropped; (*l)[0].tokens == 0 {
			*l = slices.Delete(*l, 0, 1)
		}
	}
}

// back appends l to the late entries to of a call, each as drawn at the time of its oldest token.
func (l lates) back(kind lease.LateKind, to []lease.Late) []lease.Late {
	for _, e := range l {
		to = append(to, lease.Late{Kind: kind, Tokens: e.tokens, Drawn: e.first})
	}
	return to
}

// taken appends l to the late entries to of a call, each as used at the time of its latest token. Ages are
// shortened, because the process's clock may be fast (5.8).
func (l lates) taken(now clock.Instant, kind lease.LateKind, to []lease.Late) []lease.Late {
	for _, e := range l {
		age := max(0, now.Sub(clock.Instant(e.last)))
		if kind == lease.LateCharge {
			age = leaseSpan(age)
		} else {
			age -= age / 1024
		}
		to = append(to, lease.Late{Kind: kind, Tokens: e.tokens, Age: age.Truncate(time.Microsecond)})
	}
	return to
}

// leaseSpan returns how long the holder uses a lease that the bucket counts for ttl. The last 16th covers the
// drift of both clocks: hundreds of times the drift of quartz.
func leaseSpan(ttl time.Duration) time.Duration { return ttl / 16 * 15 }

// usedBy returns the dating of debt and charge, whose times are by the process's clock.
func usedBy(now clock.Instant, server int64, limits []lease.Limit) dating {
	return dating{false, limits, server, int64(now), 1000}
}

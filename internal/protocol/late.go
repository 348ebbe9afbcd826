package protocol

import (
	"math"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
)

// What is reported of an earlier time: docs/protocol.md, section 5.8.

// lates are tokens that wait to be reported, by when they were drawn or used, oldest first.
type lates []late

// late has the tokens that were drawn, or used, between two times.
type late struct{ tokens, first, last int64 }

// sum returns all the tokens.
func (l lates) sum() (n int64) {
	for _, e := range l {
		n += e.tokens
	}
	return n
}

// dating says which time an entry is told with, that of its oldest token or of its latest, and by which limits
// and clocks a token of one time counts. It is a value, as every request of an outage needs one.
type dating struct {
	oldest bool
	limits []lease.Limit
	server int64 // the server's clock in microseconds, 0 for not known
	now    int64 // on the clock of the times
	micro  int64 // a microsecond of that clock
}

// counted returns in how many cells' time the limits, together, still count a token of a time.
func (d dating) counted(at int64) (cells int64) {
	now := d.server
	if now == 0 {
		now = d.now / d.micro
	}
	for _, l := range d.limits {
		cells += kindOf(l).counts(l, now, (d.now-at)/d.micro, d.server != 0)
	}
	return cells
}

func (d dating) toldWith(e late) int64 {
	if d.oldest {
		return e.first
	}
	return e.last
}

// add adds n tokens of one time.
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

// join makes one entry of neighbours that the limits count alike, and while there are too many, of the two
// that then have the fewest tokens, and for the shortest time, counted for another time than their own.
func (l *lates) join(d dating) {
	for i := 0; i+1 < len(*l); {
		if a, b := (*l)[i], (*l)[i+1]; d.counted(d.toldWith(a)) == d.counted(d.toldWith(b)) {
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

// merge makes one entry of the i-th and the next.
func (l *lates) merge(i int) {
	(*l)[i] = (*l)[i].with((*l)[i+1])
	*l = slices.Delete(*l, i+1, i+2)
}

func (e late) with(o late) late {
	return late{min(e.tokens+o.tokens, lease.WaitingMax), min(e.first, o.first), max(e.last, o.last)}
}

// trim drops the oldest until n tokens are left.
func (l *lates) trim(n int64) {
	for excess := l.sum() - n; excess > 0 && len(*l) > 0; {
		dropped := min(excess, (*l)[0].tokens)
		excess -= dropped
		if (*l)[0].tokens -= dropped; (*l)[0].tokens == 0 {
			*l = slices.Delete(*l, 0, 1)
		}
	}
}

// back appends the tokens to what a call brings back; they count as drawn with the oldest.
func (l lates) back(kind lease.LateKind, to []lease.Late) []lease.Late {
	for _, e := range l {
		to = append(to, lease.Late{Kind: kind, Tokens: e.tokens, Drawn: e.first})
	}
	return to
}

// taken appends the tokens to what a call takes; they count as used with the latest, and a little later, as
// the clock may be fast: a charge, which counts in (1), by as much as a lease ends earlier.
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

// usedBy dates, at now, what was used at times of the process's clock.
func usedBy(now clock.Instant, server int64, limits []lease.Limit) dating {
	return dating{false, limits, server, int64(now), 1000}
}

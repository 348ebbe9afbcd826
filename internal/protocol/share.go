package protocol

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

// share is the local share: a process's part of a bucket out of reach (docs/protocol.md section 8.14). For a
// token bucket, share stores the time at which the bucket would have been empty if it had always refilled.
// Every part of the bucket would have been empty at the same time, so that a change of weights needs no
// conversion. Rounding lowers the share. The zero share is full.
type share struct {
	emptyAt [lease.LimitsMax]clock.Instant // one time per token bucket; 0 for a full share
	windows *[lease.LimitsMax]*window      // charges of the share's windows; nil means none
}

// seeded is the local share of a Client.
type seeded struct {
	share
	limits []lease.Limit // the limits of the share; nil before the first use
	reply  clock.Instant // time of the last reply that lowered the share; 0 for none
}

// part is a process's part of a bucket, less the headroom.
type part struct {
	limits         []lease.Limit
	weight, active int64
	headroom       float64
}

func partOf(p *lease.Policy, limits []lease.Limit, active int64) part {
	weight := weightOf(p)
	return part{limits, weight, max(active, weight), p.Headroom}
}

// of returns the part of n tokens, rounded down.
func (p part) of(n int64) int64 {
	if p.weight >= p.active {
		return n
	}
	return exact.MulDiv(p.weight, n, p.active)
}

// burst returns the part of the burst of l, at least 1 for a token bucket. The part of a window may be 0
// (8.14).
func (p part) burst(l lease.Limit) int64 {
	n := p.of(grantable(l, p.headroom))
	if l.Windowed() {
		return n
	}
	return max(1, n)
}

// most returns the most tokens that a local share can have.
func (p part) most() int64 {
	most := int64(exact.MaxUnits)
	for _, l := range p.limits {
		most = min(most, p.burst(l))
	}
	return most
}

// perToken returns the time in which the part of l refills one token, rounded up.
func (p part) perToken(l lease.Limit) time.Duration {
	d := float64(l.Per) * float64(p.active) / (float64(l.Tokens) * float64(p.weight))
	return time.Duration(min(math.Ceil(d), 1<<62))
}

// cost returns the time in which the part of l refills n tokens.
func (p part) cost(l lease.Limit, n int64) time.Duration {
	hi, d := bits.Mul64(uint64(n), uint64(p.perToken(l)))
	if hi > 0 {
		return 1 << 62
	}
	return time.Duration(min(d, 1<<62))
}

// worth returns the time in which l refills n tokens, rounded down; negative for a negative n.
func worth(l lease.Limit, n int64) time.Duration {
	d := float64(n) * float64(l.Per) / float64(l.Tokens)
	return time.Duration(max(-1<<62, min(math.Floor(d), 1<<62)))
}

// follow switches s to the limits of p. An unchanged limit keeps the count of its spent
// tokens. A new limit starts full or used up.
func (s *seeded) follow(now clock.Instant, p part, usedUp bool) {
	was := *s
	*s = seeded{limits: p.limits}
	for k, l := range s.limits {
		switch i := slices.Index(was.limits, l); {
		case i >= 0 && l.Windowed():
			s.window(now, k, p).follow(was.window(now, i, part{limits: was.limits}), true)
		case i >= 0:
			s.emptyAt[k] = was.emptyAt[i]
		case usedUp:
			s.charge(now, k, p, l.Capacity())
		}
	}
}

// window returns the window of limit k, advanced to now. A calendar counts like a sliding window, because the
// server's clock may be unknown.
func (s *share) window(now clock.Instant, k int, p part) *window {
	if s.windows == nil {
		s.windows = new([lease.LimitsMax]*window)
	}
	w := s.windows[k]
	if w == nil {
		l := p.limits[k]
		w = newWindow(specOf(lease.Sliding(l.Tokens, l.Per), &lease.Config{}))
		s.windows[k] = w
	}
	w.pass(&moment{now: int64(now) / 1000}, 0)
	return w
}

// empty returns when the part p of token bucket k would have been empty. A full part counts as just filled.
func (s *share) empty(now clock.Instant, k int, p part) clock.Instant {
	l := p.limits[k]
	full := now.Add(-p.cost(l, p.burst(l)))
	if s.emptyAt[k] == 0 {
		return full
	}
	return max(s.emptyAt[k], full)
}

// has returns the whole tokens that s has of limit k, 0 or more.
func (s *share) has(now clock.Instant, k int, p part) int64 {
	switch l := p.limits[k]; {
	case !l.Windowed():
		return int64(max(0, now.Sub(s.empty(now, k, p))) / p.perToken(l))
	case s.windows == nil:
		return p.burst(l)
	default:
		return max(0, p.burst(l)-s.window(now, k, p).sum)
	}
}

// charge takes n tokens of limit k. A token bucket with fewer than n tokens becomes empty.
func (s *share) charge(now clock.Instant, k int, p part, n int64) {
	if l := p.limits[k]; l.Windowed() {
		s.window(now, k, p).charge(int64(now)/1000, n)
	} else {
		s.emptyAt[k] = min(now, s.empty(now, k, p).Add(p.cost(l, n)))
	}
}

// take takes up to n tokens, or none if the share has fewer than least.
func (s *share) take(now clock.Instant, p part, least, n int64) int64 {
	for k := range p.limits {
		n = min(n, s.has(now, k, p))
	}
	if n < max(1, least) {
		return 0
	}
	for k := range p.limits {
		s.charge(now, k, p, n)
	}
	return n
}

// at returns the time at which s will have n tokens of limit k; n must not exceed the burst of p.
func (s *share) at(now clock.Instant, k int, p part, n int64) clock.Instant {
	l := p.limits[k]
	if l.Windowed() {
		w := s.window(now, k, p)
		return clock.Instant(w.dropAt(n+w.sum-p.burst(l)) * 1000)
	}
	return s.empty(now, k, p).Add(p.cost(l, n))
}

// owed returns the debt for n tokens that s has admitted, dated by the cells of the longest window. Tokens
// that the window no longer counts are dated one window length ago.
func (s *share) owed(now clock.Instant, limits []lease.Limit, n int64, d dating) (l lates) {
	longest := -1
	for k := range limits {
		if limits[k].Windowed() && (longest < 0 || limits[k].Per > limits[longest].Per) {
			longest = k
		}
	}
	if longest < 0 || s.windows == nil || s.windows[longest] == nil {
		l.add(n, int64(now), d)
		return l
	}
	w := s.window(now, longest, part{limits: limits})
	l.add(n-w.sum, int64(now.Add(-limits[longest].Per)), d)
	for j := w.first; j < w.first+windowSlots; j++ {
		l.add(*w.slot(j), min(int64(now), (j+1)*w.Cell*1000), d)
	}
	return l
}

// fallbackPause is the shortest time between two checks of the local share for a request in line.
const fallbackPause = time.Millisecond

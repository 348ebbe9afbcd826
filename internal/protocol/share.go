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
// token bucket, share stores when the bucket would have been empty if it had refilled at its rate ever since.
// Every part of a bucket would be empty at the same time, so neither a reply nor a change of weights needs a
// conversion. Rounding lowers the share. A share is small, because every request of a flood may name another
// key. The zero share is full.
type share struct {
	emptyAt [lease.LimitsMax]clock.Instant // one time per token bucket; 0 for a full share
	windows *[lease.LimitsMax]*window      // charges of the share's windows; nil for none
}

// seeded is the local share of a Client.
type seeded struct {
	share
	limits []lease.Limit // the limits of the share; nil before the first use
	reply  clock.Instant // time of the last reply that lowered the share; 0 for none
}

// part is a process's part of a bucket, less the process's headroom.
type part struct {
	limits         []lease.Limit
	weight, active int64
	headroom       float64
}

// of returns the process's part of n tokens, rounded down.
func (p part) of(n int64) int64 {
	if p.weight >= p.active {
		return n
	}
	return exact.MulDiv(p.weight, n, p.active)
}

// burst returns the process's part of the burst of l, at least 1 for a token bucket. The parts of a window
// add up to no more than the window.
func (p part) burst(l lease.Limit) int64 {
	n := p.of(grantable(l, p.headroom))
	if l.Windowed() {
		return n
	}
	return max(1, n)
}

// most returns the upper bound of the tokens that p, a process's local share, can have.
func (p part) most() int64 {
	most := int64(exact.MaxUnits)
	for _, l := range p.limits {
		most = min(most, p.burst(l))
	}
	return most
}

// perToken returns the time in which the process's part of l refills one token, rounded up.
func (p part) perToken(l lease.Limit) time.Duration {
	d := float64(l.Per) * float64(p.active) / (float64(l.Tokens) * float64(p.weight))
	return time.Duration(min(math.Ceil(d), 1<<62))
}

// cost returns the time in which the process's part of l refills n tokens.
func (p part) cost(l lease.Limit, n int64) time.Duration {
	hi, d := bits.Mul64(uint64(n), uint64(p.perToken(l)))
	if hi > 0 {
		return 1 << 62
	}
	return time.Duration(min(d, 1<<62))
}

// worth returns the time in which l refills n tokens, rounded down; the time of a debt is negative.
func worth(l lease.Limit, n int64) time.Duration {
	d := float64(n) * float64(l.Per) / float64(l.Tokens)
	return time.Duration(max(-1<<62, min(math.Floor(d), 1<<62)))
}

// follow switches s to the limits of p. A limit that s has already keeps its spending. A new limit starts
// full, or used up if usedUp is set.
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

// window returns the window of limit k, advanced to now. A calendar slides here too, because the process does
// not know the server's clock.
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

// empty returns when the part p of token bucket k, with at most its burst, would have been empty.
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

// charge takes n tokens of limit k; a token bucket with fewer becomes empty.
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

// at returns when s has n tokens of limit k; n must not exceed the burst of p.
func (s *share) at(now clock.Instant, k int, p part, n int64) clock.Instant {
	l := p.limits[k]
	if l.Windowed() {
		w := s.window(now, k, p)
		return clock.Instant(w.dropAt(n+w.sum-p.burst(l)) * 1000)
	}
	return s.empty(now, k, p).Add(p.cost(l, n))
}

// Unheard decides for a key that has had no reply and has no Client, while the key's node is away
// (docs/protocol.md section 8.14). The zero Unheard has a full share.
type Unheard struct {
	share
	debt int64 // admitted so far
}

// decides reports whether an Unheard can decide on the request a; otherwise a Client must. active is the
// weight of all processes on the node; 0 if the node has sent no reply.
func (t *Terms) decides(active int64, a Ask) bool {
	return a.Patience != InLine && (active > 0 || t.Policy.ColdStart == lease.ColdStartDeny) &&
		SwitchOf(t.Proposed.Limits) != SwitchUnlimited && a.Most(t.Most()) <= t.Most()
}

// Denies reports whether an Unheard denies every request, as of a StartEmpty bucket, which may be empty.
func (t *Terms) Denies(active int64) bool {
	return active == 0 || t.Policy.Fallback == lease.FallbackDeny ||
		SwitchOf(t.Proposed.Limits) == SwitchBlocked ||
		t.Proposed.StartEmpty && t.Policy.Fallback == lease.FallbackLocalShare
}

// Most returns the most tokens that the bucket can have at once.
func (t *Terms) Most() int64 { return mostOf(t.Proposed.Limits, t.Policy.Headroom) }

// part returns the part of a process with the terms t; active is the weight of all processes on the node.
func (t *Terms) part(active int64) part {
	weight := weightOf(t.Policy)
	return part{t.Proposed.Limits, weight, max(active, weight), t.Policy.Headroom}
}

// take takes up to n tokens, or none if the share has fewer than least.
func (u *Unheard) take(now clock.Instant, least, n int64, t *Terms, active int64) int64 {
	if now >= u.FullAt(t, active) {
		*u = Unheard{}
	}
	p := t.part(active)
	if t.Policy.Fallback == lease.FallbackAllowAll {
		for k := range p.limits {
			u.charge(now, k, p, n)
		}
	} else {
		n = u.share.take(now, p, least, n)
	}
	u.debt += min(n, lease.WaitingMax-u.debt)
	return n
}

// owed returns the admitted tokens, dated by the cells of the longest window. Tokens that the window no
// longer counts are dated one window length ago.
func (u *Unheard) owed(now clock.Instant, limits []lease.Limit, d dating) (l lates) {
	longest := -1
	for k := range limits {
		if limits[k].Windowed() && (longest < 0 || limits[k].Per > limits[longest].Per) {
			longest = k
		}
	}
	if longest < 0 || u.windows == nil || u.windows[longest] == nil {
		l.add(u.debt, int64(now), d)
		return l
	}
	w := u.window(now, longest, part{limits: limits})
	l.add(u.debt-w.sum, int64(now.Add(-limits[longest].Per)), d)
	for j := w.first; j < w.first+windowSlots; j++ {
		l.add(*w.slot(j), min(int64(now), (j+1)*w.Cell*1000), d)
	}
	return l
}

// FullAt returns when the share is full again and u may be forgotten.
func (u *Unheard) FullAt(t *Terms, active int64) (at clock.Instant) {
	p := t.part(active)
	for k, l := range p.limits {
		switch {
		case u.emptyAt[k] != 0:
			at = max(at, u.emptyAt[k].Add(p.cost(l, p.burst(l))))
		case l.Windowed() && u.windows != nil:
			w := u.window(0, k, p)
			at = max(at, clock.Instant(w.dropAt(w.sum)*1000))
		}
	}
	return at
}

// Outlook returns the Outlook of a request for n tokens that u admitted, or denied for a lack of tokens.
// callTimeout is the retry time for a request that the share can never serve.
func (u *Unheard) Outlook(
	now clock.Instant, n int64, t *Terms, active int64, callTimeout time.Duration,
) Outlook {
	o := Outlook{
		Remaining: exact.MaxUnits, RetryAfter: fallbackPause,
		ResetAfter: max(0, u.FullAt(t, active).Sub(now)),
	}
	p := t.part(active)
	for k, l := range p.limits {
		has := u.has(now, k, p)
		if has < o.Remaining {
			o.Limit, o.Remaining = l, has
		}
		switch {
		case n > p.burst(l) || t.Denies(active):
			o.RetryAfter = max(o.RetryAfter, callTimeout)
		case has < n:
			o.RetryAfter = max(o.RetryAfter, u.at(now, k, p, n).Sub(now))
		}
	}
	return o
}

// fallbackPause is the least time between two checks of the local share for requests in line.
const fallbackPause = time.Millisecond

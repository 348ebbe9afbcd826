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

// share is this process's part of a bucket that it cannot reach: docs/protocol.md section 8.14. It
// is the bucket that was heard, split by weight.
//
// Of a token bucket it keeps one instant: when the bucket would have been empty if it had filled at
// its rate ever since. That instant is the same for the bucket and for every part of it, so neither
// a seed nor a change of weights converts anything. Rounding lowers the share.
type share struct {
	limits  []lease.Limit                  // for which the rest stands; nil before the first use
	seeded  clock.Instant                  // the reply that the share knows; 0 for none
	emptyAt [lease.LimitsMax]clock.Instant // of token buckets
	windows *[lease.LimitsMax]window       // what was charged to this part; nil without a window
}

// fullAlways is the emptyAt of a full bucket: 2^62 ns is longer than any bucket takes to fill.
const fullAlways = clock.Instant(-1 << 62)

type part struct{ weight, active int64 }

// of returns this part of n tokens, rounded down.
func (p part) of(n int64) int64 {
	if p.weight >= p.active {
		return n
	}
	return exact.MulDiv(p.weight, n, p.active)
}

// burst returns this part of the burst of l. A token bucket has at least 1. The parts of a window
// are no more than the window together.
func (p part) burst(l lease.Limit, burst int64) int64 {
	if l.Windowed() {
		return p.of(burst)
	}
	return max(1, p.of(burst))
}

// perToken returns the time in which this part of l makes a token, rounded up.
func (p part) perToken(l lease.Limit) time.Duration {
	d := float64(l.Per) * float64(p.active) / (float64(l.Tokens) * float64(p.weight))
	return time.Duration(min(math.Ceil(d), 1<<62))
}

// cost returns the time in which this part of l makes n tokens.
func (p part) cost(l lease.Limit, n int64) time.Duration {
	hi, d := bits.Mul64(uint64(n), uint64(p.perToken(l)))
	if hi > 0 {
		return 1 << 62
	}
	return time.Duration(min(d, 1<<62))
}

// worth returns the time in which the bucket of l makes n tokens, rounded down. A debt is negative.
func worth(l lease.Limit, n int64) time.Duration {
	d := float64(n) * float64(l.Per) / float64(l.Tokens)
	return time.Duration(max(-1<<62, min(math.Floor(d), 1<<62)))
}

// follow has s stand for other limits. One that s had keeps what was spent; others are full, or used
// up where nothing is known of them.
func (s *share) follow(now clock.Instant, limits []lease.Limit, usedUp bool) {
	was := *s
	*s = share{limits: limits}
	if slices.ContainsFunc(limits, lease.Limit.Windowed) {
		s.windows = new([lease.LimitsMax]window)
	}
	for k, l := range limits {
		i := slices.Index(was.limits, l)
		switch {
		case i >= 0 && l.Windowed():
			s.windows[k] = was.windows[i]
		case i >= 0:
			s.emptyAt[k] = was.emptyAt[i]
		case usedUp && l.Windowed():
			sc := shareScale(l)
			s.windows[k].advance(&sc, int64(now)/1000, 0)
			s.windows[k].charge(&sc, int64(now)/1000, l.Tokens)
		case usedUp:
			s.emptyAt[k] = now
		default:
			s.emptyAt[k] = fullAlways
		}
	}
}

// shareScale is that of a share of the window l, which slides: no process knows the server's clock.
func shareScale(l lease.Limit) lease.Scale {
	s, _ := lease.Sliding(l.Tokens, l.Per).Scale(0)
	return s
}

// empty returns when the part p of token bucket k, at most its burst, would have been empty.
func (s *share) empty(now clock.Instant, k int, p part, burst int64) clock.Instant {
	l := s.limits[k]
	return max(s.emptyAt[k], now.Add(-p.cost(l, p.burst(l, burst))))
}

// has returns the whole tokens that s has of limit k, whose burst this is.
func (s *share) has(now clock.Instant, k int, p part, burst int64) int64 {
	l := s.limits[k]
	if l.Windowed() {
		sc := shareScale(l)
		s.windows[k].advance(&sc, int64(now)/1000, 0)
		return p.of(burst) - s.windows[k].sum
	}
	return int64(max(0, now.Sub(s.empty(now, k, p, burst))) / p.perToken(l))
}

// keep has m remember how much of the bursts, less the headroom, a reply has left.
func (m *Memory) keep(limits []lease.Limit, levels *[lease.LimitsMax]int64, headroom float64) {
	m.of = fingerprint(limits)
	for k, l := range limits {
		burst := grantable(l, headroom)
		m.left[k] = uint8(exact.MulDiv(max(0, min(levels[k], burst)), min(burst, 255), max(burst, 1)))
	}
}

// leftOf returns how much of the burst of limit k was left when its key came to rest.
func (m *Memory) leftOf(k int, burst int64) int64 {
	return exact.MulDiv(int64(m.left[k]), burst, max(1, min(burst, 255)))
}

// fingerprint tells the limits of a key at rest from others that were configured since.
func fingerprint(limits []lease.Limit) uint16 {
	h := uint64(0)
	for _, l := range limits {
		for _, x := range [...]int64{l.Tokens, int64(l.Per), l.Capacity(), int64(l.Kind), int64(l.Offset)} {
			h ^= uint64(x)
			h = splitmix(&h)
		}
	}
	return uint16(h)
}

// Unheard decides, while the node of a key is away, for a key of which this process has never heard,
// and needs no Client: docs/protocol.md section 8.14. It is small, because every request of a flood
// may come with another key. The zero value has a full share.
type Unheard struct {
	debt     int64                          // admitted so far
	windowed int64                          // of that, since all windows were free
	emptyAt  [lease.LimitsMax]clock.Instant // of a token bucket as in share; of a window when it was used last
}

// Decides reports whether an Unheard can decide on a request for n tokens, where all processes on the
// node weigh active, as last heard; 0 for a node of which nothing was heard. Otherwise a Client has to.
func (t *Terms) Decides(active, n int64, p Patience) bool {
	return p != InLine && (active > 0 || t.Policy.ColdStart == lease.ColdStartDeny) &&
		SwitchOf(t.Proposed.Limits) != SwitchUnlimited && (p == UpTo || n <= t.Most())
}

// Denies reports whether every request that an Unheard decides on is denied. With StartEmpty a bucket of
// which nothing was heard may be empty.
func (t *Terms) Denies(active int64) bool {
	return active == 0 || t.Policy.Fallback == lease.FallbackDeny ||
		SwitchOf(t.Proposed.Limits) == SwitchBlocked ||
		t.Proposed.StartEmpty && t.Policy.Fallback == lease.FallbackLocalShare
}

// Most returns the most tokens that there can be at once.
func (t *Terms) Most() int64 { return mostOf(t.Proposed.Limits, t.Policy.Headroom) }

// part returns the part of a process with the terms t, where all on the node weigh active.
func (t *Terms) part(active int64) part {
	weight := weightOf(t.Policy)
	return part{weight, max(active, weight)}
}

// Take takes up to n tokens. It takes none where there are fewer than least.
func (u *Unheard) Take(now clock.Instant, least, n int64, t *Terms, active int64) (took int64) {
	if now >= u.FullAt(t, active) {
		*u = Unheard{}
	}
	free := true
	for k, l := range t.Proposed.Limits {
		free = free && !(l.Windowed() && now < u.emptyAt[k].Add(shareScale(l).TimeToFull()))
	}
	if free {
		u.windowed = 0
	}
	p, s, all := t.part(active), u.share(t.Proposed.Limits), t.Policy.Fallback == lease.FallbackAllowAll
	took = n
	for k := range s.limits {
		if !all {
			took = min(took, u.has(now, k, p, &s, t))
		}
	}
	if took < max(1, least) {
		return 0
	}
	u.debt += min(took, lease.WaitingMax-u.debt)
	u.windowed += min(took, lease.WaitingMax-u.windowed)
	for k, l := range s.limits {
		u.emptyAt[k] = now
		if !l.Windowed() {
			empty := s.empty(now, k, p, grantable(l, t.Policy.Headroom)).Add(p.cost(l, took))
			u.emptyAt[k] = min(empty, now) // more than there is where all are admitted
		}
	}
	return took
}

func (u *Unheard) share(limits []lease.Limit) share { return share{limits: limits, emptyAt: u.emptyAt} }

// has returns the tokens of limit k. A window is as used as it ever was until all of that has left it.
func (u *Unheard) has(now clock.Instant, k int, p part, s *share, t *Terms) int64 {
	l := s.limits[k]
	burst := grantable(l, t.Policy.Headroom)
	switch {
	case !l.Windowed():
		return s.has(now, k, p, burst)
	case now < u.emptyAt[k].Add(shareScale(l).TimeToFull()):
		return p.of(burst) - u.windowed
	}
	return p.of(burst)
}

// FullAt returns when the share is full again and u may be forgotten.
func (u *Unheard) FullAt(t *Terms, active int64) (at clock.Instant) {
	p := t.part(active)
	for k, l := range t.Proposed.Limits {
		full := p.cost(l, p.burst(l, grantable(l, t.Policy.Headroom)))
		if l.Windowed() {
			full = shareScale(l).TimeToFull()
		}
		at = max(at, u.emptyAt[k].Add(full))
	}
	return at
}

// Outlook says what a request for n tokens may be told that was admitted, or denied for the lack of
// them; callTimeout is when to ask again where the share never has them.
func (u *Unheard) Outlook(
	now clock.Instant, n int64, t *Terms, active int64, callTimeout time.Duration,
) Outlook {
	p, s := t.part(active), u.share(t.Proposed.Limits)
	o := Outlook{
		Remaining: exact.MaxUnits, RetryAfter: fallbackPause,
		ResetAfter: max(0, u.FullAt(t, active).Sub(now)),
	}
	for k, l := range s.limits {
		burst := grantable(l, t.Policy.Headroom)
		has := max(0, u.has(now, k, p, &s, t))
		if has < o.Remaining {
			o.Limit, o.Remaining = l, has
		}
		switch {
		case n > p.burst(l, burst) || t.Denies(active):
			o.RetryAfter = max(o.RetryAfter, callTimeout)
		case has < n && l.Windowed():
			o.RetryAfter = max(o.RetryAfter, o.ResetAfter)
		case has < n:
			o.RetryAfter = max(o.RetryAfter, s.empty(now, k, p, burst).Add(p.cost(l, n)).Sub(now))
		}
	}
	return o
}

// Heard reports whether any reply has come.
func (m *Memory) Heard() bool { return m.replied }

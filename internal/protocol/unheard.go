package protocol

import (
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

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
	fits := func(l lease.Limit) bool {
		return !lease.Unlimited.Equal(l) && (p == UpTo || lease.Blocked.Equal(l) || n <= grantable(l, t.Policy.Headroom))
	}
	return p != InLine && (active > 0 || t.Policy.ColdStart == lease.ColdStartDeny) &&
		!slices.ContainsFunc(t.Proposed.Limits, func(l lease.Limit) bool { return !fits(l) })
}

// Denies reports whether every request that an Unheard decides on is denied. With StartEmpty a bucket of
// which nothing was heard may be empty.
func (t *Terms) Denies(active int64) bool {
	return active == 0 || t.Policy.Fallback == lease.FallbackDeny || slices.ContainsFunc(t.Proposed.Limits, lease.Blocked.Equal) ||
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

// share is u as a share of limits, of which windows are left out.
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
func (u *Unheard) Outlook(now clock.Instant, n int64, t *Terms, active int64, callTimeout time.Duration) Outlook {
	p, s := t.part(active), u.share(t.Proposed.Limits)
	o := Outlook{Remaining: exact.MaxUnits, RetryAfter: fallbackPause, ResetAfter: max(0, u.FullAt(t, active).Sub(now))}
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

// Meet has c, which was just started and knows nothing, go on where u ended, which decided by these
// limits: c owes what u has admitted.
func (c *Client) Meet(u *Unheard, limits []lease.Limit) {
	s := &share{}
	s.follow(0, limits, false)
	for k, l := range limits {
		if l.Windowed() {
			sc, at := shareScale(l), int64(u.emptyAt[k])/1000
			s.windows[k].advance(&sc, at, 0)
			s.windows[k].charge(&sc, at, u.windowed)
		} else {
			s.emptyAt[k] = u.emptyAt[k]
		}
	}
	c.fallback, c.debt = s, u.debt
}

// Heard reports whether any reply has come.
func (m *Memory) Heard() bool { return m.replied }

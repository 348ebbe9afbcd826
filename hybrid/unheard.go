package hybrid

import (
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
)

// While a node is away, a request of a key that is not in use costs no entry: whoever sends requests
// may make up keys, and an entry for each would be kilobytes, and a call once the node is back
// (docs/protocol.md section 8.14). A denial that needs no state has not even a slot. A key of which
// this process has never heard has the local share of its slot.

// answerAway answers r for a key that is not in use, if its node is away and takes no probe now. done
// is false where an entry has to decide.
func (l *Limiter) answerAway(r *request) (d decision, done bool) {
	s := l.keys.load(r.name)
	if s != nil && s.entry.Load() != nil || l.cfg.Scope == ScopeProcess {
		return decision{}, false
	}
	n, now := l.nodeOf(r.name, nodeUnknown), l.cfg.Clock.Now()
	b := n.breaker
	if !b.Away(now) || n.underWay.Load() < batchesMax && n.wantsProbe(now, l.defaults.Target) {
		return decision{}, false
	}
	own, err := l.proposedFor(s, r.name, r.key)
	if err != nil {
		return decision{err: err}, true
	}
	t := protocol.Terms{Policy: &l.cfg.Policy, Proposed: own.config}
	if !t.Decides(b.Active(), r.n, r.patience) {
		return decision{}, false
	}
	if r.patience == protocol.UpTo {
		r.n = min(r.n, t.Most())
	}
	if t.Denies(b.Active()) {
		if s != nil && l.keys.idle.heard(s) {
			return decision{}, false // other limits may be in force than this process proposes
		}
		return l.decided(r, 0, now, &protocol.Unheard{}, &t, b.Active()), true
	}
	if s == nil {
		if s, err = l.addSlot(r.name); err != nil {
			return decision{err: err}, true
		}
	}
	idle := &l.keys.idle
	idle.mu.Lock()
	defer idle.mu.Unlock()
	if s.gone || s.entry.Load() != nil || s.draw != nil || s.memory.Heard() || l.state.Load() != stateOpen ||
		s.unheard != nil && !slices.Equal(s.own.Limits, own.config.Limits) {
		return decision{}, false
	}
	if s.unheard == nil {
		s.unheard = new(protocol.Unheard)
	}
	took := s.unheard.Take(now, r.least(), r.n, &t, b.Active())
	s.own, s.given = own.config, own.given
	idle.unlinkLocked(s)
	if idle.linkLocked(s, now, s.unheard.FullAt(&t, b.Active()).Sub(now)) {
		l.scheduler.wake()
	}
	return l.decided(r, took, now, s.unheard, &t, b.Active()), true
}

// wantsProbe reports whether a probe is due that a request should send: the first that comes, and
// another one a Target later if the scheduler has not come to it.
func (h *health) wantsProbe(now clock.Instant, target time.Duration) bool {
	last := h.probeAsked.Load()
	return !h.breaker.Holds(now) && now.Sub(clock.Instant(last)) >= target && h.probeAsked.CompareAndSwap(last, int64(now))
}

// decided is the answer to r, which u has given took tokens, and counts it.
func (l *Limiter) decided(
	r *request, took int64, now clock.Instant, u *protocol.Unheard, t *protocol.Terms, active int64,
) decision {
	o := u.Outlook(now, r.least(), t, active, l.cfg.CallTimeout)
	d := decision{ok: took > 0, taken: took, source: SourceFallback, outlook: &o, counted: took == 0}
	l.counters.fallback.Add(took)
	if !d.ok {
		d.wait = o.RetryAfter
	}
	if took < r.n {
		l.counters.deny(o.Limit, r.n-took)
	}
	r.key.rest()
	return d
}

// deny counts n tokens as denied because of one limit, for a key that has no entry to count them.
func (c *counters) deny(l Limit, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.retired.denied += n
	c.sum.denied += n
	c.limits.of(l).Denied += n
}

// heard reports whether any reply for s, a key at rest, has come.
func (l *idleList) heard(s *slot) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return s.memory.Heard()
}

// meetLocked has e, which brings s into use, go on with the share of s.
func (s *slot) meetLocked(e *entry) {
	if s.unheard != nil {
		e.client.Meet(s.unheard, s.own.Limits)
		s.unheard = nil
	}
}

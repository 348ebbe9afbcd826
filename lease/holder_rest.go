package lease

import (
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
)

// Memory is what is left of a Client whose key has not been used for a while: what it must know to
// notice that the bucket was lost, and what it would otherwise have to learn again. It is small,
// since a process may have a million keys at rest. The zero value knows nothing.
type Memory struct {
	lineage  lineage
	executed clock.Instant // of the last reply
	ttl      time.Duration
	active   int64
	config   *Config // in force, where it is not what the holder proposes
	replied  bool
	conflict bool
}

// Rest is what h remembers if it is let go now. It is false where more than an estimate would be
// lost: tokens, debts, an open call, an outage, or the local share that serves in one.
func (h *Holder) Rest() (Memory, bool) {
	if !h.Idle() || h.Degraded() || h.fallback != nil || h.Outdated() {
		return Memory{}, false
	}
	m := Memory{
		lineage: h.heard.lineage, executed: h.heard.executed, ttl: h.ttl,
		active: h.heard.active, replied: h.heard.replied, conflict: h.conflict,
	}
	if h.config.Version.Revision > 0 || h.config.Version.Deploy != h.proposed || h.conflict {
		c := h.config
		c.TTL = h.ttlLeast
		m.config = &c
	}
	return m, true
}

// Recall has h, which has just been started, go on where the one ended that Rest was asked of.
func (h *Holder) Recall(m Memory) {
	h.heard.lineage, h.heard.executed, h.ttl = m.lineage, m.executed, m.ttl
	h.heard.active, h.heard.replied, h.conflict = m.active, m.replied, m.conflict
	if m.config != nil {
		h.config, h.ttlLeast = *m.config, m.config.TTL
	}
	h.breaker.longest = h.ttl
	h.heard.limits = h.config.Limits
	for k, l := range h.config.Limits {
		h.heard.levels[k] = l.Capacity() // it has had a T or more to fill up
	}
	h.learned()
}

// Idle reports whether nothing would be lost by forgetting this holder now.
func (h *Holder) Idle() bool {
	return !h.calling && !h.isOpen && h.Pool.Held() == 0 && !h.owes()
}

// Lifetime is how long after the last use the bucket is full again and every lease has ended:
// forgetting the holder then changes nothing.
func (h *Holder) Lifetime() time.Duration {
	longest := time.Duration(0)
	for _, l := range h.config.Limits {
		longest = max(longest, l.TimeToFull())
	}
	return longest + h.ttl
}

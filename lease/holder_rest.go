package lease

import (
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
)

// Memory is what is left of a Holder that has not been used for a while: what it must know of its bucket to notice that
// the bucket was lost, and what it would otherwise learn again. The zero value knows nothing.
type Memory struct {
	epoch, counter int64
	epochUntil     clock.Instant
	heardTTL, ttl  time.Duration
	active         int64
	config         *Config // in force, where it is not what the holder proposes
	replied        bool
	conflict       bool
}

// Rest is what h remembers if it is let go now; false where more would be lost than an estimate: tokens, debts, an open
// call, an outage, or a local bucket that serves in one.
func (h *Holder) Rest() (Memory, bool) {
	if !h.Idle() || h.Degraded() || h.fallback != nil || h.outdated {
		return Memory{}, false
	}
	m := Memory{
		epoch: h.epoch, counter: h.counter, epochUntil: h.epochUntil, heardTTL: h.heardTTL, ttl: h.config.TTL,
		active: h.active, replied: h.replied, conflict: h.conflict,
	}
	if h.config.Version.Revision > 0 || h.config.Version.Deploy != h.proposed || h.conflict {
		c := h.config
		m.config = &c
	}
	return m, true
}

// Recall is for a Holder that was just started: it goes on where the one that Rest was asked of ended.
func (h *Holder) Recall(m Memory) {
	h.epoch, h.counter, h.epochUntil, h.heardTTL = m.epoch, m.counter, m.epochUntil, m.heardTTL
	h.active, h.replied, h.conflict = m.active, m.replied, m.conflict
	if m.config != nil {
		h.config = *m.config
	}
	h.config.TTL = max(h.config.TTL, m.ttl)
	h.breaker.longest = h.config.TTL
	h.level = h.config.Capacity() // it has had a T or more to fill up
}

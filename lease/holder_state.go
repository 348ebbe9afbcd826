package lease

import (
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
)

// DeniedUntil is when the delay after a shortfall ends: before it the bucket is known to be empty. 0 for none.
func (h *Holder) DeniedUntil() clock.Instant { return h.deniedUntil }

// Spares reports whether the bucket and this process are known to have n tokens all the same, having had fewer than a larger request
// wanted. Only of a bucket that nobody else draws from is that known.
func (h *Holder) Spares(n int64) bool { return h.Alone() && n <= h.level+h.Pool.Held() }

// Replied reports whether the bucket has ever answered.
func (h *Holder) Replied() bool { return h.replied }

// Others is how many tokens other processes held at the last reply: they may yet come back.
func (h *Holder) Others() int64 { return h.others }

// Alone reports whether no other process was active on the bucket at the last reply.
func (h *Holder) Alone() bool { return h.replied && h.active <= h.policy.weight() }

// TTL is the T in force.
func (h *Holder) TTL() time.Duration { return h.config.TTL }

// Limits are the limits in force. The slice may not be changed.
func (h *Holder) Limits() []Limit { return h.config.Limits }

// Capacity is the largest n that can ever be granted: the smallest burst of the limits in force.
func (h *Holder) Capacity() int64 { return h.config.Capacity() }

// Idle reports whether nothing would be lost by forgetting this holder now.
func (h *Holder) Idle() bool {
	return !h.sending && !h.isOpen && h.Pool.Held() == 0 && h.debt == 0 && h.refund == 0 && h.unused == 0
}

// Conflict reports whether the bucket ever answered with another configuration of the same version: then two
// processes were deployed with different limits, and which of them holds is chance. Raise the version.
func (h *Holder) Conflict() bool { return h.conflict }

// Lifetime is how long after the last use the bucket is full again and every lease has ended: forgetting the
// holder then changes nothing.
func (h *Holder) Lifetime() time.Duration {
	longest := time.Duration(0)
	for _, l := range h.config.Limits {
		longest = max(longest, l.TimeToFull())
	}
	return longest + h.config.TTL
}

// Denied is the tokens of requests that were refused and not served later, so far.
func (h *Holder) Denied() int64 { return h.Pool.Missed() - h.retried }

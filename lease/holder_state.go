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
func (h *Holder) TTL() time.Duration { return h.ttl }

// Limits are the limits in force. The slice may not be changed.
func (h *Holder) Limits() []Limit { return h.config.Limits }

// Capacity is the largest n that can ever be granted: the smallest burst of the limits in force.
func (h *Holder) Capacity() int64 { return h.config.Capacity() }

// Outdated reports whether the bucket is known to have been changed since the last reply was made; see Refresh.
func (h *Holder) Outdated() bool { return h.outdated }

// Pending is how many tokens are on their way back to the bucket, or wait for the call that takes them there.
func (h *Holder) Pending() int64 {
	n := h.refund + h.unused
	if h.isOpen {
		n += h.open.Refund + h.open.Returned + h.open.Unused
	}
	return n
}

// Shortage is what the last reply said about the time at which need tokens can be there: not before Instant; need is 0
// where it had as many as were needed.
func (h *Holder) Shortage() (need int64, at clock.Instant) { return h.shortOf, h.shortUntil }

// Executed is the earliest time at which the bucket may have executed the last call.
func (h *Holder) Executed() clock.Instant { return h.firstSent }

// Gather is the fewest tokens that a request which gathers should be given at once. A bucket that nobody else draws
// from keeps them as well until all are there; one that others draw from hovers around its set point, so
// that what is far below will be there at once some time, and more will not.
func (h *Holder) Gather() int64 {
	if h.Alone() {
		return maxUnits
	}
	n := int64(maxUnits)
	for _, l := range h.config.Limits {
		point := min(float64(l.Capacity())/2, max(1, l.Rate()*h.config.Target.Seconds()/2))
		n = min(n, int64(point/2))
	}
	return max(1, n)
}

// owes reports whether the next call has something to bring beside its report.
func (h *Holder) owes() bool { return h.debt > 0 || h.refund > 0 || h.unused > 0 }

// Idle reports whether nothing would be lost by forgetting this holder now.
func (h *Holder) Idle() bool {
	return !h.sending && !h.isOpen && h.Pool.Held() == 0 && !h.owes()
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
	return longest + h.ttl
}

// Denied is the tokens of requests that were refused and not served later, so far.
func (h *Holder) Denied() int64 { return h.DeniedOf(h.Pool.Missed()) }

// DeniedOf is Denied where the Pool had missed so many tokens.
func (h *Holder) DeniedOf(missed int64) int64 { return missed - h.retried }

// Attempts is the tokens that were asked for so far; some count twice.
func (h *Holder) Attempts() int64 { return h.Account().Admitted + h.Pool.Missed() }

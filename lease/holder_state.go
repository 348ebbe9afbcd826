package lease

import "time"

// Replied reports whether the bucket has ever answered.
func (h *Holder) Replied() bool { return h.heard.replied }

// Alone reports whether no other process was active on the bucket at the last reply.
func (h *Holder) Alone() bool { return h.heard.replied && h.heard.active <= h.policy.weight() }

// TTL is the T in force.
func (h *Holder) TTL() time.Duration { return h.ttl }

// Limits are the limits in force. The slice may not be changed.
func (h *Holder) Limits() []Limit { return h.config.Limits }

// Capacity is the largest n that can ever be granted, as far as is known: the smallest burst of the limits in force. For
// any number of goroutines.
func (h *Holder) Capacity() int64 { return h.Pool.capacity.Load() }

// KnowCapacity says what Capacity is by now.
func (h *Holder) KnowCapacity(n int64) { h.Pool.capacity.Store(n) }

// Pending is how many tokens are on their way back to the bucket, or wait for the call that takes them there.
func (h *Holder) Pending() int64 {
	n := h.refund + h.unused
	if h.isOpen {
		n += h.open.Refund + h.open.Returned + h.open.Unused
	}
	return n
}

// portion is the fewest tokens that a request which collects them should be given at once. A bucket that nobody else draws
// from keeps them as well until all are there; one that others draw from hovers around its set point, so
// that what is far below will be there at once some time, and more will not.
func (h *Holder) portion() int64 {
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
	return !h.calling && !h.isOpen && h.Pool.Held() == 0 && !h.owes()
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
func (h *Holder) DeniedOf(missed int64) int64 { return missed - h.servedLater }

// Uncount says that n tokens that were counted as missed were no attempt after all.
func (h *Holder) Uncount(n int64) { h.servedLater += n }

// Heard is what the last reply said.
func (h *Holder) Heard() Heard { return h.heard.Heard }

// Attempts is the tokens that were asked for so far; some count twice.
func (h *Holder) Attempts() int64 { return h.Account().Admitted + h.Pool.Missed() }

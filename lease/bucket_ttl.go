package lease

import "time"

// The rule of T, docs/protocol.md sections 6.6 and 6.7. Every holder proposes a T, and the bucket's
// is the longest of those proposed lately, because a lease must outlast the slowest of its
// networks.
//
// T grows no faster than time passes: a proposal that is longer by d is announced at once
// (Grant.LeaseMax) and in force d later. So whoever heard a LeaseMax knows for how long leases may
// last that were granted since, and a bucket that was lost need not wait longer than that for them
// to end.
const (
	// ttlLiveMax is the longest T to which a bucket in use grows; only a new bucket takes a longer
	// one.
	ttlLiveMax = 10 * time.Second
	// ttlCalm is how long a T is kept after it was last proposed; well above the time between two
	// calls of a busy process.
	ttlCalm = 3 * time.Second
)

// propose takes in the T of one call's configuration; newer says that its version is.
func (b *Bucket) propose(ttl int64, newer bool) {
	s := &b.state
	before := s.ttl
	ttl = min(ttl, max(s.ttl, micros(ttlLiveMax)))
	switch {
	case newer && ttl <= s.ttl:
		s.ttl, s.proposed, s.proposedAt = ttl, ttl, s.now
	case newer || ttl > s.ttl && s.proposed <= s.ttl:
		s.proposed, s.proposedAt = ttl, s.now
	default:
		// A proposal that rises while an earlier one waits goes on waiting with it, or T would
		// never grow with a network that gets slower and slower.
		s.proposed = max(s.proposed, ttl)
		wait := micros(ttlCalm)
		if s.proposed > s.ttl {
			wait = s.proposed - s.ttl
		}
		if s.now-s.proposedAt >= wait {
			s.ttl, s.proposed, s.proposedAt = s.proposed, ttl, s.now
		}
	}
	s.ring.fit(s.now, s.ttl, s.ttl > before)
}

// leaseMax is how long the longest lease may last that exists now, that of this call included.
func (b *Bucket) leaseMax() int64 {
	s := &b.state
	return max(s.ttl, s.proposed, s.ring.lastEnds()-s.now)
}

// lasting is how long leases may still last that a lost bucket had granted, if r tells of that
// bucket and it was lost at least ago microseconds ago. LeaseMax had grown by no more than the time
// since r's holder heard it. That is the server's or the holder's, whichever is longer: the
// server's clock may have stepped back, and the holder's age ended when r was sent.
func (b *Bucket) lasting(r *Request, ago int64) int64 {
	heard := micros(r.LeaseMax)
	age := max(b.state.clock-r.HeardAt, micros(r.HeardAge))
	return min(heard+max(0, age-ago), max(heard, micros(ttlLiveMax)))
}

package lease

import "time"

// The rule of T. Every holder proposes a T, and the bucket's is the longest of those proposed
// lately, because a lease must outlast the slowest of its networks. Two things bound how it
// changes.
//
// It grows no faster than time passes: a proposal that is longer by d is announced at once
// (Grant.LeaseMax) and in force d later. And the T of a bucket in use grows to no more than
// ttlLiveMax; a longer one is taken over by a new bucket only. So whoever heard a LeaseMax knows
// for how long leases may last that were granted since, and a bucket that was lost need not wait
// longer than that for them to end (lasting).
//
// It shrinks to the longest proposal of the last ttlCalm, or with a newer version at once. Leases
// out keep their time.
const (
	ttlLiveMax = 10 * time.Second
	// ttlCalm is well above the time between two calls of a process that is busy.
	ttlCalm = 3 * time.Second
)

// propose takes in the T of one call's configuration.
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
		// One that rises while the one before it waits goes on waiting with it: else T would never
		// grow with a network that gets slower and slower.
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

// leaseMax is how long the longest lease may last that exists now, the one of this call included.
func (b *Bucket) leaseMax() int64 {
	s := &b.state
	return max(s.ttl, s.proposed, s.ring.lastEnds()-s.now)
}

// lasting is how long leases could last that a bucket of which r tells had granted when it was
// lost, so long ago at least. By the rule of T, LeaseMax had grown by no more than the time since
// it was heard. That time is the server's or the caller's, whichever is longer: the server's may
// have stepped back, and the caller's ended when r was sent.
func (b *Bucket) lasting(r *Request, ago int64) int64 {
	most := micros(r.LeaseMax)
	age := max(b.state.clock-r.HeardAt, micros(r.HeardAge))
	return min(most+max(0, age-ago), max(most, micros(ttlLiveMax)))
}

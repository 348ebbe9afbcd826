package lease

import "time"

// How a bucket begins, and how it finds out that an earlier state was lost: docs/protocol.md
// sections 6.1 to 6.5.

// follow is the part of step 2 that deals with lost state and changed configuration.
func (b *Bucket) follow(clock int64, r *Request) {
	if !b.state.exists {
		b.create(clock, r)
	} else {
		b.recover(r)
		b.adopt(r.Config)
	}
	b.clip()
}

// create starts a new bucket: full, or empty where the caller asks for that or proves that one was
// lost.
func (b *Bucket) create(clock int64, r *Request) {
	b.install(clock, r.Config)
	if r.Epoch > 0 && b.possible(r) {
		b.state.epoch = max(b.state.epoch, r.Epoch+1)
		b.freeze(b.state.now + b.lasting(r, 0))
	}
}

// install makes a bucket with the levels of a new one.
func (b *Bucket) install(clock int64, c Config) {
	ttl := micros(c.TTL)
	b.config = c
	b.state = bucketState{
		exists: true, clock: clock, now: clock, created: clock, epoch: max(clock, 1),
		ttl: ttl, proposed: ttl, proposedAt: clock, ring: newRing(clock, ttl),
	}
	b.records = nil
	b.rescale()
	b.state.fair = newFair(clock, b.rate())
	b.fill()
	b.state.setAt = max(0, clock-1) // what is drawn at this very moment was drawn after
}

// rescale follows a change of configuration, which has been validated.
func (b *Bucket) rescale() {
	for k, l := range b.config.Limits {
		b.scales[k], _ = newScale(l, b.config.Overcommit)
	}
}

// fill gives every level what a new bucket would have; while a loss is waited out, nothing.
func (b *Bucket) fill() {
	s := &b.state
	for k := range b.config.Limits {
		s.level[k], s.rest[k] = b.scales[k].Capacity*b.scales[k].Unit, 0
		if b.config.StartEmpty || s.now < s.frozen {
			s.level[k] = 0
		}
	}
	s.setAt = s.now
}

// recover compares what the caller last heard with what is stored.
func (b *Bucket) recover(r *Request) {
	s := &b.state
	if r.Epoch == 0 || !b.possible(r) {
		return
	}
	switch until := s.created + b.lasting(r, s.now-s.created); {
	case r.Epoch > s.epoch, r.Epoch == s.epoch && r.Counter > s.counter:
		// A replica was promoted that had not heard of everything. Calls that it does not know have
		// overtaken its records, and their requests may arrive once more: a later epoch makes all
		// records unknown.
		b.freeze(s.now + b.lasting(r, 0))
		s.epoch, s.counter = r.Epoch+1, r.Counter
	case r.Epoch < s.epoch && s.now < until:
		// A bucket was lost, and somebody who did not know of it has started this one. What the
		// lost one granted, it granted before this one was created.
		b.freeze(until)
	}
}

// claimSlack is how far the server's clock may have stepped back since it gave out an epoch or
// counted a call.
const claimSlack = 24 * time.Hour

// possible reports whether r can have heard the epoch and the counter that it claims. An epoch is
// the server's time when it began, and no server executes more than one call of a bucket in a
// microsecond. A claim that is not possible proves nothing: one buggy caller could otherwise raise
// the bucket's epoch and counter beyond what the others will ever reach.
func (b *Bucket) possible(r *Request) bool {
	s := &b.state
	return r.Epoch <= s.clock+micros(claimSlack) &&
		(r.Epoch < s.epoch || r.Counter <= s.now-s.created+micros(claimSlack))
}

// freeze empties every level and lets none refill before until, when every holding that this bucket
// may know nothing of has run out.
func (b *Bucket) freeze(until int64) {
	s := &b.state
	s.level, s.rest = [LimitsMax]int64{}, [LimitsMax]int64{}
	s.frozen = max(s.frozen, until)
	s.setAt = s.now
}

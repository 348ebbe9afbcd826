package lease

import "time"

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

// create starts a new bucket: full, or empty where the caller asks for it or proves that one was lost.
func (b *Bucket) create(clock int64, r *Request) {
	b.install(clock, r.Config)
	if r.Epoch > 0 && b.possible(r) {
		b.state.epoch = max(b.state.epoch, r.Epoch+1)
		b.freeze(b.state.now + b.lasting(r, 0))
	}
}

// claimSlack is how far the server's clock may have stepped back since it gave out an epoch or
// counted a call.
const claimSlack = 24 * time.Hour

// possible reports whether r can have heard the epoch and the counter that it claims: an epoch is
// the server's time when it began, and no server executes more than one call of a bucket in a
// microsecond. Else one buggy caller could raise the bucket's own beyond what the others will ever
// reach. A claim that is not possible proves nothing.
func (b *Bucket) possible(r *Request) bool {
	s := &b.state
	return r.Epoch <= s.clock+micros(claimSlack) &&
		(r.Epoch < s.epoch || r.Counter <= s.now-s.created+micros(claimSlack))
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

// fill gives every level what a new bucket would have; while a loss is waited out, nothing.
func (b *Bucket) fill() {
	s := &b.state
	for k := range b.config.Limits {
		s.level[k], s.rest[k] = b.scales[k].burst*b.scales[k].unit, 0
		if b.config.StartEmpty || s.now < s.frozen {
			s.level[k] = 0
		}
	}
	s.setAt = s.now
}

// fresh is the level of a limit that was not there before, which starts full; but not after a loss,
// for as long as it takes to fill: it may be one that was lost with the bucket, and brought back by
// those who have the newer version.
func (b *Bucket) fresh(k int) int64 {
	s := &b.state
	if s.frozen > 0 && s.now < s.frozen+micros(b.scales[k].timeToFull()) {
		return 0
	}
	return b.scales[k].burst * b.scales[k].unit
}

func (b *Bucket) rescale() {
	for k, l := range b.config.Limits {
		// Every configuration was validated before it got here.
		b.scales[k], _ = newScale(l, b.config.Overcommit)
	}
}

// freeze empties every level and lets none refill before until: when every holding that this bucket
// knows nothing of has run out.
func (b *Bucket) freeze(until int64) {
	s := &b.state
	s.level = [LimitsMax]int64{}
	s.rest = [LimitsMax]int64{}
	s.frozen = max(s.frozen, until)
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
		// A replica that had not heard of everything was promoted. What its records say was overtaken by calls
		// that it does not know, whose requests may arrive once more: a later epoch makes them unknown.
		b.freeze(s.now + b.lasting(r, 0))
		s.epoch, s.counter = r.Epoch+1, r.Counter
	case r.Epoch < s.epoch && s.now < until:
		// A bucket was lost, and this one was started by somebody who did not know. What was
		// granted before was granted before it was created.
		b.freeze(until)
	}
}

// adopt takes over the caller's configuration where its version is higher, and takes in the T that
// it proposes.
func (b *Bucket) adopt(c Config) {
	newer := c.Version.After(b.config.Version)
	if newer {
		b.reshape(c)
	}
	b.propose(micros(c.TTL), newer)
}

// reshape changes the limits. Levels are settled at the old rate already. A raised burst keeps the level, a
// lowered one keeps what was used; a limit that is new starts full.
func (b *Bucket) reshape(c Config) {
	b.remember()
	s := &b.state
	old, was, rate := b.config, *b, b.rate()
	b.config = c
	b.rescale()
	// Each holder's part of the rate is the same part of the new one; else a rate that rises is reached only after seconds.
	s.fair.share = float64(s.fair.share * float64(b.rate()/rate))
	s.level, s.rest = [LimitsMax]int64{}, [LimitsMax]int64{}
	for k, from := range inherit(old.Limits, c.Limits) {
		switch {
		case from < 0:
			s.level[k] = b.fresh(k)
		case old.Limits[from].same(c.Limits[k]) && was.scales[from] == b.scales[k]:
			s.level[k], s.rest[k] = was.state.level[from], was.state.rest[from]
		default:
			s.level[k] = convert(was.state.level[from], was.scales[from], b.scales[k])
		}
	}
	s.setAt = s.now
}

// inherit says for each of the new limits which of the old ones it goes on with; -1 for none, which
// makes it new. One that has not changed goes on with itself, wherever it stands now; of the others
// first those of equal Per belong together, in their order, then those that are left. By position
// alone, a limit put in front would hand every other one's level to its neighbour and start the
// last one full.
func inherit(old, limits []Limit) []int {
	from := make([]int, len(limits))
	taken := [LimitsMax]bool{}
	for k := range from {
		from[k] = -1
	}
	for _, alike := range []func(o, l Limit) bool{
		Limit.same,
		func(o, l Limit) bool { return o.Per == l.Per },
		func(o, l Limit) bool { return true },
	} {
		for k, l := range limits {
			for i, o := range old {
				if from[k] < 0 && !taken[i] && alike(o, l) {
					from[k], taken[i] = i, true
				}
			}
		}
	}
	return from
}

// same reports whether l and o are one limit, however their bursts are written.
func (l Limit) same(o Limit) bool {
	return l.Tokens == o.Tokens && l.Per == o.Per && l.Capacity() == o.Capacity()
}

// convert expresses a level in the units of another limit, after taking off what the burst lost.
func convert(level int64, from, to scale) int64 {
	if from.burst > to.burst {
		level = max(0, level-(from.burst-to.burst)*from.unit)
	}
	return level/from.unit*to.unit + mulDiv(level%from.unit, to.unit, from.unit)
}

// Configure executes one operation other than a lease call when the server's clock says clock. c is
// used by OpSet and OpSetIfAbsent only. An error that wraps ErrInvalidConfig leaves the bucket as
// it was.
func (b *Bucket) Configure(clock int64, op Op, c Config) (State, error) {
	saved, changed := *b, false
	b.settle(clock)
	s := &b.state
	switch op {
	case OpSet, OpSetIfAbsent:
		if err := c.Validate(); err != nil {
			*b = saved
			return State{}, err
		}
		if op == OpSetIfAbsent && s.exists && b.config.Version.Revision > 0 {
			break
		}
		changed = true
		c.Version.Deploy = max(c.Version.Deploy, b.config.Version.Deploy)
		c.Version.Revision = b.config.Version.Revision + 1
		if err := c.Validate(); err != nil { // the revisions are used up
			*b = saved
			return State{}, err
		}
		if !s.exists {
			b.install(clock, c)
			break
		}
		b.adopt(c)
		b.clip()
	case OpReset:
		if changed = s.exists; changed {
			b.fill()
			b.clip()
		}
	}
	if changed {
		b.remember()
	}
	st := b.inspect()
	st.Changed = changed
	if !changed {
		*b = saved // what changes nothing leaves no trace
	}
	return st, nil
}

func (b *Bucket) inspect() State {
	s := &b.state
	if !s.exists {
		return State{}
	}
	st := State{
		Exists:       true,
		Config:       b.config,
		Ledger:       s.ring.ledger(),
		ActiveWeight: s.ring.weightSum(),
		Epoch:        s.epoch,
		Counter:      s.counter,
		ServerTime:   s.clock,
	}
	st.Config.TTL = duration(s.ttl)
	for k := range b.config.Limits {
		st.Levels[k], st.Next[k] = b.level(k)
	}
	return st
}

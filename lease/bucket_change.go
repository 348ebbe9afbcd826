package lease

// follow is the part of step 2 that deals with lost state and changed configuration.
func (b *Bucket) follow(now int64, r *Request) {
	s := &b.state
	if !s.exists {
		b.create(now, r)
	} else {
		b.recover(r)
		b.adopt(r.Config)
	}
	b.clip()
}

// create starts a new bucket: full, or empty where the caller asks for it or proves that one was lost.
func (b *Bucket) create(now int64, r *Request) {
	b.install(now, r.Config)
	s := &b.state
	if r.Epoch > 0 {
		s.epoch = max(now, r.Epoch+1)
		b.freeze(max(s.ttl, micros(r.HeardTTL)))
	}
}

// install makes a bucket with the levels of a new one.
func (b *Bucket) install(now int64, c Config) {
	ttl := micros(c.TTL)
	b.config = c
	b.state = bucketState{exists: true, now: now, epoch: max(now, 1), created: now, ttl: ttl, ring: newRing(now, ttl)}
	b.records = nil
	b.rescale()
	b.state.fair = newFair(now, b.rate())
	b.fill()
}

// fill gives every level what a new bucket would have.
func (b *Bucket) fill() {
	for k := range b.config.Limits {
		b.state.level[k], b.state.rest[k] = b.fresh(k), 0
		if b.config.StartEmpty {
			b.state.level[k] = 0
		}
	}
}

// fresh is the level of a limit that starts full; while a loss is waited out, nothing does.
func (b *Bucket) fresh(k int) int64 {
	if b.state.now < b.state.frozen {
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

// freeze empties every level and lets none refill for d microseconds: long enough for every holding that
// this bucket knows nothing of to run out.
func (b *Bucket) freeze(d int64) {
	s := &b.state
	s.level = [LimitsMax]int64{}
	s.rest = [LimitsMax]int64{}
	s.frozen = max(s.frozen, s.now+d)
}

// recover compares what the caller last heard with what is stored.
func (b *Bucket) recover(r *Request) {
	s := &b.state
	heard := max(s.ttl, micros(r.HeardTTL))
	switch {
	case r.Epoch == 0:
	case r.Epoch > s.epoch, r.Epoch == s.epoch && r.Counter > s.counter:
		// A replica that had not heard of everything was promoted. What its records say was overtaken by calls
		// that it does not know, whose requests may arrive once more: a later epoch makes them unknown.
		b.freeze(heard)
		s.epoch, s.counter = r.Epoch+1, r.Counter
	case r.Epoch < s.epoch && s.now-s.created < heard:
		// A bucket was lost, and this one was started by somebody who did not know.
		b.freeze(heard)
	}
}

// adopt takes over the caller's configuration where its version is higher, and a longer T at once.
func (b *Bucket) adopt(c Config) {
	s := &b.state
	ttl := max(s.ttl, micros(c.TTL))
	if c.Version.After(b.config.Version) {
		ttl = micros(c.TTL)
		b.reshape(c)
	}
	grew := ttl > s.ttl
	s.ttl = ttl
	s.ring.fit(s.now, ttl, grew, b.variant)
}

// reshape changes the limits. Levels are settled at the old rate already. A raised burst keeps the level, a
// lowered one keeps what was used; a limit that is new starts full.
func (b *Bucket) reshape(c Config) {
	s := &b.state
	old, oldScales := b.config, b.scales
	was := b.rate()
	b.config = c
	b.rescale()
	// Each holder's part of the rate is the same part of the new one; else a rate that rises is reached only after seconds.
	s.fair.share = float64(s.fair.share * float64(b.rate()/was))
	for k := range b.state.level {
		switch {
		case k >= len(c.Limits):
			s.level[k], s.rest[k] = 0, 0
		case k >= len(old.Limits):
			s.level[k], s.rest[k] = b.fresh(k), 0
		default:
			s.level[k] = convert(s.level[k], oldScales[k], b.scales[k])
			s.rest[k] = 0
		}
	}
}

// convert expresses a level in the units of another limit, after taking off what the burst lost.
func convert(level int64, from, to scale) int64 {
	if from.burst > to.burst {
		level = max(0, level-(from.burst-to.burst)*from.unit)
	}
	return level/from.unit*to.unit + mulDiv(level%from.unit, to.unit, from.unit)
}

// Configure executes one operation other than a lease call at server time now. c is used by OpSet and
// OpSetIfAbsent only. An error that wraps ErrInvalidConfig leaves the bucket as it was.
func (b *Bucket) Configure(now int64, op Op, c Config) (State, error) {
	saved, changed := *b, false
	b.settle(now)
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
		if !s.exists {
			c.Version.Revision = 1
			b.install(now, c)
			break
		}
		c.Version.Deploy = max(c.Version.Deploy, b.config.Version.Deploy)
		c.Version.Revision = b.config.Version.Revision + 1
		b.adopt(c)
		b.clip()
	case OpReset:
		if changed = s.exists; changed {
			b.fill()
			b.clip()
		}
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
		ServerTime:   s.now,
	}
	st.Config.TTL = duration(s.ttl)
	for k := range b.config.Limits {
		st.Levels[k] = s.level[k] / b.scales[k].unit
		st.Next[k] = duration(b.waitAt(k, st.Levels[k]+1))
	}
	return st
}

package lease

// Configure executes one operation other than a lease call when the server's clock says clock
// (docs/protocol.md section 6.15). c is used by OpSet and OpSetIfAbsent only. An operation that
// changes nothing leaves no trace, and neither does one that fails: the error wraps
// ErrInvalidConfig.
func (b *Bucket) Configure(clock int64, op Op, c Config) (State, error) {
	saved := *b
	b.settle(clock)
	changed, err := b.execute(clock, op, c)
	if err != nil {
		*b = saved
		return State{}, err
	}
	if changed {
		b.remember()
	}
	st := b.inspect()
	st.Changed = changed
	if !changed {
		*b = saved
	}
	return st, nil
}

func (b *Bucket) execute(clock int64, op Op, c Config) (changed bool, err error) {
	switch op {
	case OpSet, OpSetIfAbsent:
		if err := c.Validate(); err != nil {
			return false, err
		}
		if op == OpSetIfAbsent && b.state.exists && b.config.Version.Revision > 0 {
			return false, nil
		}
		c.Version.Deploy = max(c.Version.Deploy, b.config.Version.Deploy)
		c.Version.Revision = b.config.Version.Revision + 1
		if err := c.Validate(); err != nil { // the revisions are used up
			return false, err
		}
		if !b.state.exists {
			b.install(clock, c)
			return true, nil
		}
		b.adopt(c)
		b.clip()
		return true, nil
	case OpReset:
		if b.state.exists {
			b.fill()
			b.clip()
		}
		return b.state.exists, nil
	}
	return false, nil
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

package lease

import (
	"errors"
	"fmt"
)

// misfortune is what befalls processes, the store and its configuration. n is a process taken at random.
func (f *fleet) misfortune(n *node) {
	switch f.rnd.IntN(12) {
	case 0:
		if f.faults.Restart {
			f.log("process %d is killed and starts again", n.index)
			fresh := &node{index: n.index, ppm: n.ppm}
			fresh.init(f.name(), 0)
			f.nodes[n.index] = fresh
		}
	case 1, 2:
		if f.faults.Evict {
			f.log("the record of process %d is evicted", n.index)
			delete(f.bucket.records, n.id)
		}
	case 3, 4:
		if f.faults.SetLimits || f.faults.SetTTL {
			f.configure()
		}
	case 5:
		if f.faults.Flush && f.informed(n) {
			f.log("the bucket is lost; process %d knows", n.index)
			f.bucket = &Bucket{unfair: f.bucket.unfair, variant: f.bucket.variant}
			f.first(n)
		}
	case 6, 7:
		if f.faults.Failover {
			f.failover(n)
		}
	case 8:
		if f.faults.StepBack {
			back := f.rnd.Int64N(3 * micros(f.config.TTL))
			f.log("the server's clock steps back by %d", back)
			f.offset -= back
		}
	case 9:
		if f.faults.BlindFlush && f.slack == 0 && f.bucket.state.exists {
			f.log("the bucket is lost, and a process that does not know calls first")
			f.bucket = &Bucket{unfair: f.bucket.unfair, variant: f.bucket.variant}
			fresh := &node{index: n.index}
			fresh.init(f.name(), 0)
			f.nodes[n.index] = fresh
			f.slack = f.capacity()
			f.quietUntil = f.now + 3*micros(f.config.TTL)
			f.first(fresh)
		}
	case 10:
		if f.faults.StepForward && f.slack == 0 && f.bucket.state.exists {
			f.log("the server's clock steps forward")
			f.offset += f.rnd.Int64N(1_000_000)
			f.slack = 2 * f.capacity() // one refill and all holdings
			f.quietUntil = f.now + 2*micros(f.config.TTL)
		}
	}
}

// informed says whether n knows the latest epoch and everything that was executed.
func (f *fleet) informed(n *node) bool {
	return f.bucket.state.exists && n.epoch == f.bucket.state.epoch && n.counter == f.bucket.state.counter &&
		f.clock(n) < n.epochUntil
}

// first makes n the first to call after the bucket changed.
func (f *fleet) first(n *node) {
	f.quietUntil = max(f.quietUntil, f.now+2*micros(f.config.TTL))
	r := *n.Open(f.clock(n), f.nextSeq(), f.ask())
	f.execute(packet{node: n, request: &r})
}

// failover promotes a replica that knows only the copied state; now and then the copy is brought up to date.
func (f *fleet) failover(n *node) {
	switch {
	case f.copied == nil || f.rnd.IntN(2) == 0:
		f.copied = f.bucket.Clone()
	case f.informed(n):
		f.log("a replica at counter %d is promoted at %d; process %d knows", f.copied.state.counter, f.bucket.state.counter, n.index)
		f.bucket = f.copied.Clone()
		f.copied = nil
		f.first(n)
	}
}

// configure changes the limits for everybody, as SetLimits does.
func (f *fleet) configure() {
	c := f.config
	if f.faults.SetLimits {
		c.Limits = append([]Limit(nil), c.Limits...)
		for k := range c.Limits {
			if f.rnd.IntN(2) == 0 {
				c.Limits[k] = f.randomLimit()
			}
		}
		c.Overcommit = max(0, f.rnd.Int64N(6)-2)
	}
	if f.faults.SetTTL {
		c.TTL = f.randomTTL()
	}
	if f.faults.SetTTL && f.rnd.IntN(2) == 0 {
		// A longer T may also come as a proposal, with the same version.
		f.config.TTL = max(f.config.TTL, c.TTL)
		f.log("processes propose T %v", f.config.TTL)
		return
	}
	f.log("SetLimits %v, E %d, T %v", c.Limits, c.Overcommit, c.TTL)
	st, err := f.bucket.Configure(f.server(), OpSet, c)
	f.expires = f.server() + f.bucket.expiry()
	if err != nil {
		f.lost = err
		return
	}
	f.config = c
	f.config.Version = Version{} // the stored one has a higher revision and wins
	for k, m := range f.meters {
		m.advance(f.now)
		m.set(st.Config.Limits[k], st.Config.Overcommit)
	}
}

// check is what must hold after every step.
func (f *fleet) check() error {
	if f.lost != nil {
		return fmt.Errorf("refused: %w", f.lost)
	}
	live := int64(0)
	for _, n := range f.nodes {
		a := n.Account()
		if !a.Conserved() || a.Admitted < 0 || a.Burnt < 0 || a.Returned < 0 || a.Refunded < 0 || a.Refunded > a.Admitted {
			return fmt.Errorf("process %d lost or forged tokens: %+v", n.index, a)
		}
		if f.clock(n) < n.deadline {
			live += n.Pool.Held()
		}
	}
	if err := f.checkBucket(live); err != nil {
		return err
	}
	for k, m := range f.meters {
		if m.excess() > f.slack*meterUnit {
			return fmt.Errorf("(1) is broken for limit %d: %v, slack %d", k, m, f.slack)
		}
	}
	return nil
}

// checkBucket looks at the bucket as it would be if it was called now.
func (f *fleet) checkBucket(live int64) error {
	b := f.bucket
	if !b.state.exists {
		return nil
	}
	saved := b.state
	defer func() { b.state = saved }()
	if f.server() >= b.state.now {
		b.settle(f.server())
		b.clip()
	}
	s := &b.state
	for i, n := range s.ring.held {
		if n < 0 || s.ring.weight[i] < 0 {
			return errors.New("a slice of the ledger is negative")
		}
	}
	ledger := s.ring.ledger()
	for id, r := range b.records {
		if r.held < 0 || r.granted < 0 {
			return fmt.Errorf("record %s is negative: %+v", id, r)
		}
		if _, ok := s.ring.locate(r.place, s.now); ok && r.epoch == s.epoch && r.held > ledger {
			return fmt.Errorf("record %s holds %d, the ledger %d", id, r.held, ledger)
		}
	}
	known := f.now >= f.quietUntil && !f.faults.SharedID
	if known && live > ledger {
		return fmt.Errorf("processes hold %d tokens, the ledger knows of %d", live, ledger)
	}
	for k := range b.config.Limits {
		sc := b.scales[k]
		if s.level[k] < 0 || s.level[k] > sc.burst*sc.unit || s.rest[k] < 0 || s.rest[k] >= max(sc.tick, 1) {
			return fmt.Errorf("level %d is %d units, rest %d, burst %d", k, s.level[k], s.rest[k], sc.burst*sc.unit)
		}
		if room := max(0, sc.burst+b.config.Overcommit-ledger) * sc.unit; s.level[k] > room {
			return fmt.Errorf("level %d is %d units, B + E - O only %d", k, s.level[k], room)
		}
	}
	if known {
		for _, m := range f.meters {
			m.settled(ledger)
		}
	}
	return nil
}

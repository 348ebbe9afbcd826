package protocol

import (
	"time"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

const (
	// claimSlack bounds how far the server's clock may have stepped back since a holder's last reply (6.4).
	claimSlack = 24 * time.Hour
	// ttlLiveMax bounds the growth of T. A new bucket may start with a longer T (6.7).
	ttlLiveMax = 10 * time.Second
	// ttlGrowth bounds the growth of T to an eighth of the time that passes (6.7).
	ttlGrowth = 8
	// ttlCalm is the time after which T may shrink, much longer than a busy process takes between two calls.
	ttlCalm = 3 * time.Second
)

// follow creates the bucket if needed and applies section 6. was is the running time of the last call.
func (b *Bucket) follow(clock, was int64, r *lease.Request) {
	created := !b.exists
	if created {
		b.install(clock, r.Config)
	}
	if r.Epoch > 0 && b.possible(r) {
		b.recover(r, created)
	}
	if !created {
		b.adopt(r.Config, was)
	}
	b.clip()
}

func (b *Bucket) clip() {
	m := b.at()
	for _, l := range b.limits {
		l.clip(m)
	}
}

func (b *Bucket) install(clock int64, c lease.Config) {
	ttl := exact.Micros(c.TTL)
	*b = Bucket{
		exists: true, config: c, switched: SwitchOf(c.Limits), records: make(map[string]*record), executed: b.executed,
		moment: moment{clock: clock, now: clock}, created: clock, epoch: max(clock, 1),
		ttl: ttl, proposed: ttl, proposedAt: clock, stoodAt: clock, ring: newRing(clock, ttl),
	}
	b.limits = tallies(&c)
	b.fair = fair{share: b.fastest(), updated: clock}
	b.fill()
	b.setAt = max(0, clock-1) // a draw at the time of creation must come after setAt
}

// fill gives every limit the tokens of a new bucket, but none during a freeze (6.5, 6.15).
func (b *Bucket) fill() {
	m := b.at()
	for _, l := range b.limits {
		l.begin(m, !b.config.StartEmpty)
	}
	b.setAt = b.now
}

// recover freezes the bucket if state that the caller has heard of was lost (6.2, 6.3). An earlier bucket was
// lost if it had not expired when this bucket was created.
func (b *Bucket) recover(r *lease.Request, created bool) {
	until := b.created + b.lasting(r, b.now-b.created)
	lost := r.HeardAt+exact.Micros(r.HeardExpiry) > b.created
	switch {
	case created:
		b.epoch = max(b.epoch, r.Epoch+1)
		if lost {
			b.freeze(until)
		}
	case r.Epoch > b.epoch, r.Epoch == b.epoch && r.Counter > b.counter:
		// A promoted replica lacks writes. The higher epoch makes the records of all holders unknown.
		b.freeze(b.now + b.lasting(r, 0))
		b.epoch, b.counter = r.Epoch+1, r.Counter
	case r.Epoch < b.epoch && lost && b.now < until:
		// A process that did not know the lost bucket created this one, after the last grant of the lost one.
		b.freeze(until)
	}
}

// possible reports whether the epoch and counter that r claims can be true (6.4): one faulty caller must not
// raise the bucket's epoch or counter for ever.
func (b *Bucket) possible(r *lease.Request) bool {
	return r.Epoch <= b.clock+exact.Micros(claimSlack) &&
		(r.Epoch < b.epoch || r.Counter <= b.now-b.created+exact.Micros(claimSlack))
}

// freeze empties every level and stops refill until the time until (6.5). A level below 0 does not change.
func (b *Bucket) freeze(until int64) {
	m := b.at()
	for _, l := range b.limits {
		l.freeze(m, b.config.StartEmpty)
	}
	b.frozen = max(b.frozen, until)
	b.setAt = b.now
}

// propose applies the T of a call (6.7). newer reports that the version of the call is higher.
func (b *Bucket) propose(ttl, was int64, newer bool) {
	ttl = min(ttl, max(b.ttl, exact.Micros(ttlLiveMax)))
	switch {
	case newer || ttl > b.ttl:
		b.ttl = min(ttl, b.ttl+(b.now-was)/ttlGrowth)
		b.proposed, b.proposedAt = b.ttl, b.now
	default:
		b.proposed = max(b.proposed, ttl)
		// A proposal of the T in force restarts ttlCalm, so that a bucket at rest need not store proposedAt.
		if b.now-b.proposedAt >= exact.Micros(ttlCalm) || ttl == b.ttl && b.proposed == b.ttl {
			b.ttl, b.proposed, b.proposedAt = b.proposed, ttl, b.now
		}
	}
	b.config.TTL = exact.Duration(b.ttl)
	b.ring.fit(b.now, b.ttl)
}

// leaseMax returns how long the longest lease may still last, including a lease of this call.
func (b *Bucket) leaseMax() int64 {
	return max(b.ttl, b.ring.lastEnds()-b.now)
}

// lasting returns for how long leases may outlast a loss that was at least ago microseconds ago (6.6). The
// longer of the server's and the holder's age counts: the server's clock may have stepped back.
func (b *Bucket) lasting(r *lease.Request, ago int64) int64 {
	heard, age := exact.Micros(r.LeaseMax), max(b.clock-r.HeardAt, exact.Micros(r.HeardAge))
	return min(heard+(max(0, age-ago)+ttlGrowth-1)/ttlGrowth, max(heard, exact.Micros(ttlLiveMax)))
}

// Configure executes the operation op at the server's time clock (6.15). An operation that changes nothing,
// or fails with ErrInvalidConfig, leaves no trace.
func (b *Bucket) Configure(clock int64, op lease.Op, c lease.Config) (st lease.State, err error) {
	saved := b.copied()
	b.settle(clock)
	changed, err := b.execute(clock, saved.now, op, c)
	if changed {
		b.remember()
	}
	if b.exists && err == nil {
		st = b.state()
		st.Changed = changed
	}
	if !changed {
		*b = *saved
	}
	return st, err
}

func (b *Bucket) state() lease.State {
	return lease.State{Status: b.status(0), Exists: true, Spent: b.spent, Denied: b.denied}
}

// execute runs op and reports whether op changed b. last is the running time of the last call.
func (b *Bucket) execute(clock, last int64, op lease.Op, c lease.Config) (changed bool, err error) {
	switch op {
	case lease.OpSet, lease.OpReplace, lease.OpClear:
		if err := c.Validate(); err != nil {
			return false, err
		}
		now := b.config.Version
		if op == lease.OpClear && !IsSet(now) {
			return false, nil
		}
		c.Version.Deploy = max(c.Version.Deploy, now.Deploy)
		if c.Version.Revision = now.Revision + 1; op != lease.OpClear && IsSet(now) {
			c.Version.Revision++
		}
		if err := c.Validate(); err != nil { // the new revision may be out of range
			return false, err
		}
		if b.exists {
			b.adopt(c, last)
		} else {
			b.install(clock, c)
		}
		if op == lease.OpReplace {
			b.fill()
		}
	case lease.OpReset:
		if !b.exists {
			return false, nil
		}
		b.fill()
	default:
		return false, nil
	}
	b.clip()
	return true, nil
}

// adopt applies the caller's T (6.7), and the caller's configuration if 6.9 puts it in force.
func (b *Bucket) adopt(c lease.Config, was int64) {
	newer, inForce := Wins(c.Version, b.config.Version), b.inForce()
	switch {
	case newer, c.Version == b.config.Version && !equal(&c, &inForce) && b.now-b.stoodAt > 2*b.ttl:
		b.reshape(c, newer)
	case equal(&c, &inForce):
		b.stoodAt = b.now
	}
	b.propose(exact.Micros(c.TTL), was, newer)
}

// reshape changes the limits to those of c (6.10 to 6.12). Two configurations of an equal version may replace
// each other for ever, so that their new limits start used up.
func (b *Bucket) reshape(c lease.Config, newer bool) {
	b.remember()
	was, rate := *b, b.fastest()
	if b.switched = SwitchOf(c.Limits); b.switched != SwitchNone {
		c = was.beneath(c)
	}
	b.config = c
	b.limits = tallies(&c)
	// Scale the fair share to the new rate: otherwise holders would reach a raised rate only after seconds.
	b.fair.share = float64(b.fair.share * float64(b.fastest()/rate))
	usedUp := !newer && !was.bare() || c.StartEmpty || b.now < b.frozen
	if was.bare() {
		was.limits = nil
	}
	m := b.at()
	for k, old := range inherit(was.limits, b.limits) {
		if l := b.limits[k]; old != nil {
			l.follow(old, l.about().same(old.about()))
		} else {
			l.begin(m, !usedUp)
		}
	}
	b.stoodAt = b.now
	if b.now >= b.frozen { // nothing is drawn during a freeze
		b.setAt = b.now
	}
}

// inForce returns the configuration that replies name, with a switch in place of the limits (6.17).
func (b *Bucket) inForce() lease.Config {
	c := b.config
	if b.switched != SwitchNone {
		c.Limits = b.switched.Limits()
	}
	return c
}

// bare reports whether the bucket began with a switch, so that the switch suspends no limits (6.17).
func (b *Bucket) bare() bool {
	return b.switched != SwitchNone && SwitchOf(b.config.Limits) != SwitchNone
}

// beneath returns the switch c with the limits that it suspends: those of b, if c keeps the overcommit
// (6.17).
func (b *Bucket) beneath(c lease.Config) lease.Config {
	if !b.bare() && c.Overcommit == b.config.Overcommit {
		c.Limits = b.config.Limits
	}
	return c
}

package protocol

import (
	"time"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Section 6 of docs/protocol.md: creation, lost state, T, and operations.

const (
	// claimSlack bounds how far the server's clock may have stepped back since a holder's last reply (6.4).
	claimSlack = 24 * time.Hour
	// ttlLiveMax is the longest T to which the T of a bucket grows. A new bucket may start with a longer T.
	ttlLiveMax = 10 * time.Second
	// ttlGrowth bounds the growth of T: by at most an eighth of the time that passes.
	ttlGrowth = 8
	// ttlCalm is the time before T may shrink: well above the time between two calls of a busy process.
	ttlCalm = 3 * time.Second
)

// follow applies section 6: creation, lost state, and configuration. was is the time of the last call.
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

// clip ends step 2: it lowers every level to its room.
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

// fill sets every level to the level of a new bucket, or to nothing during a freeze. fill forgives debts.
func (b *Bucket) fill() {
	m := b.at()
	for _, l := range b.limits {
		l.begin(m, !b.config.StartEmpty)
	}
	b.setAt = b.now
}

// recover compares the state that the caller last heard with this bucket, which may be new, to find lost
// state. An earlier bucket was lost if it had not expired when this bucket was created.
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
		// A replica that lagged was promoted. A later epoch makes all records unknown.
		b.freeze(b.now + b.lasting(r, 0))
		b.epoch, b.counter = r.Epoch+1, r.Counter
	case r.Epoch < b.epoch && lost && b.now < until:
		// A process that did not know the lost bucket has created this one. All leases of the lost bucket
		// were granted before this bucket was created.
		b.freeze(until)
	}
}

// possible reports whether the epoch and counter that r claims can be true (6.4). Without this check one
// buggy caller could raise epoch and counter beyond the reach of all others.
func (b *Bucket) possible(r *lease.Request) bool {
	return r.Epoch <= b.clock+exact.Micros(claimSlack) &&
		(r.Epoch < b.epoch || r.Counter <= b.now-b.created+exact.Micros(claimSlack))
}

// freeze empties every level and stops refill until unknown leases have expired. A level below 0 stays.
func (b *Bucket) freeze(until int64) {
	m := b.at()
	for _, l := range b.limits {
		l.freeze(m, b.config.StartEmpty)
	}
	b.frozen = max(b.frozen, until)
	b.setAt = b.now
}

// propose applies the T of a call (6.7); newer: so is the call's version. was is the time of the last call.
func (b *Bucket) propose(ttl, was int64, newer bool) {
	ttl = min(ttl, max(b.ttl, exact.Micros(ttlLiveMax)))
	switch {
	case newer || ttl > b.ttl:
		b.ttl = min(ttl, b.ttl+(b.now-was)/ttlGrowth)
		b.proposed, b.proposedAt = b.ttl, b.now
	default:
		b.proposed = max(b.proposed, ttl)
		// A proposal of the T in force restarts the time after which T may shrink, so that a bucket at rest
		// need not store that time.
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

// lasting bounds how long leases of a lost bucket outlast its loss, which was at least ago microseconds ago
// (6.6). The longer of two ages counts: the server's clock may have stepped back, and the holder's age ends
// when r was sent.
func (b *Bucket) lasting(r *lease.Request, ago int64) int64 {
	heard, age := exact.Micros(r.LeaseMax), max(b.clock-r.HeardAt, exact.Micros(r.HeardAge))
	return min(heard+(max(0, age-ago)+ttlGrowth-1)/ttlGrowth, max(heard, exact.Micros(ttlLiveMax)))
}

// Configure executes an operation other than a lease call at the server time clock. An operation that changes
// nothing, or fails with an error that wraps ErrInvalidConfig, leaves no trace.
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

// execute runs op and reports whether op changed b. was is the running time of the last call.
func (b *Bucket) execute(clock, was int64, op lease.Op, c lease.Config) (changed bool, err error) {
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
		if err := c.Validate(); err != nil { // there is no higher revision
			return false, err
		}
		if b.exists {
			b.adopt(c, was)
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

// Sections 6.9 to 6.12 of docs/protocol.md: which configuration is in force, and how it changes.

// adopt applies the caller's configuration if its version is higher, or if the versions are equal and no
// process has proposed the stored configuration for 2 T. adopt applies the caller's T in any case.
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

// reshape changes the limits to those of c, whose version is newer or equal (6.10 to 6.12). Limits of equal
// versions may take turns for ever, so a new limit of an equal version starts empty.
func (b *Bucket) reshape(c lease.Config, newer bool) {
	b.remember()
	was, rate := *b, b.fastest()
	if b.switched = SwitchOf(c.Limits); b.switched != SwitchNone {
		c = was.beneath(c)
	}
	b.config = c
	b.limits = tallies(&c)
	// Scale the share to the new rate; otherwise holders would reach a raised rate only after seconds.
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
	if b.now >= b.frozen { // during a freeze keep setAt, as nothing is drawn
		b.setAt = b.now
	}
}

// inForce returns the configuration that replies name: a switch takes the place of the limits.
func (b *Bucket) inForce() lease.Config {
	c := b.config
	if b.switched != SwitchNone {
		c.Limits = b.switched.Limits()
	}
	return c
}

// bare reports whether the bucket began with a switch and has no limits beneath it.
func (b *Bucket) bare() bool {
	return b.switched != SwitchNone && SwitchOf(b.config.Limits) != SwitchNone
}

// beneath returns c, which proposes a switch, with the limits of b beneath that switch, if b has limits and c
// has the same overcommit.
func (b *Bucket) beneath(c lease.Config) lease.Config {
	if !b.bare() && c.Overcommit == b.config.Overcommit {
		c.Limits = b.config.Limits
	}
	return c
}

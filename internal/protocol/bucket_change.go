package protocol

import (
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Section 6 of docs/protocol.md: beginnings, lost state, T, and operations.

const (
	// claimSlack is how far the server's clock may have stepped back since a claim was true.
	claimSlack = 24 * time.Hour
	// ttlLiveMax is the longest T to which a bucket in use grows; a new one may take a longer one.
	ttlLiveMax = 10 * time.Second
	// ttlGrowth is the part of the time that passes by which T may grow: an eighth.
	ttlGrowth = 8
	// ttlCalm is how long a T is kept after it was last proposed; well above the time between two
	// calls of a busy process.
	ttlCalm = 3 * time.Second
)

// follow is the part of step 2, after the last call at was, that deals with lost state and changed
// configuration.
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

// clip ends step 2: no level is above its room.
func (b *Bucket) clip() {
	m := b.at()
	for _, l := range b.limits {
		l.clip(m)
	}
}

// install makes a bucket with the levels of a new one.
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
	b.setAt = max(0, clock-1) // what is drawn at this very moment was drawn after
}

// fill gives every level what a new bucket has; while a loss is waited out, nothing. It forgives debts.
func (b *Bucket) fill() {
	m := b.at()
	for _, l := range b.limits {
		l.begin(m, !b.config.StartEmpty)
	}
	b.setAt = b.now
}

// recover compares what the caller last heard with what is stored, or just was created. An earlier
// bucket is lost that had not expired when this one was created. If it had, all its levels were full
// and its leases had ended.
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
		// A replica was promoted that had not heard of everything. Requests of calls that it does not
		// know may arrive once more: a later epoch makes all records unknown.
		b.freeze(b.now + b.lasting(r, 0))
		b.epoch, b.counter = r.Epoch+1, r.Counter
	case r.Epoch < b.epoch && lost && b.now < until:
		// A bucket was lost, and a process that did not know of it has started this one. The lost one granted its
		// leases before this one was created.
		b.freeze(until)
	}
}

// possible reports whether r can have heard the epoch and the counter that it claims: an epoch is
// the server's time when it began, and no server executes more than one call of a bucket in a
// microsecond. Otherwise one buggy caller could raise both beyond what the others will ever reach.
func (b *Bucket) possible(r *lease.Request) bool {
	return r.Epoch <= b.clock+exact.Micros(claimSlack) &&
		(r.Epoch < b.epoch || r.Counter <= b.now-b.created+exact.Micros(claimSlack))
}

// freeze empties every level and lets none refill before until, when unknown holdings have run out. Debts
// stay.
func (b *Bucket) freeze(until int64) {
	m := b.at()
	for _, l := range b.limits {
		l.freeze(m, b.config.StartEmpty)
	}
	b.frozen = max(b.frozen, until)
	b.setAt = b.now
}

// propose takes in the T of one call's configuration, after the last call at was; newer says that its version
// is. T grows by no more than an eighth of the time that passes. So a process that heard a LeaseMax knows how
// long leases may last that were granted since.
func (b *Bucket) propose(ttl, was int64, newer bool) {
	ttl = min(ttl, max(b.ttl, exact.Micros(ttlLiveMax)))
	switch {
	case newer || ttl > b.ttl:
		b.ttl = min(ttl, b.ttl+(b.now-was)/ttlGrowth)
		b.proposed, b.proposedAt = b.ttl, b.now
	default:
		b.proposed = max(b.proposed, ttl)
		// A proposal of the T in force restarts the time after which T may shrink, so that a bucket in calm has
		// nothing to remember.
		if b.now-b.proposedAt >= exact.Micros(ttlCalm) || ttl == b.ttl && b.proposed == b.ttl {
			b.ttl, b.proposed, b.proposedAt = b.proposed, ttl, b.now
		}
	}
	b.config.TTL = exact.Duration(b.ttl)
	b.ring.fit(b.now, b.ttl)
}

// leaseMax is how long the longest lease of this bucket may last that exists now, that of this call
// included. Those of a lost bucket end with the freeze.
func (b *Bucket) leaseMax() int64 {
	return max(b.ttl, b.ring.lastEnds()-b.now)
}

// lasting is how long leases may still last, at the time of the loss, that a lost bucket had granted, if r
// tells of that bucket and it was lost at least ago microseconds ago. LeaseMax had grown by no more than an
// eighth of the time since r's holder heard it. That is the server's or the holder's, whichever is longer:
// the server's clock may have stepped back, and the holder's age ended when r was sent. A bucket that was
// lost while it waited out a loss had granted nothing: the wait goes on until its end.
func (b *Bucket) lasting(r *lease.Request, ago int64) int64 {
	since, heard := b.clock-r.HeardAt, exact.Micros(r.LeaseMax)
	age := max(since, exact.Micros(r.HeardAge))
	if frozen := exact.Micros(r.HeardFrozen); frozen > 0 && frozen+ago > age {
		return frozen + ago - max(0, min(since, exact.Micros(r.HeardAge)))
	}
	return min(heard+(max(0, age-ago)+ttlGrowth-1)/ttlGrowth, max(heard, exact.Micros(ttlLiveMax)))
}

// Configure executes one operation other than a lease call when the server's clock says clock. c is
// used by OpSet, OpReplace and OpClear only. An operation that changes nothing leaves no trace, and
// neither does one that fails: the error wraps ErrInvalidConfig.
func (b *Bucket) Configure(clock int64, op lease.Op, c lease.Config) (st lease.State, err error) {
	saved := b.copied()
	b.settle(clock)
	changed, err := b.execute(clock, saved.now, op, c)
	if changed {
		b.remember()
	}
	if b.exists && err == nil {
		st = b.state(changed)
	}
	if !changed {
		*b = *saved
	}
	return st, err
}

func (b *Bucket) state(changed bool) lease.State {
	st := lease.State{
		Exists: true, Changed: changed, Config: b.inForce(), Epoch: b.epoch, Counter: b.counter,
		Spent: b.spent, Denied: b.denied, ServerTime: b.clock,
		Ledger: b.ring.ledger(), ActiveWeight: b.ring.weightSum(),
	}
	st.Levels, st.Next = b.levels(0)
	return st
}

// execute does op on a settled bucket, last settled at was, and says whether that changed anything.
func (b *Bucket) execute(clock, was int64, op lease.Op, c lease.Config) (changed bool, err error) {
	switch op {
	case lease.OpSet, lease.OpReplace, lease.OpClear:
		if err := c.Validate(); err != nil {
			return false, err
		}
		now := b.config.Version
		if op == lease.OpClear && !now.Set() {
			return false, nil
		}
		c.Version.Deploy = max(c.Version.Deploy, now.Deploy)
		if c.Version.Revision = now.Revision + 1; op != lease.OpClear && now.Set() {
			c.Version.Revision++
		}
		if err := c.Validate(); err != nil { // the revisions are used up
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

// Sections 6.9 to 6.12 of docs/protocol.md: whose configuration is in force, and how it changes.

// adopt takes over the caller's configuration where its version is higher, or is the same and the stored one
// has not been proposed for 2 T; and its proposal of T.
func (b *Bucket) adopt(c lease.Config, was int64) {
	newer, inForce := c.Version.After(b.config.Version), b.inForce()
	switch {
	case newer, c.Version == b.config.Version && !equal(&c, &inForce) && b.now-b.stoodAt > 2*b.ttl:
		b.reshape(c, newer)
	case equal(&c, &inForce):
		b.stoodAt = b.now
	}
	b.propose(exact.Micros(c.TTL), was, newer)
}

// reshape changes the limits, for those of a newer version or of an equal one. Levels are settled at the old
// rate already, and never rise. Only a newer version gives a new limit its burst: limits of equal versions
// may take turns as often as their processes call. A switch leaves the limits beneath as they are, and the
// first ones that come to a bucket without any start full, as nothing was ever counted.
func (b *Bucket) reshape(c lease.Config, newer bool) {
	b.remember()
	was, rate := *b, b.fastest()
	if b.switched = SwitchOf(c.Limits); b.switched != SwitchNone {
		c = was.beneath(c)
	}
	b.config = c
	b.limits = tallies(&c)
	// The same part of the new rate, or a rate that rises would be reached only after seconds.
	b.fair.share = float64(b.fair.share * float64(b.fastest()/rate))
	usedUp := !newer && !was.bare() || c.StartEmpty || b.now < b.frozen
	m := b.at()
	for k, old := range inherit(&was, b) {
		if l := b.limits[k]; old != nil {
			l.follow(old, l.about().same(old.about()))
		} else {
			l.begin(m, !usedUp)
		}
	}
	b.stoodAt = b.now
	if b.now >= b.frozen { // else nothing has been drawn since setAt, when windows were used up
		b.setAt = b.now
	}
}

// inherit says for each limit of b which one of old it goes on with; nil for none. A limit that has not
// changed goes on with itself, wherever it stands now. Of the others a token bucket goes on with one of equal
// Per, or else with any that is left, and a window with one of its kind, length and offset, all in order. By
// position alone, a limit put in front would hand every other one's level to its neighbour.
func inherit(old, b *Bucket) []tally {
	from := make([]tally, len(b.limits))
	if old.bare() {
		return from
	}
	left := slices.Clone(old.limits)
	for _, fits := range []func(o, l *spec) bool{
		func(o, l *spec) bool { return l.same(o) },
		func(o, l *spec) bool { return l.limit.Per == o.limit.Per },
		func(o, l *spec) bool { return true },
	} {
		for k, l := range b.limits {
			i := slices.IndexFunc(left, func(o tally) bool { return l.continues(o) && fits(o.about(), l.about()) })
			if from[k] == nil && i >= 0 {
				from[k] = left[i]
				left = slices.Delete(left, i, i+1)
			}
		}
	}
	return from
}

// inForce is the configuration as processes propose it and hear of it: with a switch in place of its limits.
func (b *Bucket) inForce() lease.Config {
	c := b.config
	if b.switched != SwitchNone {
		c.Limits = b.switched.Limits()
	}
	return c
}

// bare reports whether there are no limits beneath the switch: the bucket began with it.
func (b *Bucket) bare() bool {
	return b.switched != SwitchNone && SwitchOf(b.config.Limits) != SwitchNone
}

// beneath is c, which proposes a switch, with the limits that stay beneath it: those of b, if it has any and
// they are counted with the same overcommit.
func (b *Bucket) beneath(c lease.Config) lease.Config {
	if !b.bare() && c.Overcommit == b.config.Overcommit {
		c.Limits = b.config.Limits
	}
	return c
}

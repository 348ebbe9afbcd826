package protocol

import (
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
	// ttlCalm is how long a T is kept after it was last proposed; well above the time between two
	// calls of a busy process.
	ttlCalm = 3 * time.Second
)

// follow is the part of step 2 that deals with lost state and changed configuration.
func (b *Bucket) follow(clock int64, r *lease.Request) {
	created := !b.exists
	if created {
		b.install(clock, r.Config)
	}
	if r.Epoch > 0 && b.possible(r) {
		b.recover(r, created)
	}
	if !created {
		b.adopt(r.Config)
	}
	b.clip()
}

// install makes a bucket with the levels of a new one.
func (b *Bucket) install(clock int64, c lease.Config) {
	ttl := exact.Micros(c.TTL)
	*b = Bucket{
		exists: true, config: c, records: make(map[string]*record), executed: b.executed,
		clock: clock, shown: clock, now: clock, created: clock, epoch: max(clock, 1),
		ttl: ttl, proposed: ttl, proposedAt: clock, stoodAt: clock, ring: newRing(clock, ttl),
	}
	b.rescale()
	b.fair = fair{share: b.rate(), updated: clock}
	b.fill()
	b.setAt = max(0, clock-1) // what is drawn at this very moment was drawn after
}

// fill gives every level what a new bucket would have; while a loss is waited out, nothing. What
// was owed is forgiven.
func (b *Bucket) fill() {
	for k := range b.config.Limits {
		if w := b.windows[k]; w != nil {
			*w = window{period: -2}
			w.advance(&b.scales[k], b.now, b.clock)
			continue
		}
		b.level[k], b.rest[k] = b.scales[k].Capacity*b.scales[k].Unit, 0
		if b.config.StartEmpty || startsEmpty(&b.scales[k]) || b.now < b.frozen {
			b.level[k] = 0
		}
	}
	if b.config.StartEmpty {
		b.useUpWindows(b.now)
	}
	b.pasts, b.setAt = nil, b.now
	if b.now >= b.forgotAt {
		b.forgotAt = 0
	}
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
			b.freeze(until, r.HeardAt)
		}
	case r.Epoch > b.epoch, r.Epoch == b.epoch && r.Counter > b.counter:
		// A replica was promoted that had not heard of everything. Calls that it does not know have
		// overtaken its records, and their requests may arrive once more: a later epoch makes all
		// records unknown.
		b.freeze(b.now+b.lasting(r, 0), r.HeardAt)
		b.epoch, b.counter = r.Epoch+1, r.Counter
	case r.Epoch < b.epoch && lost && b.now < until:
		// A bucket was lost, and somebody who did not know of it has started this one. What the
		// lost one granted, it granted before this one was created.
		b.freeze(until, r.HeardAt)
	}
}

// possible reports whether r can have heard the epoch and the counter that it claims: an epoch is
// the server's time when it began, and no server executes more than one call of a bucket in a
// microsecond. Otherwise one buggy caller could raise both beyond what the others will ever reach.
func (b *Bucket) possible(r *lease.Request) bool {
	return r.Epoch <= b.clock+exact.Micros(claimSlack) &&
		(r.Epoch < b.epoch || r.Counter <= b.now-b.created+exact.Micros(claimSlack))
}

// freeze empties every level and lets none refill before until, when unknown holdings have run out.
// What is owed stays owed. Limits out of force may have been used up until then, or until the server's
// clock shows heardAt again, if it has stepped back since.
func (b *Bucket) freeze(until, heardAt int64) {
	ahead := heardAt - b.shown
	if ahead > exact.Micros(stepBackMax) {
		ahead = 0
	}
	b.forget(max(until, b.now+ahead))
	if b.config.StartEmpty {
		until = max(until, b.now+ahead)
	}
	for k := range b.config.Limits {
		b.level[k], b.rest[k] = min(b.level[k], 0), 0
	}
	if b.config.StartEmpty {
		b.useUpWindows(b.now)
	}
	b.frozen = max(b.frozen, until)
	b.setAt = b.now
}

// propose takes in the T of one call's configuration; newer says that its version is. T grows no
// faster than time passes, so that whoever heard a LeaseMax knows for how long leases may last that
// were granted since.
func (b *Bucket) propose(ttl int64, newer bool) {
	ttl = min(ttl, max(b.ttl, exact.Micros(ttlLiveMax)))
	switch {
	case newer && ttl <= b.ttl:
		b.ttl, b.proposed, b.proposedAt = ttl, ttl, b.now
	case newer || ttl > b.ttl && b.proposed <= b.ttl:
		b.proposed, b.proposedAt = ttl, b.now
	default:
		// A proposal that rises while an earlier one waits goes on waiting with it, or T would
		// never grow with a network that gets slower and slower.
		b.proposed = max(b.proposed, ttl)
		wait := exact.Micros(ttlCalm)
		if b.proposed > b.ttl {
			wait = b.proposed - b.ttl
		}
		// Who proposes the T in force begins the time anew after which it may shrink, so that a bucket
		// in calm has nothing to remember.
		if b.now-b.proposedAt >= wait || ttl == b.ttl && b.proposed == b.ttl {
			b.ttl, b.proposed, b.proposedAt = b.proposed, ttl, b.now
		}
	}
	b.config.TTL = exact.Duration(b.ttl)
	b.ring.fit(b.now, b.ttl)
}

// leaseMax is how long the longest lease of this bucket may last that exists now, that of this call
// included. Those of a lost bucket end with the freeze.
func (b *Bucket) leaseMax() int64 {
	return max(b.ttl, b.proposed, b.ring.lastEnds()-b.now)
}

// lasting is how long leases may still last, at the time of the loss, that a lost bucket had granted, if r
// tells of that bucket and it was lost at least ago microseconds ago. LeaseMax had grown by no more than
// the time since r's holder heard it. That is the server's or the holder's, whichever is longer: the
// server's clock may have stepped back, and the holder's age ended when r was sent. A bucket that was
// lost while it waited out a loss had granted nothing: the wait goes on until its end.
func (b *Bucket) lasting(r *lease.Request, ago int64) int64 {
	since, heard := b.clock-r.HeardAt, exact.Micros(r.LeaseMax)
	age := max(since, exact.Micros(r.HeardAge))
	if frozen := exact.Micros(r.HeardFrozen); frozen > 0 && frozen+ago > age {
		return frozen + ago - max(0, min(since, exact.Micros(r.HeardAge)))
	}
	return min(heard+max(0, age-ago), max(heard, exact.Micros(ttlLiveMax)))
}

// Configure executes one operation other than a lease call when the server's clock says clock. c is
// used by OpSet and OpSetIfAbsent only. An operation that changes nothing leaves no trace, and
// neither does one that fails: the error wraps ErrInvalidConfig.
func (b *Bucket) Configure(clock int64, op lease.Op, c lease.Config) (st lease.State, err error) {
	saved := b.copied()
	b.settle(clock)
	changed, err := b.execute(clock, op, c)
	if changed {
		b.remember()
	}
	if b.exists && err == nil {
		st = b.state(changed)
	}
	if !changed {
		*b = saved
	}
	return st, err
}

// state is what a settled bucket says of itself.
func (b *Bucket) state(changed bool) lease.State {
	st := lease.State{
		Exists: true, Changed: changed, Config: b.config, Epoch: b.epoch, Counter: b.counter,
		Spent: b.spent, Denied: b.denied, ServerTime: b.clock,
		Ledger: b.ring.ledger(), ActiveWeight: b.ring.weightSum(),
	}
	st.Levels, st.Next = b.levels(0)
	return st
}

// execute does op on a settled bucket, and says whether that changed anything.
func (b *Bucket) execute(clock int64, op lease.Op, c lease.Config) (changed bool, err error) {
	switch op {
	case lease.OpSet, lease.OpSetIfAbsent, lease.OpReplace:
		if err := c.Validate(); err != nil {
			return false, err
		}
		if op == lease.OpSetIfAbsent && b.exists && b.config.Version.Revision > 0 {
			return false, nil
		}
		c.Version.Deploy = max(c.Version.Deploy, b.config.Version.Deploy)
		c.Version.Revision = b.config.Version.Revision + 1
		if err := c.Validate(); err != nil { // the revisions are used up
			return false, err
		}
		if b.exists {
			b.adopt(c)
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

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

// fill gives every level what a new bucket has; while a loss is waited out, nothing. It forgives debts.
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
		b.useUpWindows(b.now, b.now)
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
		// A replica was promoted that had not heard of everything. Requests of calls that it does not
		// know may arrive once more: a later epoch makes all records unknown.
		b.freeze(b.now+b.lasting(r, 0), r.HeardAt)
		b.epoch, b.counter = r.Epoch+1, r.Counter
	case r.Epoch < b.epoch && lost && b.now < until:
		// A bucket was lost, and a process that did not know of it has started this one. The lost one granted its
		// leases before this one was created.
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

// freeze empties every level and lets none refill before until, when unknown holdings have run out. Debts
// stay. Limits out of force may have been used up until then, or until the server's clock shows heardAt
// again, if it has stepped back since.
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
	switch {
	case b.waitsEmpty():
		b.useUpWindows(b.now, b.setAt)
	case b.config.StartEmpty:
		b.useUpWindows(b.now, b.now)
	}
	b.frozen = max(b.frozen, until)
	b.setAt = b.now
}

// propose takes in the T of one call's configuration; newer says that its version is. T grows no faster than
// time passes. So a process that heard a LeaseMax knows how long leases may last that were granted since.
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
		// A proposal of the T in force restarts the time after which T may shrink, so that a bucket in calm has
		// nothing to remember.
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

// Sections 6.9 to 6.12 of docs/protocol.md: whose configuration is in force, and how it changes.

// adopt takes over the caller's configuration where its version is higher, or is the same and the stored one
// has not been proposed for 2 T; and its proposal of T.
func (b *Bucket) adopt(c lease.Config) {
	newer := c.Version.After(b.config.Version)
	switch {
	case newer, c.Version == b.config.Version && !equal(&c, &b.config) && b.now-b.stoodAt > 2*b.ttl:
		b.reshape(c, newer)
	case equal(&c, &b.config):
		b.stoodAt = b.now
	}
	b.propose(exact.Micros(c.TTL), newer)
}

// reshape changes the limits, for those of a newer version or of an equal one. Levels are settled at the old
// rate already, and never rise. A limit has what is left of the one whose place it takes, and no more than by
// its own past, where it was in force before. Limits of equal versions may take turns as often as their
// processes call, so nothing may be lost by a turn and the turn back: a lowered burst cuts off only what does
// not fit, where a newer version counts all that was used against it.
func (b *Bucket) reshape(c lease.Config, newer bool) {
	b.remember()
	was, rate := b.copied(), b.rate()
	b.config = c
	b.rescale()
	// The same part of the new rate, or a rate that rises would be reached only after seconds.
	b.fair.share = float64(b.fair.share * float64(b.rate()/rate))
	b.level, b.rest = [lease.LimitsMax]int64{}, [lease.LimitsMax]int64{}
	for i, l := range was.config.Limits {
		if !b.inForce(past{limit: l, scale: was.scales[i]}) {
			b.leave(&was, i)
		}
	}
	for k, i := range inherit(&was, b) {
		switch {
		case b.windows[k] != nil:
			b.inheritWindow(&was, i, k)
			continue
		case i >= 0 && alike(&was, i, b, k):
			b.level[k], b.rest[k] = was.level[i], was.rest[i]
		default:
			b.level[k] = b.ownLevel(k, newer)
			if startsEmpty(&b.scales[k]) {
				b.level[k] = min(b.level[k], 0)
			}
			if i >= 0 {
				level := was.levelLeft(i)
				if was.windows[i] != nil {
					level = was.free(i, was.ring.ledger())
				}
				b.level[k] = min(b.level[k], b.convert(level, was.scales[i], k, newer))
			}
		}
		b.level[k] = max(b.level[k], -deepest(&b.scales[k], c.Overcommit))
	}
	b.settlePasts()
	b.stoodAt = b.now
	if b.now >= b.frozen { // else nothing has been drawn since setAt, when windows were used up
		b.setAt = b.now
	}
}

// levelLeft returns the level that token bucket k passes on to the limit in its place. Unlimited passes
// on a full one: it takes seconds to fill, but never denied anything.
func (b *Bucket) levelLeft(k int) int64 {
	if b.level[k] >= 0 && lease.Unlimited.Equal(b.config.Limits[k]) {
		return b.scales[k].Capacity * b.scales[k].Unit
	}
	return b.level[k]
}

// alike reports whether limit i of old and limit k of b are one: the same rate over the same time,
// the same burst, and counted in the same units.
func alike(old *Bucket, i int, b *Bucket, k int) bool {
	return old.config.Limits[i].Per == b.config.Limits[k].Per && old.scales[i] == b.scales[k]
}

// inherit says for each limit of b which one of old it goes on with; -1 for none. A
// limit that has not changed goes on with itself, wherever it stands now. Of the others, first
// those of equal kind and Per are paired, in order, then those of equal Per, then those that are
// left. By position alone, a limit put
// in front would hand every other one's level to its neighbour and start the last one full.
func inherit(old, b *Bucket) []int {
	from := make([]int, len(b.config.Limits))
	taken := [lease.LimitsMax]bool{}
	for k := range from {
		from[k] = -1
	}
	for _, fits := range []func(i, k int) bool{
		func(i, k int) bool { return alike(old, i, b, k) },
		func(i, k int) bool {
			return old.config.Limits[i].Per == b.config.Limits[k].Per && old.scales[i].Kind == b.scales[k].Kind
		},
		func(i, k int) bool { return old.config.Limits[i].Per == b.config.Limits[k].Per },
		func(i, k int) bool { return true },
	} {
		for k := range from {
			for i := range old.config.Limits {
				if from[k] < 0 && !taken[i] && fits(i, k) {
					from[k], taken[i] = i, true
				}
			}
		}
	}
	return from
}

// convert expresses a level of another limit in the units of limit k. Where the burst shrinks, a
// newer version takes off what it lost. A debt stays what it was, rounded up: no change of limits
// pays it. A limit that would start empty inherits debts only.
func (b *Bucket) convert(level int64, from lease.Scale, k int, newer bool) int64 {
	to := b.scales[k]
	if lost := from.Capacity - to.Capacity; lost > 0 && level > 0 {
		if newer {
			level = max(0, level-lost*from.Unit)
		} else {
			level = min(level, to.Capacity*from.Unit)
		}
	}
	if startsEmpty(&to) {
		level = min(level, 0)
	}
	whole, deepest := exact.FloorDiv(level, from.Unit), deepest(&to, b.config.Overcommit)
	if whole < -deepest/to.Unit-1 { // the product may be too large
		return -deepest
	}
	return whole*to.Unit + exact.MulDiv(level-whole*from.Unit, to.Unit, from.Unit)
}

func (b *Bucket) prune() { b.drop(func(p past) bool { return p.ended(b.now, b.clock) }) }

func (b *Bucket) drop(over func(past) bool) {
	if slices.ContainsFunc(b.pasts, over) {
		b.pasts = slices.DeleteFunc(slices.Clone(b.pasts), over)
	}
}

// forget notes that limits out of force may have been used up until then. It keeps pasts that owe.
func (b *Bucket) forget(until int64) {
	if until <= b.forgotAt {
		return
	}
	b.forgotAt = until
	var owed []past
	for _, p := range b.pasts {
		if p.used = p.usedAt(b.now); p.used > p.all() {
			p.at = until
			owed = append(owed, p)
		}
	}
	b.pasts = owed
}

func (b *Bucket) inForce(p past) bool {
	for k, l := range b.config.Limits {
		if p.sameAs(l, &b.scales[k]) {
			return true
		}
	}
	return false
}

// leave adds the past of limit i of was, which goes out of force. Leased tokens count as used, because
// they may be spent before the limit comes back. Until forgotAt every limit without a past counts as
// used up, so only a token bucket that owes needs one.
func (b *Bucket) leave(was *Bucket, i int) {
	p := past{limit: was.config.Limits[i], scale: was.scales[i], at: b.now - was.rest[i]}
	if w := was.windows[i]; w != nil {
		if b.now < b.forgotAt {
			return
		}
		p.window = *w
		p.charge(&p.scale, b.now, was.ring.ledger())
		if p.scale.Kind == lease.KindCalendar {
			p.begun = max(0, p.begun)
			p.at = p.begun
		} else if p.sum == 0 {
			return
		}
	} else {
		p.over = was.config.Overcommit
		p.used = p.all() - was.level[i]
		least := int64(0)
		if b.now < b.forgotAt {
			p.at, least = b.forgotAt, p.all()
		}
		if p.used <= least || startsEmpty(&p.scale) {
			return
		}
	}
	if at := slices.IndexFunc(b.pasts, p.isOf); at >= 0 { // a configuration may have one limit twice
		p.used, p.over = max(p.used, b.pasts[at].used), max(p.over, b.pasts[at].over)
		p.atLeast(&p.scale, &b.pasts[at].window)
		if p.scale.Kind == lease.KindCalendar {
			p.at = p.begun
		}
		b.drop(p.isOf)
	}
	b.pasts = append(slices.Clip(b.pasts), p)
}

// settlePasts drops the pasts of limits in force, and of too many the oldest that owe nothing.
func (b *Bucket) settlePasts() {
	b.drop(b.inForce)
	for len(b.pasts) > pastsMax {
		oldest := max(0, slices.IndexFunc(b.pasts, func(p past) bool { return p.used <= p.all() }))
		b.pasts = slices.Delete(slices.Clone(b.pasts), oldest, oldest+1)
		b.forgotAt = max(b.forgotAt, b.now)
	}
}

func (b *Bucket) pastOf(k int) *past {
	i := slices.IndexFunc(b.pasts, func(p past) bool { return p.sameAs(b.config.Limits[k], &b.scales[k]) })
	if i < 0 {
		return nil
	}
	return &b.pasts[i]
}

// ownLevel returns the level of token bucket k by its own past. The leases that it finds count as used
// and not paid for. A newer version is lent those beyond B + E: operators change limits rarely, where
// turns may go on for ever.
func (b *Bucket) ownLevel(k int, newer bool) int64 {
	sc, over := &b.scales[k], b.config.Overcommit
	full := sc.Capacity * sc.Unit
	p := b.pastOf(k)
	if p == nil {
		if p = (&past{scale: *sc, over: over, at: b.forgotAt}); b.forgotAt > 0 { // it may have been used up then
			p.used = p.all()
		}
	}
	leased := b.ring.ledger()
	if newer {
		leased = min(leased, sc.Capacity+over)
	}
	level, deepest := min(full+over*sc.Unit, p.all()-p.usedAt(b.now)), deepest(sc, over)
	if leased > (level+deepest)/sc.Unit { // the product may be too large
		return -deepest
	}
	return min(full, level-leased*sc.Unit)
}

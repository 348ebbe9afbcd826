package protocol

import (
	"maps"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Bucket is the reference implementation of the central bucket of one key: docs/protocol.md sections 3, 4 and
// 6. Tests compare the Lua scripts of redisbucket with Bucket bit by bit. The zero Bucket has not been
// created. Methods take the server's time in microseconds since 1970; fields except clock hold running time.
type Bucket struct {
	exists   bool
	config   lease.Config // Limits are in force, or suspended by the switch
	switched Switch
	limits   []tally // one tally per limit of config
	records  map[string]*record
	sweepAt  int // number of records above which newRecord removes dead ones

	moment // state at the last settle; method at updates the ledger

	created int64
	epoch   int64 // number of this incarnation of the bucket
	counter int64 // number of calls answered
	spent   int64 // tokens reported as admitted
	denied  int64 // tokens reported as denied
	keep    int64 // time until which the store must remember the bucket

	stoodAt int64 // when a caller last proposed the configuration in force

	ttl        int64 // T in force: config.TTL in microseconds
	proposed   int64 // the longest T proposed since proposedAt
	proposedAt int64

	ring ring
	fair fair

	executed int64
	refunded [lease.LimitsMax]int64 // units by which the last call's refunds raised each level
}

// RecordDump is the bucket's record of one holder, as of its last executed call.
type RecordDump struct {
	Seq, Ends, Held, Weight int64 // Ends is the end of the ring slice with the holder's entry
	Waiting                 int64 // tokens that waiting requests still lacked; no decision reads Waiting
	Granted                 int64 // tokens granted; a retry gets the same grant
	Since                   int64 // counter of the last void call, whose reply a known holder has heard
	Void                    bool
	Debit
}

// record holds the state of one holder. A record whose slice has left the ring counts as absent (3.6).
type record struct {
	RecordDump
	epoch int64
}

// Call executes the lease call r at the server's time clock and writes the reply to g. A call that fails with
// ErrInvalidRequest, ErrInvalidConfig or ErrStale leaves the bucket unchanged.
func (b *Bucket) Call(clock int64, r *lease.Request, g *lease.Grant) error {
	if err := r.Validate(); err != nil {
		return err
	}
	if c := b.inForce(); !b.exists || !equal(&r.Config, &c) || r.Config.TTL != c.TTL {
		if err := r.Config.Validate(); err != nil {
			return err
		}
	}
	var saved *Bucket // the bucket to restore if the call is stale
	if rec := b.records[r.Holder]; rec != nil && r.Seq < rec.Seq {
		saved = b.copied()
	}
	was := b.now
	b.settle(clock)
	b.follow(clock, was, r) // lost state and a changed configuration
	b.counter++
	if r.Draw && b.drawAtRest(r, g) {
		return nil
	}
	rec := b.records[r.Holder]
	at, live := b.locate(rec)

	// Step 4.
	if live {
		if r.Seq < rec.Seq {
			*b = *saved
			return lease.ErrStale
		}
		if r.Seq == rec.Seq {
			b.remember()
			b.reply(r, rec, g)
			return nil
		}
	}

	// Step 5.
	known := live && b.knows(rec, r)
	remaining := int64(0)
	if known {
		remaining = r.Remaining
		b.ring.add(b.ring.slice(at), remaining-rec.Held, 0)
		b.spend(rec.Held - remaining - r.Returned)
	}
	if rec == nil {
		rec = b.newRecord(r.Holder)
	}
	if live {
		b.ring.add(b.ring.slice(at), 0, -rec.Weight)
	} else {
		at = 0
	}

	// Step 6. Credit nothing during a freeze, because the ledger may be too low.
	b.credit(r, known && b.now >= b.frozen)

	// Step 7. The whole holding moves to a new slice, but never to an earlier slice.
	granted := b.draw(r, rec, live, b.ring.ledger()-remaining, b.ring.weightSum() == 0)
	waited := min(granted, r.Waiting)
	kept := granted - waited
	b.count(r, rec, known, waited)
	to := max(at, b.ring.place(b.now, b.ttl))
	if known {
		b.ring.add(b.ring.slice(at), -remaining, 0)
	} else {
		rec.Since = b.counter
	}
	b.ring.add(b.ring.slice(to), remaining+kept, r.Weight)
	rec.Seq, rec.epoch, rec.Ends, rec.Waiting = r.Seq, b.epoch, to, r.Waiting-waited
	rec.Held, rec.Weight, rec.Granted, rec.Void = remaining+kept, r.Weight, granted, !known

	b.executed++
	b.remember()
	b.reply(r, rec, g)
	return nil
}

const countMax = 1 << 48

// count adds the tokens that r reports to the counters spent and denied, which no decision reads. rec is the
// record before the call. A debt or charge that the holder reports again is counted again.
func (b *Bucket) count(r *lease.Request, rec *record, known bool, waited int64) {
	used := waited
	if known {
		used += max(0, rec.Held-r.Remaining-r.Returned-Reported(r.Late, lease.LateUnused))
	}
	for _, l := range r.Late {
		if l.Kind == lease.LateDebt || l.Kind == lease.LateCharge {
			used = min(used+l.Tokens, lease.WaitingMax)
		}
	}
	b.spent = (b.spent + used) % countMax
	b.denied = (b.denied + r.Denied) % countMax
}

// locate returns the place of rec's entry in the ring. live reports whether rec counts (3.6).
func (b *Bucket) locate(rec *record) (at place, live bool) {
	if rec == nil || rec.epoch != b.epoch {
		return 0, false
	}
	return b.ring.locate(rec.Ends)
}

// knows reports whether the bucket trusts the report in r (step 5); rec must be live. A holder that missed
// the reply to its void call may report tokens that the bucket has credited before.
func (b *Bucket) knows(rec *record, r *lease.Request) bool {
	return r.Epoch == b.epoch && r.Counter >= rec.Since &&
		r.Remaining+r.Returned <= rec.Held && b.fits(b.ring.ledger()+r.Remaining-rec.Held)
}

// fits reports whether a ledger keeps to every limit: at most B + E (6.13), or 0 while Blocked is in force.
func (b *Bucket) fits(ledger int64) bool {
	if b.switched == SwitchBlocked && ledger > 0 {
		return false
	}
	for _, l := range b.limits {
		if ledger > l.about().most {
			return false
		}
	}
	return true
}

// newRecord adds a record for holder. With more than sweepAt records newRecord first removes dead records.
func (b *Bucket) newRecord(holder string) *record {
	if len(b.records) > b.sweepAt {
		maps.DeleteFunc(b.records, func(_ string, r *record) bool {
			_, live := b.locate(r)
			return !live
		})
		b.sweepAt = 2*len(b.records) + 64
	}
	rec := new(record)
	b.records[holder] = rec
	return rec
}

// remember postpones keep as 6.14 demands, because a forgotten bucket starts full.
func (b *Bucket) remember() {
	longest := int64(0)
	for _, l := range b.limits {
		longest = max(longest, l.life())
	}
	longest += b.ttl + max(b.ttl, b.ring.lastEnds()-b.now) + max(0, b.frozen-b.now)
	if b.config.StartEmpty || b.config.Version.Revision > 0 {
		longest = max(longest, exact.Micros(30*24*time.Hour))
	}
	b.keep = max(b.keep, b.now+min(longest, exact.MaxUnits-1)) // a request must be able to carry the expiry
}

// Exists reports whether b has been created, by a call or by Configure.
func (b *Bucket) Exists() bool { return b.exists }

// Expired reports whether the store may forget b at the server's time clock.
func (b *Bucket) Expired(clock int64) bool { return clock-b.clock >= b.keep-b.now }

// clockSwing is the longest step back of the server's clock for which the running time stands still.
// Otherwise two servers with different clocks, answering in turn, would speed up the running time.
const clockSwing = time.Second

// settle advances the levels and the ledger to the server's time clock (steps 1 to 3).
func (b *Bucket) settle(clock int64) {
	if !b.exists {
		return
	}
	if clock < b.clock && b.clock-clock <= exact.Micros(clockSwing) {
		clock = b.clock
	}
	at := b.now
	now := at + max(0, clock-b.clock)
	// Refill with the holding in the ledger until its slice ends, because the holder may spend it so late.
	last := at/b.ring.width + ringSlices
	for ends := b.ring.ends(); ends <= now && b.ring.base < last; ends = b.ring.ends() {
		if held := b.ring.held[b.ring.base%ringSlices]; held != 0 {
			b.pass(at, ends, clock-(now-ends))
			b.spend(held)
			at = ends
		}
		b.ring.expire()
	}
	b.ring.base = now / b.ring.width
	b.pass(at, now, clock)
	if b.now >= b.frozen {
		b.frozen = 0
	}
}

// pass refills every level for the time (from, to] of a constant ledger. clock is the server's time at to.
func (b *Bucket) pass(from, to, clock int64) {
	b.now, b.clock = to, clock
	m := b.at()
	for _, l := range b.limits {
		l.pass(m, from)
	}
}

// at returns the moment of the last settle with the present ledger.
func (b *Bucket) at() *moment {
	b.ledger = b.ring.ledger()
	return &b.moment
}

func (b *Bucket) spend(n int64) {
	m := b.at()
	for _, l := range b.limits {
		l.spend(m, n)
	}
}

// take removes n granted tokens from every limit; admitted is the number of tokens spent at once.
func (b *Bucket) take(n, admitted int64) {
	for _, l := range b.limits {
		l.draw(n)
	}
	b.spend(admitted)
}

// copied returns a copy of b that shares no tally with b, to restore b after a refused call.
func (b *Bucket) copied() *Bucket {
	c := *b
	c.limits = make([]tally, len(b.limits))
	for k, l := range b.limits {
		c.limits[k] = l.clone()
	}
	return &c
}

// drawAtRest serves the draw r in full and without a record, if the bucket is at rest and has the tokens
// (4.1). Otherwise drawAtRest changes nothing.
func (b *Bucket) drawAtRest(r *lease.Request, g *lease.Grant) bool {
	if b.switched != SwitchNone || !b.atRest() || len(r.Late) > 0 ||
		b.available(r.Headroom) < r.Want {
		return false
	}
	v, fair, newcomer := b.fairView(r), b.fair, Debit{Last: b.now}
	fair.advance(v, &newcomer)
	if fair.share != v.own {
		return false
	}
	b.take(r.Want, r.Want)
	b.normalise()
	b.refunded = [lease.LimitsMax]int64{}
	rec := &record{RecordDump: RecordDump{Seq: r.Seq, Granted: r.Want, Debit: newcomer, Ends: b.now + b.ttl}}
	b.count(r, rec, false, r.Want)
	b.executed++
	b.remember()
	b.reply(r, rec, g)
	return true
}

func (b *Bucket) atRest() bool {
	return b.ring.ledger() == 0 && b.ring.weightSum() == 0 && b.now >= b.frozen && b.now >= b.fair.contendedUntil
}

// normalise gives a bucket at rest the ring and the fair share of a new bucket (4.1).
func (b *Bucket) normalise() {
	b.ring = newRing(b.now, b.ttl)
	b.ring.movedAt = b.now
	b.fair = fair{share: b.fastest(), updated: b.now}
}

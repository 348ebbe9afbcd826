package protocol

import (
	"maps"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Bucket is the reference central bucket of one key: docs/protocol.md sections 3, 4 and 6, in
// integers. Section 10 says why it keeps the promise.
//
// memory.Store and the simulator serve from it, and the Lua scripts of redisbucket are tested to agree with
// it to the last bit. Times come in as arguments: the server's clock, in microseconds since 1970. The zero
// value is a bucket that does not exist yet. It may not be shared between goroutines without a lock.
//
// All times in it but clock are the bucket's own running time, which begins with the server's time
// at the bucket's creation and never steps back.
type Bucket struct {
	exists   bool
	config   lease.Config // its limits are those beneath the switch
	switched Switch
	scales   [lease.LimitsMax]lease.Scale
	records  map[string]*record
	sweepAt  int // sweep when there are more records

	clock   int64 // the server's time at the last call
	now     int64 // the running time up to which levels and ledger are settled
	created int64
	epoch   int64 // the number of this incarnation of the bucket
	counter int64 // calls executed
	spent   int64 // tokens admitted, and
	denied  int64 // tokens denied, as reported; see count
	frozen  int64 // no refill before this time; 0 where no loss was ever proven
	setAt   int64 // when levels were last set or refunded to: what was drawn before is worth nothing
	keep    int64 // the bucket must be remembered until then; never moves earlier

	stoodAt int64 // when a caller last proposed the configuration in force

	ttl        int64 // T in force, microseconds: config.TTL
	proposed   int64 // the longest T proposed since proposedAt
	proposedAt int64

	level [lease.LimitsMax]int64 // units, see Scale; negative where a charge is owed
	rest  [lease.LimitsMax]int64 // microseconds already waited towards the next tick, below Scale.Tick

	windows [lease.LimitsMax]*window // of the limits that are windows: what was charged

	ring ring
	fair fair

	executed int64                  // see Executed
	refunded [lease.LimitsMax]int64 // units by which the last call's refund raised each level: for audits
}

// record holds the state of one holder. One whose slice has left the ring is as good as absent.
type record struct {
	seq     int64
	epoch   int64
	place   place
	held    int64
	weight  int64
	waiting int64 // tokens that requests waited for after that call; decides nothing
	granted int64 // the stored grant, answered again to a retry
	void    bool
	since   int64 // the counter of the last void call: a holder is known only if it has heard of it
	debit   debit
}

// Call executes one lease call when the server's clock says clock. The answer is written to g,
// which the caller owns. An error that wraps ErrInvalidRequest, ErrInvalidConfig or ErrStale leaves
// the bucket as it was.
func (b *Bucket) Call(clock int64, r *lease.Request, g *lease.Grant) error {
	if err := r.Validate(); err != nil {
		return err
	}
	if c := b.inForce(); !b.exists || !equal(&r.Config, &c) || r.Config.TTL != c.TTL {
		if err := r.Config.Validate(); err != nil {
			return err
		}
	}
	saved := b.copied()
	b.settle(clock)               // steps 1 to 3
	b.follow(clock, saved.now, r) // the changes of step 2
	b.counter++
	if r.Draw && b.drawAtRest(r, g) {
		return nil
	}
	rec := b.records[r.Holder]
	at, live := b.locate(rec)

	// Step 4.
	if live {
		if r.Seq < rec.seq {
			*b = saved
			return lease.ErrStale
		}
		if r.Seq == rec.seq {
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
		b.ring.add(b.ring.slice(at), remaining-rec.held, 0)
		b.chargeWindows(rec.held - remaining - r.Returned)
	}
	if rec == nil {
		rec = b.newRecord(r.Holder)
	}
	if live {
		b.ring.add(b.ring.slice(at), 0, -rec.weight)
	} else {
		at = 0
	}

	// Step 6. While a loss is waited out the ledger may be too low: there is no room to credit.
	b.credit(r, known && b.now >= b.frozen)

	// Step 7. The whole holding moves to its new slice, never to an earlier one.
	granted := b.draw(r, rec, live, b.ring.ledger()-remaining, b.ring.weightSum() == 0)
	waited := min(granted, r.Waiting)
	kept := granted - waited
	b.count(r, rec, known, waited)
	to := max(at, b.ring.place(b.now, b.ttl))
	if known {
		b.ring.add(b.ring.slice(at), -remaining, 0)
	} else {
		rec.since = b.counter
	}
	b.ring.add(b.ring.slice(to), remaining+kept, r.Weight)
	rec.seq, rec.epoch, rec.place, rec.waiting = r.Seq, b.epoch, to, r.Waiting-waited
	rec.held, rec.weight, rec.granted, rec.void = remaining+kept, r.Weight, granted, !known

	b.executed++
	b.remember()
	b.reply(r, rec, g)
	return nil
}

// count adds the figures of r to the counters, which decide nothing. rec is of before the call. Debt and
// charge that travel again, where no reply has come, are counted again.
func (b *Bucket) count(r *lease.Request, rec *record, known bool, waited int64) {
	used := waited
	if known {
		used += max(0, rec.held-r.Remaining-r.Returned-r.Reported(lease.LateUnused))
	}
	for _, l := range r.Late {
		if l.Kind == lease.LateDebt || l.Kind == lease.LateCharge {
			used = min(used+l.Tokens, lease.WaitingMax)
		}
	}
	b.spent = (b.spent + used) % exact.MaxUnits
	b.denied = (b.denied + r.Denied) % exact.MaxUnits
}

// locate finds where rec's entry is now; live says that it is of this epoch and still in the ring.
func (b *Bucket) locate(rec *record) (at place, live bool) {
	if rec == nil || rec.epoch != b.epoch {
		return 0, false
	}
	return b.ring.locate(rec.place)
}

// knows reports whether a live record covers what r reports (step 5). A record that a void call
// made counts only for a holder that has heard of it: what an earlier call brings back may have
// been credited under the record before.
func (b *Bucket) knows(rec *record, r *lease.Request) bool {
	return r.Epoch == b.epoch && r.Counter >= rec.since &&
		r.Remaining+r.Returned <= rec.held && b.fits(b.ring.ledger()+r.Remaining-rec.held)
}

// fits reports whether a ledger is within B + E of every limit. After a limit was lowered it may not be. Then
// no lease is renewed, so that those of the old limit end within T. Neither is one of a key that is blocked.
func (b *Bucket) fits(ledger int64) bool {
	if b.switched == SwitchBlocked && ledger > 0 {
		return false
	}
	for k := range b.config.Limits {
		if ledger > b.scales[k].Capacity+b.config.Overcommit {
			return false
		}
	}
	return true
}

// newRecord adds a record for holder. Each restart of a process makes a new one, so those that are
// as good as absent are swept out when they may have become half of all.
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

// remember moves keep as late as 6.14 says, because a forgotten bucket looks like a full one.
func (b *Bucket) remember() {
	longest := int64(0)
	for k := range b.config.Limits {
		sc := &b.scales[k]
		if startsEmpty(sc) {
			continue // a forgotten one looks like an empty one
		}
		full := timeToForget(sc, b.config.Overcommit)
		if b.level[k] < 0 {
			full += (sc.Step - 1 - b.level[k]) / sc.Step * sc.Tick
		}
		longest = max(longest, full)
	}
	longest += b.ttl + max(b.ttl, b.ring.lastEnds()-b.now) + max(0, b.frozen-b.now)
	if b.config.StartEmpty || b.config.Version.Revision > 0 {
		longest = max(longest, exact.Micros(30*24*time.Hour))
	}
	b.keep = max(b.keep, b.now+longest)
}

// Exists reports whether b has been created, by a call or by Configure.
func (b *Bucket) Exists() bool { return b.exists }

// Expired reports whether b may be forgotten when the server's clock says clock.
func (b *Bucket) Expired(clock int64) bool { return clock-b.clock >= b.keep-b.now }

// clockSwing is the longest step back of the server's clock after which the running time waits for
// it. Clocks that disagree a little would otherwise make every other call a step forward.
const clockSwing = time.Second

// settle brings the levels and the ledger to the server's time clock: steps 1 to 3.
func (b *Bucket) settle(clock int64) {
	if !b.exists {
		return
	}
	if clock < b.clock && b.clock-clock <= exact.Micros(clockSwing) {
		clock = b.clock
	}
	at := b.now
	now := at + max(0, clock-b.clock)
	b.clock = clock
	// Where holdings ran out, refill up to that moment with the ledger that still holds them: what
	// came after would credit time during which the ledger was full.
	last := at/b.ring.width + ringSlices
	for ends := b.ring.ends(); ends <= now && b.ring.base < last; ends = b.ring.ends() {
		if held := b.ring.held[b.ring.base%ringSlices]; held != 0 {
			b.refill(at, ends)
			b.advanceWindows(ends, clock-(now-ends), held)
			at = ends
		}
		b.ring.expire()
	}
	b.ring.base = now / b.ring.width
	b.refill(at, now)
	b.advanceWindows(now, clock, 0)
	b.now = now
}

// refill is step 2 for the interval (from, to], during which the ledger does not change.
func (b *Bucket) refill(from, to int64) {
	from = max(from, b.frozen)
	if to <= from {
		return
	}
	ledger := b.ring.ledger()
	for k := range b.config.Limits {
		if b.windows[k] != nil {
			continue
		}
		sc := &b.scales[k]
		room := b.room(k, ledger) - b.level[k]
		if room <= 0 {
			b.rest[k] = 0
			continue
		}
		// The product is formed only where it is below room + step, which is below 2^53.
		elapsed := to - from + b.rest[k]
		ticks := elapsed / sc.Tick
		if ticks >= (room+sc.Step-1)/sc.Step {
			b.level[k] += room
			b.rest[k] = 0
			continue
		}
		b.level[k] += ticks * sc.Step
		b.rest[k] = elapsed % sc.Tick
		b.brim(k, room-ticks*sc.Step)
	}
}

// room is how far level k may fill while ledger tokens are held: min(B, B + E - O). A limit that starts empty
// never fills: a key that was blocked grants none of the tokens that come back to it.
func (b *Bucket) room(k int, ledger int64) int64 {
	sc := &b.scales[k]
	if startsEmpty(sc) {
		return 0
	}
	return max(0, min(sc.Capacity, sc.Capacity+b.config.Overcommit-ledger)) * sc.Unit
}

// brim drops the rest of level k where it is full; room is how many units it is short of that. A
// rest that already reaches the brim counts now, or it would be credited again after the next draw.
func (b *Bucket) brim(k int, room int64) {
	sc := &b.scales[k]
	// A negative room may not be multiplied.
	if room <= 0 || room < sc.Step && room*sc.Tick <= sc.Step*b.rest[k] {
		b.level[k] += max(room, 0)
		b.rest[k] = 0
	}
}

// clip ends step 2: no level is above its room.
func (b *Bucket) clip() {
	ledger := b.ring.ledger()
	for k := range b.config.Limits {
		b.level[k] = min(b.level[k], b.room(k, ledger))
	}
}

// Draws: docs/protocol.md section 4.1.

// drawAtRest serves the draw r in full, if the bucket is at rest and has what is wanted. It takes
// tokens from the levels and remembers nothing of the holder: what is admitted at once is never in
// the ledger. Otherwise it changes nothing, and r is a call like any other.
func (b *Bucket) drawAtRest(r *lease.Request, g *lease.Grant) bool {
	if b.switched != SwitchNone || !b.atRest() || len(r.Late) > 0 ||
		b.available(r.Headroom) < r.Want {
		return false
	}
	v, fair, newcomer := b.fairView(r), b.fair, debit{last: b.now}
	fair.advance(v, &newcomer)
	if fair.share != v.own {
		return false
	}
	for k := range b.config.Limits {
		b.level[k] -= r.Want * b.levelUnit(k)
	}
	b.chargeWindows(r.Want)
	b.normalise()
	b.refunded = [lease.LimitsMax]int64{}
	rec := &record{seq: r.Seq, granted: r.Want, debit: newcomer, place: place(b.now + b.ttl)}
	b.count(r, rec, false, r.Want)
	b.executed++
	b.remember()
	b.reply(r, rec, g)
	return true
}

// atRest reports whether no lease is out, or was lately with requests short, and no loss is waited out.
func (b *Bucket) atRest() bool {
	return b.ring.ledger() == 0 && b.ring.weightSum() == 0 && b.now >= b.frozen && b.now >= b.fair.contendedUntil
}

// normalise gives what a bucket at rest does not need to remember the values that follow from the
// rest of its state, so that a store can leave them out.
func (b *Bucket) normalise() {
	b.ring = newRing(b.now, b.ttl)
	b.ring.movedAt = b.now
	b.fair = fair{share: b.fastest(), updated: b.now}
}

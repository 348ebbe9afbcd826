package lease

import "time"

// Bucket is the reference central bucket of one key: docs/protocol.md section 4, step by step.
//
// MemoryStore and the simulator serve from it, and the Lua scripts are tested to agree with it to the last
// bit. Times come in as arguments: the server's, in microseconds since 1970. The zero value is a
// bucket that does not exist yet. It may not be shared between goroutines without a lock.
//
// Why (1) holds: with o the true unspent holdings, o <= O (the ledger), because a holding only shrinks
// between reports and the holder's deadline is never later than the bucket's. Settling creates tokens at the
// limit's rate and never above B + E - O; everything else moves tokens between the level and the ledger or
// drops them. So level + o <= B + E always, it grows at the rate at most, and every admitted token leaves it.
type Bucket struct {
	state   bucketState
	config  Config
	scales  [LimitsMax]scale
	records map[string]*record
	sweepAt int // sweep when there are more records

	executed int64            // see Executed
	refunded [LimitsMax]int64 // see Refunded
}

// bucketState is everything that a call changes; it is a value, so that a refused call leaves no
// trace.
//
// All times in it but clock are the bucket's own, which begins with the server's time at the
// bucket's creation and from then on passes as that does, without its steps back.
type bucketState struct {
	exists  bool
	clock   int64 // t: the server's time at the last call
	now     int64 // the same by the bucket's own time: levels and ledger are settled up to here
	created int64
	epoch   int64 // which incarnation of the bucket this is
	counter int64 // calls executed
	frozen  int64 // no refill before this time; 0 where no state was ever known to be lost
	setAt   int64 // when levels were last set or refunded to: what was drawn before is worth nothing now
	keep    int64 // the bucket must be remembered until then, which never moves earlier

	ttl        int64 // T, microseconds
	proposed   int64 // the longest T proposed since proposedAt, see bucket_ttl.go
	proposedAt int64

	level [LimitsMax]int64 // b_k, units
	rest  [LimitsMax]int64 // microseconds already waited towards the next tick, below scale.tick

	ring ring
	fair fair
}

// record is what the bucket remembers of one holder. A record whose slice has left the ring is as good as
// absent, so it does not matter when it is deleted.
type record struct {
	seq     int64
	epoch   int64
	place   place
	held    int64
	weight  int64
	granted int64 // the stored grant, answered again to a retry
	void    bool
	since   int64 // the counter of the call that made the record, as a void one
	debit   debit
}

// Call executes one lease call when the server's clock says clock. The answer is written to g,
// which the caller owns. An error that wraps ErrInvalidRequest, ErrInvalidConfig or ErrStale leaves
// the bucket as it was.
func (b *Bucket) Call(clock int64, r *Request, g *Grant) error {
	if err := r.Validate(); err != nil {
		return err
	}
	if !b.state.exists || !r.Config.Equal(b.config) || r.Config.TTL != duration(b.state.ttl) {
		if err := r.Config.Validate(); err != nil {
			return err
		}
	}
	saved, savedConfig, savedScales := b.state, b.config, b.scales

	b.settle(clock)    // steps 1 to 3
	b.follow(clock, r) // the changes of step 2
	s := &b.state
	s.counter++

	rec := b.records[r.Holder]
	var at place
	live := false
	if rec != nil && rec.epoch == s.epoch {
		at, live = s.ring.locate(rec.place, s.now)
	}

	// Step 4.
	if live {
		if r.Seq < rec.seq {
			b.state, b.config, b.scales = saved, savedConfig, savedScales
			return ErrStale
		}
		if r.Seq == rec.seq {
			b.remember()
			b.reply(r, rec, g)
			return nil
		}
	}

	// Step 5. A record that a void call made counts for calls of a holder that has heard of it
	// only: what an earlier call brings back may have been credited under the record before.
	known := live && r.Epoch == s.epoch && r.Counter >= rec.since &&
		r.Remaining+r.Returned <= rec.held && b.fits(s.ring.ledger()+r.Remaining-rec.held)
	remaining := int64(0)
	if known {
		remaining = r.Remaining
		s.ring.add(at.slice, remaining-rec.held, 0)
	}
	held := remaining
	if rec == nil {
		rec = new(record)
		if b.records == nil {
			b.records = make(map[string]*record)
		}
		if len(b.records) > b.sweepAt {
			b.sweep()
		}
		b.records[r.Holder] = rec
	}
	if live {
		s.ring.add(at.slice, 0, -rec.weight)
	} else {
		rec.debit = s.fair.open(b.fairView(r))
		if !known {
			at = place{slice: -1}
		}
	}
	// Step 6.
	// While a loss is waited out the ledger may know less than the truth, so there is no room to credit.
	b.credit(r, known && s.now >= s.frozen)

	// Step 7. The whole holding moves to its new slice, never to an earlier one.
	granted := b.draw(r, rec, s.ring.ledger()-remaining, s.ring.weightSum() == 0)
	waited := min(granted, r.Waiting)
	held += granted - waited
	to := s.ring.place(s.now, s.ttl)
	if to.slice < at.slice {
		to = at
	}
	if known {
		s.ring.add(at.slice, -remaining, 0)
		s.ring.add(to.slice, remaining, 0)
	}
	s.ring.add(to.slice, granted-waited, r.Weight)

	rec.seq, rec.epoch, rec.place = r.Seq, s.epoch, to
	rec.held, rec.weight, rec.granted, rec.void = held, r.Weight, granted, !known
	if !known {
		rec.since = s.counter
	}
	b.executed++
	b.remember()
	b.reply(r, rec, g)
	return nil
}

// sweep drops the records that are as good as absent, so that there are never many more than holders: each restart of a
// process makes a new one.
func (b *Bucket) sweep() {
	for holder, r := range b.records {
		if _, live := b.state.ring.locate(r.place, b.state.now); !live || r.epoch != b.state.epoch {
			delete(b.records, holder)
		}
	}
	b.sweepAt = 2*len(b.records) + 64
}

// credit is step 6: what comes back is added only if the bucket knows the holder's record.
func (b *Bucket) credit(r *Request, known bool) {
	s := &b.state
	ledger := s.ring.ledger()
	b.refunded = [LimitsMax]int64{}
	filled := false
	for k := range b.config.Limits {
		sc := &b.scales[k]
		if known {
			// What comes back fills the level no further than a refill would: after a limit was lowered the
			// ledger may still be above B + E.
			room := b.room(k, ledger)
			returned := min(r.Returned, sc.burst)*sc.unit + b.worth(k, r)
			back := returned + min(r.Refund, sc.burst)*sc.unit
			without := max(s.level[k], min(s.level[k]+returned, room))
			s.level[k] = max(s.level[k], min(s.level[k]+back, room))
			b.refunded[k] = s.level[k] - without
			filled = filled || b.refunded[k] > 0
			b.brim(k, room-s.level[k])
		}
		s.level[k] = max(0, s.level[k]-min(r.Debt, sc.burst)*sc.unit)
	}
	if filled {
		s.setAt = s.now // a refund has filled what earlier draws had left
	}
}

// worth is how much of r.Unused level k is still short of because of their draw, in units. Without
// it the level would have been higher by all of them then, and each unit refilled since may be one
// that would have found it full. So what is credited never lifts it above the level of a bucket
// that was not asked. The holder's own word for the age would not do, as its report may be late;
// and before setAt the draw makes no difference to the level any more.
func (b *Bucket) worth(k int, r *Request) int64 {
	sc := &b.scales[k]
	units := min(r.Unused, sc.burst) * sc.unit
	if r.Drawn <= b.state.setAt || r.Drawn > b.state.now {
		return 0
	}
	ticks := (b.state.now - r.Drawn + sc.tick - 1) / sc.tick
	if ticks >= (units+sc.step-1)/sc.step {
		return 0
	}
	return units - ticks*sc.step
}

// draw is the arithmetic of step 7: how much the holder gets, subtracted from every level. others is what
// the other holders hold; alone says that nobody else was active within T.
func (b *Bucket) draw(r *Request, rec *record, others int64, alone bool) int64 {
	s := &b.state
	available := b.available()
	v := b.fairView(r)
	s.fair.advance(v, &rec.debit)
	g := min(r.Want, available, s.fair.allow(v, &rec.debit, alone))
	s.fair.contend(v, r.Want > available && others > 0)
	if g < r.Need {
		g = 0
	}
	rec.debit.spend(g)
	rec.debit.last = s.now
	for k := range b.config.Limits {
		s.level[k] -= g * b.scales[k].unit
	}
	return g
}

// fits reports whether the ledger is within every burst + overcommit. After a limit was lowered it may not be: then no
// lease is renewed, so that those of the old limit end within T, and until then their holders are told to burn them.
func (b *Bucket) fits(ledger int64) bool {
	for k := range b.config.Limits {
		if ledger > b.scales[k].burst+b.config.Overcommit {
			return false
		}
	}
	return true
}

// available is the whole tokens that every limit has.
func (b *Bucket) available() int64 {
	n := int64(maxUnits)
	for k := range b.config.Limits {
		n = min(n, b.state.level[k]/b.scales[k].unit)
	}
	return n
}

// reply fills g from the record's stored grant and the present state.
func (b *Bucket) reply(r *Request, rec *record, g *Grant) {
	s := &b.state
	active := s.ring.weightSum()
	*g = Grant{
		Seq:          rec.seq,
		Granted:      rec.granted,
		Waited:       min(rec.granted, r.Waiting),
		Void:         rec.void,
		Short:        rec.granted < r.Want,
		Config:       b.config,
		Epoch:        s.epoch,
		Counter:      s.counter,
		ActiveWeight: active,
		Contended:    s.now < s.fair.contendedUntil,
		Expiry:       duration(s.keep - s.now),
		LeaseMax:     duration(b.leaseMax()),
		Running:      rec.debit.last,
		ServerTime:   s.clock,
		Ledger:       s.ring.ledger(),
	}
	g.Config.TTL = duration(s.ttl)
	for k := range b.config.Limits {
		g.Levels[k], g.Next[k] = b.level(k)
	}
	if rec.granted < max(1, r.Need) {
		g.RetryAfter = duration(b.wait(max(1, r.Need)))
	}
	if g.Short {
		v := b.fairView(r)
		m := s.fair.least(v)
		g.Delay = duration(s.fair.delay(v, rec.debit, m, b.refillTime(m), active == r.Weight, s.ring.ledger() > 0))
	}
}

// wait is the microseconds until every level has reached n tokens, if nobody draws.
func (b *Bucket) wait(n int64) int64 {
	longest := int64(0)
	for k := range b.config.Limits {
		longest = max(longest, b.waitAt(k, n))
	}
	return longest
}

// waitAt is the microseconds until level k has reached n tokens, or its burst, if nobody draws.
func (b *Bucket) waitAt(k int, n int64) int64 {
	s, sc := &b.state, &b.scales[k]
	missing := min(n, sc.burst)*sc.unit - s.level[k]
	if missing <= 0 {
		return 0
	}
	return (missing+sc.step-1)/sc.step*sc.tick - s.rest[k] + max(0, s.frozen-s.now)
}

// level is the whole tokens of level k, and the time until it has one more, if nobody draws; 0
// where it is full.
func (b *Bucket) level(k int) (int64, time.Duration) {
	n := b.state.level[k] / b.scales[k].unit
	return n, duration(b.waitAt(k, n+1))
}

// remember sets how long the bucket must be remembered: a forgotten bucket looks like a full one.
// It outlives every lease by a T, those too that were granted under a longer one, and a
// configuration that has replaced another by as long as that one's limits take to fill: else
// somebody who still has it would start a full bucket with it.
func (b *Bucket) remember() {
	s := &b.state
	longest := int64(0)
	for k := range b.config.Limits {
		longest = max(longest, micros(b.scales[k].timeToFull()))
	}
	longest += s.ttl + max(s.ttl, s.ring.lastEnds()-s.now) + max(0, s.frozen-s.now)
	if b.config.StartEmpty || b.config.Version.Revision > 0 {
		longest = max(longest, micros(30*24*time.Hour))
	}
	s.keep = max(s.keep, s.now+longest)
}

func micros(d time.Duration) int64    { return int64(d / time.Microsecond) }
func duration(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

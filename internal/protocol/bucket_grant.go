package protocol

import (
	"math"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

// credit is step 6. Tokens that come back count only for a known call; debt and charge count for every one.
// It fills a level no further than a refill would, as the ledger may still be above B + E after a limit was
// lowered. A debt takes what there is; a charge takes more, and leaves the level negative until that has
// refilled.
func (b *Bucket) credit(r *lease.Request, known bool) {
	b.refunded = [lease.LimitsMax]int64{}
	for k := range b.config.Limits {
		if known && b.windows[k] == nil {
			b.fillBy(k, min(r.Returned, b.scales[k].Capacity)*b.scales[k].Unit)
		}
		for i := range r.Late {
			switch l := &r.Late[i]; {
			case b.windows[k] != nil:
				b.lateWindow(k, l, known)
			case l.Kind == lease.LateDebt:
				b.level[k] = min(b.level[k], max(0, b.level[k]-min(l.Tokens, b.scales[k].Capacity)*b.scales[k].Unit))
			case l.Kind == lease.LateCharge:
				b.charge(k, l.Tokens)
			case known:
				b.lateBack(k, l)
			}
		}
	}
	if b.refunded != [lease.LimitsMax]int64{} {
		b.setAt = b.now // a refund has filled what earlier draws had left
	}
}

// lateBack credits level k with unused or refunded tokens.
func (b *Bucket) lateBack(k int, l *lease.Late) {
	if l.Kind == lease.LateUnused {
		b.fillBy(k, b.worth(k, l))
	} else {
		b.refunded[k] += b.fillBy(k, min(l.Tokens, b.scales[k].Capacity)*b.scales[k].Unit)
	}
}

// fillBy raises level k by up to units, as far as it has room, and returns by how much.
func (b *Bucket) fillBy(k int, units int64) (raised int64) {
	room := b.room(k, b.ring.ledger())
	raised = max(0, min(units, room-b.level[k]))
	b.level[k] += raised
	b.brim(k, room-b.level[k])
	return raised
}

func (b *Bucket) charge(k int, n int64) {
	sc := &b.scales[k]
	deepest := deepest(sc, b.config.Overcommit)
	if n > (b.level[k]+deepest)/sc.Unit { // the product may be too large
		b.level[k] = -deepest
	} else {
		b.level[k] -= n * sc.Unit
	}
}

// worth is how much of unused tokens may be credited to level k, in units: what the limit has not
// refilled since the draw. Section 10 says why.
func (b *Bucket) worth(k int, l *lease.Late) int64 {
	sc := &b.scales[k]
	units := min(l.Tokens, sc.Capacity) * sc.Unit
	if l.Drawn <= b.setAt || l.Drawn > b.now {
		return 0
	}
	ticks := (b.now - l.Drawn + sc.Tick - 1) / sc.Tick
	if ticks >= (units+sc.Step-1)/sc.Step {
		return 0
	}
	return units - ticks*sc.Step
}

// draw is the arithmetic of step 7: how much the holder gets, subtracted from every level. others is the
// tokens of the other holders; alone says that none was active within T. A holder without a live record has
// the share of a Target, so that it need not wait.
func (b *Bucket) draw(r *lease.Request, rec *record, live bool, others int64, alone bool) int64 {
	if !live {
		rec.debit = debit{}
	}
	if b.switched != SwitchNone {
		rec.debit = debit{min(rec.debit.allowance, exact.MaxUnits), b.now}
		if b.switched == SwitchBlocked || r.Waiting < r.Need {
			return 0
		}
		// Nothing is leased: what came back later would count for the limits beneath.
		return min(r.Want, r.Waiting)
	}
	available := max(0, b.available(r.Headroom))
	v := b.fairView(r)
	if !live {
		rec.debit = debit{allowance: float64(float64(v.weight*min(b.fair.share, v.own)) * v.long), last: b.now}
	}
	b.fair.advance(v, &rec.debit)
	g := min(r.Want, available, b.fair.allow(v, &rec.debit, alone))
	if r.Want > available && others > 0 {
		b.fair.contendedUntil = b.now + int64(2*v.target)
	}
	if least := max(1, r.Need); g < least && least <= min(r.Want, available) {
		g = b.fair.grantIdle(v, least)
	}
	if g < r.Need {
		g = 0
	}
	if g > 0 {
		b.fair.idleSince = 0
	}
	rec.debit.allowance = max(-exact.MaxUnits, rec.debit.allowance-float64(g))
	for k := range b.config.Limits {
		b.level[k] -= g * b.levelUnit(k)
	}
	b.chargeWindows(min(g, r.Waiting)) // the rest will be charged when it is spent
	return g
}

// kept is how many tokens of limit k a caller with this headroom does not see.
func (b *Bucket) kept(k int, headroom float64) int64 { return kept(b.scales[k].Capacity, headroom) }

// tokens is the whole tokens of level k, rounded down, as a caller with this headroom sees them. It
// is below 0 where a charge is owed, or the headroom is not there.
func (b *Bucket) tokens(k int, headroom float64) int64 {
	return exact.FloorDiv(b.free(k, b.ring.ledger()), b.scales[k].Unit) - b.kept(k, headroom)
}

// available is the whole tokens that a caller with this headroom sees in every limit.
func (b *Bucket) available(headroom float64) int64 {
	n := int64(exact.MaxUnits)
	for k := range b.config.Limits {
		n = min(n, b.tokens(k, headroom))
	}
	return n
}

func (b *Bucket) reply(r *lease.Request, rec *record, g *lease.Grant) {
	active := b.ring.weightSum()
	target, _, _ := b.pace(r.Weight)
	*g = lease.Grant{
		Seq: rec.seq, Granted: rec.granted, Waited: min(rec.granted, r.Waiting), Void: rec.void,
		Short: rec.granted < r.Want && b.switched != SwitchUnlimited, Running: rec.debit.last,
		Config: b.inForce(), Epoch: b.epoch, Counter: b.counter, ServerTime: b.clock,
		Ledger: b.ring.ledger(), ActiveWeight: max(active, r.Weight), Contended: b.now < b.fair.contendedUntil,
		Expiry: exact.Duration(b.keep - b.now), LeaseMax: exact.Duration(b.leaseMax()),
		Frozen: exact.Duration(max(0, b.frozen-b.now)),
		Target: exact.Duration(int64(target)),
	}
	// A T that has grown since is not that of a stored grant, whose place lasts for the earlier one.
	g.Config.TTL = min(g.Config.TTL, exact.Duration(int64(rec.place)-rec.debit.last))
	g.Levels, g.Next = b.levels(r.Headroom)
	if least := max(1, r.Need); rec.granted < least {
		longest := int64(0)
		for k := range b.config.Limits {
			longest = max(longest, b.waitAt(k, least+b.kept(k, r.Headroom)))
		}
		if b.switched != SwitchNone {
			_, longest = b.switchLevels(0)
		}
		g.RetryAfter = exact.Duration(longest)
	}
	if g.Short {
		v := b.fairView(r)
		m := b.fair.least(v)
		alone, othersHold := active == r.Weight, b.ring.ledger() > 0
		delay := b.fair.delay(v, rec.debit, m, b.refillTime(m, r.Headroom), alone, othersHold)
		least, there := max(1, r.Need), b.available(r.Headroom)
		if b.switched == SwitchNone && rec.granted < least && least <= there {
			delay = min(delay, int64(math.Ceil(2*max(v.target, v.pause))))
		}
		g.Delay = exact.Duration(delay)
	}
}

// waitAt is the microseconds until level k has reached n tokens, or its burst, without further draws.
func (b *Bucket) waitAt(k int, n int64) int64 {
	if b.windows[k] != nil {
		return b.windowWait(k, n)
	}
	sc := &b.scales[k]
	missing := min(n, sc.Capacity)*sc.Unit - b.level[k]
	if missing <= 0 {
		return 0
	}
	return (missing+sc.Step-1)/sc.Step*sc.Tick - b.rest[k] + max(0, b.frozen-b.now)
}

// levels are the whole tokens that a caller with this headroom sees of every level, and the time until it
// has one more without further draws; 0 where it is full.
func (b *Bucket) levels(headroom float64) (
	tokens [lease.LimitsMax]int64, next [lease.LimitsMax]time.Duration,
) {
	if b.switched != SwitchNone {
		level, wait := b.switchLevels(headroom)
		tokens[0], next[0] = level, exact.Duration(wait)
		return tokens, next
	}
	for k := range b.config.Limits {
		tokens[k] = b.tokens(k, headroom)
		next[k] = exact.Duration(b.waitAt(k, tokens[k]+b.kept(k, headroom)+1))
	}
	return tokens, next
}

// fastest is the highest rate of the limits, in tokens per microsecond.
func (b *Bucket) fastest() (r float64) {
	for k := range b.config.Limits {
		r = max(r, rateOf(&b.scales[k]))
	}
	return r
}

// fairView returns the state of the limit that binds: the one with the fewest tokens for this caller.
func (b *Bucket) fairView(r *lease.Request) fairView {
	target, pause, crowded := b.pace(r.Weight)
	v := fairView{
		now: b.now, level: math.Inf(1), steer: math.Inf(1),
		target: float64(exact.Micros(b.config.Target)), long: target, pause: pause,
		ttl:    float64(b.ttl),
		weight: float64(r.Weight), active: float64(max(b.ring.weightSum(), r.Weight)), need: float64(r.Need),
		crowded: crowded,
	}
	for k := range b.config.Limits {
		sc, kept := &b.scales[k], b.kept(k, r.Headroom)
		free := b.free(k, b.ring.ledger())
		v.steer = min(v.steer, float64(free)/float64(sc.Unit))
		if sees := float64(free-kept*sc.Unit) / float64(sc.Unit); sees < v.level {
			v.level, v.rate, v.burst = sees, rateOf(sc), float64(max(1, sc.Capacity-kept))
			v.windowed = sc.Kind != lease.KindBucket
		}
	}
	v.own = v.rate / v.weight
	// A caller that sees nothing knows nothing of how the others share what it leaves them.
	if v.level >= 0 {
		v.steer = v.level
	}
	return v
}

// switchLevels are the levels of the switch: nothing for a century, or all that can be counted.
func (b *Bucket) switchLevels(headroom float64) (level int64, next int64) {
	l := b.switched.Limits()[0]
	level = -kept(l.Capacity(), headroom)
	if b.switched == SwitchBlocked {
		return level, exact.Micros(exact.MaxTime)
	}
	return level + l.Capacity(), 0
}

// refillTime is the microseconds until a caller with this headroom sees m tokens in every limit.
func (b *Bucket) refillTime(m, headroom float64) float64 {
	longest, windows := 0.0, 0.0
	for k := range b.config.Limits {
		sc := &b.scales[k]
		if b.windows[k] != nil {
			n := int64(math.Ceil(min(m, float64(sc.Capacity))))
			windows = max(windows, float64(b.windowWait(k, n+b.kept(k, headroom))))
			continue
		}
		kept := b.kept(k, headroom)
		sees := float64(b.level[k] - kept*sc.Unit)
		missing := float64(min(m, float64(sc.Capacity-kept))*float64(sc.Unit)) - sees
		longest = max(longest, float64(missing/float64(sc.Step)*float64(sc.Tick)))
	}
	if longest > 0 && b.frozen > b.now {
		longest += float64(b.frozen - b.now)
	}
	return max(longest, windows)
}

// Calls of a large fleet, docs/protocol.md section 7.8: they come near their budget,
// Policy.CallsPerSecond. Each of n holders calls once in n/budget seconds then, so leases are to
// last for as long, as far as the burst allows: a token that is leased is not refilled.

// holders is how many holders of this weight would weigh as much as all that are active; 0 where none is.
func (b *Bucket) holders(weight int64) float64 {
	active := b.ring.weightSum()
	if active == 0 {
		return 0
	}
	return float64(max(active, weight)) / float64(weight)
}

// fills is the microseconds in which the limit that takes least makes its burst and the overcommit.
func (b *Bucket) fills() float64 {
	least := math.Inf(1)
	for k := range b.config.Limits {
		sc := &b.scales[k]
		least = min(least, float64(sc.Capacity+b.config.Overcommit)/rateOf(sc))
	}
	return least
}

// pace returns, for a holder of this weight, the Target in force, in microseconds, how long to wait
// after a short grant, in microseconds, or 0 where that is no longer than the configured Target, and
// whether the budget of calls wants less than one call in the configured Target.
func (b *Bucket) pace(weight int64) (target, pause float64, crowded bool) {
	n, fills, configured := b.holders(weight), b.fills(), float64(exact.Micros(b.config.Target))
	pause = pauseOf(&b.config, n, fills, float64(b.ttl))
	if pause <= configured {
		pause = 0
	}
	return targetOf(&b.config, n, fills), pause, spacing(&b.config, n) > configured
}

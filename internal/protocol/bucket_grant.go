package protocol

import (
	"math"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

// credit applies step 6. Returned tokens, unused and refund count only if known is set.
func (b *Bucket) credit(r *lease.Request, known bool) {
	b.refunded = [lease.LimitsMax]int64{}
	m := b.at()
	for k, l := range b.limits {
		if known {
			l.back(m, r.Returned)
		}
		for i := range r.Late {
			b.refunded[k] += l.late(m, &r.Late[i], known)
		}
	}
	if b.refunded != [lease.LimitsMax]int64{} {
		b.setAt = b.now // unused tokens drawn before a refund are worth nothing
	}
}

// draw computes the grant and subtracts it from every level (step 7). others is the number of tokens that
// other holders hold. alone reports that no other holder has an entry in the ring.
func (b *Bucket) draw(r *lease.Request, rec *record, live bool, others int64, alone bool) int64 {
	if !live {
		rec.Debit = Debit{}
	}
	if b.switched != SwitchNone {
		rec.Debit = Debit{min(rec.Allowance, exact.MaxUnits), b.now}
		if b.switched == SwitchBlocked || r.Waiting < r.Need {
			return 0
		}
		// Unlimited leases nothing: returned tokens would be credited to the suspended limits.
		return min(r.Want, r.Waiting)
	}
	available := max(0, b.available(r.Headroom))
	v := b.fairView(r)
	if !live {
		rec.Debit = Debit{Allowance: float64(float64(v.weight*min(b.fair.share, v.own)) * v.long), Last: b.now}
	}
	b.fair.advance(v, &rec.Debit)
	g := min(r.Want, available, b.fair.allow(v, &rec.Debit, alone))
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
	rec.Allowance = max(-exact.MaxUnits, rec.Allowance-float64(g))
	b.take(g, min(g, r.Waiting))
	return g
}

// sees returns the whole tokens of l less the headroom, below 0 if l has less than the headroom.
func sees(l tally, m *moment, headroom float64) int64 {
	sp := l.about()
	return exact.FloorDiv(l.free(m), sp.Unit) - kept(sp.Capacity, headroom)
}

// available returns the fewest whole tokens that a caller with this headroom sees in any limit.
func (b *Bucket) available(headroom float64) int64 {
	n, m := int64(exact.MaxUnits), b.at()
	for _, l := range b.limits {
		n = min(n, sees(l, m, headroom))
	}
	return n
}

func (b *Bucket) reply(r *lease.Request, rec *record, g *lease.Grant) {
	target, _, _ := b.pace(r.Weight)
	*g = lease.Grant{
		Status: b.status(r.Headroom),
		Seq:    rec.Seq, Granted: rec.Granted, Waited: min(rec.Granted, r.Waiting), Void: rec.Void,
		Running: rec.Last, Contended: b.now < b.fair.contendedUntil,
		Expiry: exact.Duration(b.keep - b.now), LeaseMax: exact.Duration(b.leaseMax()),
		Frozen: exact.Duration(max(0, b.frozen-b.now)),
		Target: exact.Duration(int64(target)),
	}
	active := g.ActiveWeight
	g.ActiveWeight = max(active, r.Weight)
	// A retry is told the T of its first execution, even if T has grown since (6.8).
	g.Config.TTL = min(g.Config.TTL, exact.Duration(rec.Ends-rec.Last))
	least := max(1, r.Need)
	if rec.Granted < least {
		longest := b.waitFor(least, r.Headroom)
		if b.switched != SwitchNone {
			_, longest = b.switchLevels(0)
		}
		g.RetryAfter = exact.Duration(longest)
	}
	if rec.Granted < r.Want && b.switched != SwitchUnlimited {
		v := b.fairView(r)
		m := b.fair.least(v)
		refill := float64(b.waitFor(int64(m), r.Headroom))
		delay := b.fair.delay(v, rec.Debit, m, refill, active == r.Weight, g.Ledger > 0)
		if b.switched == SwitchNone && rec.Granted < least && least <= b.available(r.Headroom) {
			delay = min(delay, int64(math.Ceil(2*max(v.target, v.pause))))
		}
		g.Delay = exact.Duration(delay)
	}
}

// waitFor returns the microseconds until a caller with this headroom sees n tokens in every limit.
func (b *Bucket) waitFor(n int64, headroom float64) (longest int64) {
	m := b.at()
	for _, l := range b.limits {
		longest = max(longest, l.wait(m, n+kept(l.about().Capacity, headroom)))
	}
	return longest
}

func (b *Bucket) status(headroom float64) lease.Status {
	s := lease.Status{Config: b.inForce(), Epoch: b.epoch, Counter: b.counter, ServerTime: b.clock,
		Ledger: b.ring.ledger(), ActiveWeight: b.ring.weightSum()}
	if b.switched != SwitchNone {
		level, wait := b.switchLevels(headroom)
		s.Levels[0], s.Next[0] = level, exact.Duration(wait)
		return s
	}
	m := b.at()
	for k, l := range b.limits {
		s.Levels[k] = sees(l, m, headroom)
		s.Next[k] = exact.Duration(l.wait(m, s.Levels[k]+kept(l.about().Capacity, headroom)+1))
	}
	return s
}

func (b *Bucket) fastest() (r float64) {
	for _, l := range b.limits {
		r = max(r, l.about().rate())
	}
	return r
}

// fairView returns the inputs of the sharing, by the limit with the fewest tokens for this caller.
func (b *Bucket) fairView(r *lease.Request) fairView {
	target, pause, crowded := b.pace(r.Weight)
	v := fairView{
		now: b.now, level: math.Inf(1), steer: math.Inf(1),
		target: float64(exact.Micros(b.config.Target)), long: target, pause: pause,
		ttl:    float64(b.ttl),
		weight: float64(r.Weight), active: float64(max(b.ring.weightSum(), r.Weight)), need: float64(r.Need),
		crowded: crowded,
	}
	m := b.at()
	for _, l := range b.limits {
		sp, free := l.about(), l.free(m)
		kept := kept(sp.Capacity, r.Headroom)
		v.steer = min(v.steer, float64(free)/float64(sp.Unit))
		if sees := float64(free-kept*sp.Unit) / float64(sp.Unit); sees < v.level {
			v.level, v.rate, v.burst = sees, sp.rate(), float64(max(1, sp.Capacity-kept))
			v.windowed = sp.limit.Windowed()
		}
	}
	v.own = v.rate / v.weight
	// If the headroom leaves the caller less than 0 tokens, the level without headroom moves the share (7.1).
	if v.level >= 0 {
		v.steer = v.level
	}
	return v
}

// switchLevels returns the level that a switch shows, and the microseconds until the next token.
func (b *Bucket) switchLevels(headroom float64) (level int64, next int64) {
	l := b.switched.Limits()[0]
	level = -kept(l.Capacity(), headroom)
	if b.switched == SwitchBlocked {
		return level, exact.Micros(exact.MaxTime)
	}
	return level + l.Capacity(), 0
}

// pace returns the Target in force and the pause after a short grant for a holder of this weight (7.8), in
// microseconds. pause is 0 if no longer than the configured Target. crowded reports whether the call budget
// spaces calls by more than that Target.
func (b *Bucket) pace(weight int64) (target, pause float64, crowded bool) {
	n, fills, configured := 0., math.Inf(1), float64(exact.Micros(b.config.Target))
	if active := b.ring.weightSum(); active > 0 {
		n = float64(max(active, weight)) / float64(weight) // the fleet, counted in holders of this weight
	}
	for _, l := range b.limits {
		fills = min(fills, float64(l.about().most)/l.about().rate())
	}
	pause = pauseOf(&b.config, n, fills, float64(b.ttl))
	if pause <= configured {
		pause = 0
	}
	return targetOf(&b.config, n, fills), pause, spacing(&b.config, n) > configured
}

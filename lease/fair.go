package lease

import "math"

// fair is the state of weighted max-min sharing: a fair rate per unit of weight, which falls while the
// level is below its set point and rises while it is above, so that it settles where the holders that want
// more than their share get exactly it. It cannot break (1): it only ever lowers a grant.
//
// It counts in doubles, with + - * / floor ceil min max alone and every product rounded by a conversion,
// so that Lua, which does the same, agrees to the last bit on every machine.
type fair struct {
	share          float64 // tokens per microsecond and unit of weight
	updated        int64
	contendedUntil int64
}

// debit is one holder's side: how much of its share it has not drawn yet.
type debit struct {
	allowance float64 // tokens; negative for who drew more
	last      int64
}

// fairView is what the sharing looks at, as doubles.
type fairView struct {
	now    int64
	level  float64 // tokens, with their fraction
	burst  float64
	rate   float64 // tokens per microsecond
	target float64 // microseconds
	ttl    float64 // microseconds
	weight float64
	need   float64
}

// shareRange is how far the share may fall below the rate: a hundred thousand holders of weight 1.
const shareRange = 1e5

func newFair(now int64, rate float64) fair { return fair{share: rate, updated: now} }

func (b *Bucket) rate() float64 {
	r := b.scales[0].rate()
	for k := 1; k < len(b.config.Limits); k++ {
		r = min(r, b.scales[k].rate())
	}
	return r
}

// fairView describes the tightest of the limits.
func (b *Bucket) fairView(r *Request) fairView {
	v := fairView{
		now:    b.state.now,
		rate:   b.rate(),
		target: float64(micros(b.config.Target)),
		ttl:    float64(b.state.ttl),
		weight: float64(r.Weight),
		need:   float64(r.Need),
	}
	for k := range b.config.Limits {
		sc := &b.scales[k]
		level := float64(b.state.level[k]) / float64(sc.unit)
		if k == 0 || level < v.level {
			v.level = level
		}
		if k == 0 || float64(sc.burst) < v.burst {
			v.burst = float64(sc.burst)
		}
	}
	return v
}

// setPoint is the level that the sharing steers to: what all holders together draw in half a
// Target, the pause between two calls of one that wants more. What stands there nobody is admitted
// with.
func (v fairView) setPoint() float64 {
	return min(v.burst/2, max(1, float64(v.rate*v.target)/2))
}

// open is a new holder's allowance: what its share gives it in one Target, so that it need not wait.
func (f *fair) open(v fairView) debit {
	return debit{allowance: float64(float64(v.weight*f.share) * v.target), last: v.now}
}

// advance moves the share and d up to now.
func (f *fair) advance(v fairView, d *debit) {
	point := v.setPoint()
	pull := max(-1, min(1, (v.level-point)/float64(2*point)))
	// Below a token in a Target the level cannot follow a Target's correction: while all wait for the next token the share
	// would sink to the bottom of its range, and stay there for seconds after a rise of the rate.
	period := max(v.target, point/v.rate)
	x := float64(min(float64(max(v.now-f.updated, 0)), period) / period * pull)
	half := float64(x / 2)
	f.share = float64(f.share * ((1 + half) / (1 - half)))
	f.share = max(v.rate/shareRange, min(v.rate, f.share))
	f.updated = v.now

	gain := float64(v.weight * f.share)
	// The level is the integral of what is not drawn, and the share that of the level's error: by
	// itself that swings for ever (of 4 processes at 10,000/s one got 1.6 times its share, another
	// 0.8). What is earned therefore follows the error too. With a twelfth the damping is enough,
	// and nobody's call depends on the moment at which it comes: with a half, of weights 1, 2 and 5
	// the first got 86 % of its share, with this 97 %.
	lean := float64(pull / 12)
	earning := min(float64(v.weight*v.rate), float64(gain*((1+lean)/(1-lean))))
	earned := float64(earning * min(float64(max(v.now-d.last, 0)), v.ttl))
	d.allowance = min(f.owed(v, d)+earned, f.most(v))
	d.last = v.now
}

// most is the most that is saved up: four Targets' share, so that who asks for about as much as his
// share gets it although he asks now for more and now for less. It forgets what an idle holder
// would have gathered; a need above it must still be reachable. Nobody is granted more than
// maxUnits at once, and beyond 2^53 the script would take what it stored itself for damaged.
func (f *fair) most(v fairView) float64 {
	return min(maxUnits, max(1, v.need, float64(4*float64(float64(v.weight*f.share)*v.target))))
}

// owed is d's allowance, of which whoever drew more than it while there was plenty owes no more than he is contended with.
func (f *fair) owed(v fairView, d *debit) float64 {
	return max(d.allowance, -max(1, float64(f.most(v)*f.scarcity(v))))
}

// scarcity is 0 while the share is the whole rate, so that nobody is kept from anything, and near 1 where many divide it.
func (f *fair) scarcity(v fairView) float64 { return float64(1 - f.share/v.rate) }

// allow is the most that may be granted. A holder that is alone shares with nobody.
func (f *fair) allow(v fairView, d *debit, alone bool) int64 {
	if alone {
		return maxUnits
	}
	// What lies above the set point is free: all of it while nobody is kept from anything, and half
	// where many share; it would otherwise wait for nobody. The set point is kept for others only
	// as far as there are any who want it.
	scarcity := f.scarcity(v)
	spare := v.level - float64(v.setPoint()*scarcity)
	most := max(math.Ceil(d.allowance), math.Floor(float64(spare*(1-float64(scarcity/2)))))
	return int64(max(0, min(most, maxUnits)))
}

// spend takes a grant off the allowance. How much of a debt stays is seen when the next call comes; with a floor of -1
// the worst of 200 processes at twice the limit got 91 % of its share, with this 94 %.
func (d *debit) spend(g int64) { d.allowance = max(-maxUnits, d.allowance-float64(g)) }

// contend remembers for two Targets that somebody asked for more than there was while others held tokens.
func (f *fair) contend(v fairView, short bool) {
	if short {
		f.contendedUntil = v.now + int64(2*v.target)
	}
}

// least is the number of tokens that the next call after a shortfall waits for.
func (f *fair) least(v fairView) float64 {
	share := float64(float64(float64(v.weight*f.share)*v.target) / 2)
	return max(1, v.need, min(share, v.burst/2))
}

// delay is the microseconds until the next call of a holder that got less than it wanted: until it
// has earned what m tokens take and the bucket has refilled them (refill microseconds), at least
// half a Target, because an overloaded fleet would otherwise call without pause, and, while others
// hold tokens that they may give back, no later than it takes to notice. Where there is no more
// than a token in a Target, two calls for each are few enough, and half a Target too long.
func (f *fair) delay(v fairView, d debit, m, refill float64, alone, othersHold bool) int64 {
	wait := refill
	if !alone {
		// A grant is rounded up, so that m tokens are granted as soon as more than ceil(m) - 1 are
		// earned.
		lacking := float64(math.Ceil(m)-1) - f.owed(v, &d)
		wait = max(wait, math.Floor(lacking/float64(v.weight*f.share))+1)
	}
	if float64(v.rate*v.target) > 1 {
		wait = max(wait, v.target/2)
	}
	if othersHold {
		wait = min(wait, max(float64(2*v.target), min(refill, v.ttl)))
	}
	return int64(math.Ceil(max(1, min(wait, maxUnits))))
}

// refillTime is the microseconds until every level has reached m tokens, as a double.
func (b *Bucket) refillTime(m float64) float64 {
	s := &b.state
	longest := 0.0
	for k := range b.config.Limits {
		sc := &b.scales[k]
		missing := float64(min(m, float64(sc.burst))*float64(sc.unit)) - float64(s.level[k])
		longest = max(longest, float64(missing/float64(sc.step)*float64(sc.tick)))
	}
	if longest > 0 && s.frozen > s.now {
		longest += float64(s.frozen - s.now)
	}
	return longest
}

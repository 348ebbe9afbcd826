package protocol

import (
	"math"

	"github.com/yuzhi-go/yuzhi/internal/exact"
)

// fair is the state of weighted max-min sharing, docs/protocol.md section 7: a fair rate per unit
// of weight. It falls while the level is below its set point and rises while it is above, so that
// it comes to rest where the holders that want more than their share get exactly that share.
//
// It counts in doubles, with + - * / floor ceil min max alone and every product rounded by a
// conversion, so that Lua, which does the same, agrees to the last bit on every machine.
type fair struct {
	share          float64 // tokens per microsecond and unit of weight
	updated        int64
	contendedUntil int64 // a holder asked for more than there was while others held tokens
	idleSince      int64 // when a call was first refused, for its allowance, what is there; 0 since a grant
}

// debit is one holder's side: how much of its share it has not drawn yet.
type debit struct {
	allowance float64 // tokens; negative where it drew more
	last      int64   // when it last drew
}

// fairView has the inputs of the sharing, as doubles: the tightest of the limits, as far as the caller's
// headroom lets it see them, and the request.
type fairView struct {
	now    int64
	level  float64 // tokens, with their fraction
	steer  float64 // the level that moves the share
	burst  float64 // at least 1
	rate   float64 // tokens per microsecond
	own    float64 // the share with which the caller has the whole rate: rate/weight
	target float64 // that is configured, microseconds
	long   float64 // the Target in force, microseconds
	pause  float64 // after a short grant, microseconds; 0 where no longer than the configured Target
	ttl    float64 // microseconds
	weight float64
	active float64 // the sum of the weights of all holders
	need   float64
	// A window of time divides what was used long ago: its level answers a change of the share only
	// when that is dropped.
	windowed bool
	crowded  bool // the budget of calls wants leases that are longer than the configured Target
}

// shareRange is how far the share may fall below a caller's own: a hundred thousand alike holders.
const shareRange = 1e5

// setPoint is the level that the sharing steers to: what all holders together draw in half a
// Target, the pause between two calls of one that wants more.
func (v fairView) setPoint() float64 {
	return min(v.burst/2, max(1, float64(v.rate*v.target)/2))
}

// advance moves the share and d up to now.
func (f *fair) advance(v fairView, d *debit) {
	point := v.setPoint()
	pull := max(-1, min(1, (v.steer-point)/float64(2*point)))
	// The level cannot answer a correction faster than a token arrives. Where that is slower than a
	// Target, the share would otherwise sink to the bottom of its range.
	period, least := max(v.target, point/v.rate), v.own/shareRange
	if v.windowed {
		least = float64(0.9 * (v.rate / v.active))
	}
	share := min(f.share, v.own)
	if v.pause > 0 {
		// Nor than holders call. Far above an equal share the share falls faster, or it would take
		// tens of seconds until a fleet that has just started divides the rate.
		equal := v.rate / v.active
		least = float64(0.9 * equal)
		if pull < 0 {
			period = max(period, float64(v.pause*min(1, equal/share)))
		} else {
			period = max(period, v.pause)
		}
	}
	x := float64(min(float64(max(v.now-f.updated, 0)), period) / period * pull)
	half := float64(x / 2)
	f.share = max(least, min(v.own, float64(share*((1+half)/(1-half)))))
	f.updated = v.now

	// The share is the integral of the level's error, and the level that of what is not drawn: by
	// itself such a loop swings for ever. So what a holder earns leans towards the error too. A
	// twelfth damps the swing enough; more would make a grant depend on the moment of the call.
	gain := float64(v.weight * f.share)
	lean := float64(pull / 12)
	earning := min(v.rate, float64(gain*((1+lean)/(1-lean))))
	earned := float64(earning * min(float64(max(v.now-d.last, 0)), v.ttl))
	d.allowance = min(f.owed(v, d)+earned, f.most(v))
	d.last = v.now
}

// most is the largest allowance that a holder saves up: four Targets' share, since it asks now for more and
// now for less, or a larger need. An idle holder must not save up the whole bucket.
func (f *fair) most(v fairView) float64 {
	return min(exact.MaxUnits, max(1, v.need, float64(4*float64(float64(v.weight*f.share)*v.long))))
}

// owed returns the allowance with its debt bounded. A holder that overdrew while tokens were
// plentiful should not starve later, so its debt counts only in proportion to scarcity.
func (f *fair) owed(v fairView, d *debit) float64 {
	return max(d.allowance, -max(1, float64(f.most(v)*f.scarcity(v))))
}

// scarcity is 0 while the caller may have the whole rate, and near 1 where many divide it.
func (f *fair) scarcity(v fairView) float64 { return float64(1 - f.share/v.own) }

// allow is the most that may be granted (7.5). The level above the set point is free to all: half of it
// where many share, all of it where each gets what it asks for. Where the budget of calls wants long leases
// it is divided, or luck would decide which holders get it.
func (f *fair) allow(v fairView, d *debit, alone bool) int64 {
	if alone {
		return exact.MaxUnits
	}
	scarcity := f.scarcity(v)
	spare := v.level - float64(v.setPoint()*scarcity)
	kept := float64(scarcity / 2)
	if v.crowded {
		kept = float64(scarcity * (1 - v.weight/v.active))
	}
	most := max(math.Ceil(d.allowance), math.Floor(float64(spare*(1-kept))))
	return int64(max(0, min(most, exact.MaxUnits)))
}

// grantIdle grants a call least tokens, which it needs and the bucket has, although its allowance is too small:
// if such calls have been refused for two Targets (7.10). Until then it notes the first refusal, and grants 0.
func (f *fair) grantIdle(v fairView, least int64) int64 {
	switch {
	case f.idleSince == 0:
		f.idleSince = max(v.now, 1)
	case float64(v.now-f.idleSince) >= 2*max(v.target, v.pause):
		return least
	}
	return 0
}

// least is the number of tokens, whole, that the next call after a short grant waits for.
func (f *fair) least(v fairView) float64 {
	share := float64(float64(float64(v.weight*f.share)*v.target) / 2)
	if v.pause > 0 {
		share = float64(float64(v.weight*f.share) * v.pause)
	}
	return math.Ceil(max(1, v.need, min(share, v.burst/2)))
}

// delay is the microseconds until the next call after a short grant is worth it (7.7): until the
// bucket has refilled m tokens, which takes refill microseconds, and the holder has earned them.
func (f *fair) delay(v fairView, d debit, m, refill float64, alone, othersHold bool) int64 {
	wait := refill
	if !alone {
		// A grant is rounded up: m tokens are granted as soon as more than m - 1 are earned.
		lacking := float64(m-1) - f.owed(v, &d)
		wait = max(wait, math.Floor(lacking/float64(v.weight*f.share))+1)
	}
	if float64(v.rate*v.target) > 1 {
		wait = max(wait, v.target/2, float64(v.pause*f.scarcity(v)))
	}
	if othersHold {
		wait = min(wait, max(float64(2*v.target), float64(2*v.pause), min(refill, v.ttl)))
	}
	return int64(math.Ceil(max(1, min(wait, exact.MaxUnits))))
}

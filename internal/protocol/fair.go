package protocol

import (
	"math"

	"github.com/yuzhi-go/yuzhi/internal/exact"
)

// fair is the state of weighted max-min sharing, docs/protocol.md section 7: a fair rate per unit of weight.
// The fair rate falls while the level is below its set point and rises while the level is above. The rate
// settles where the holders that want more than their share get exactly their share.
//
// The arithmetic uses only doubles and + - * / floor ceil min max, and a conversion rounds every product. The
// Lua script therefore agrees with this code to the last bit on every machine.
type fair struct {
	share          float64 // tokens per microsecond and unit of weight
	updated        int64
	contendedUntil int64 // until when the bucket is contended (7.6)
	idleSince      int64 // when a call was first refused for its allowance alone; 0 after a grant
}

// Debit is the allowance of one holder: the part of the holder's share that it has not drawn yet.
type Debit struct {
	Allowance float64 // tokens; negative if the holder drew more than its share
	Last      int64   // when the holder last drew
}

// fairView has the inputs of the sharing as doubles: the tightest limit for the caller, and the request.
type fairView struct {
	now    int64
	level  float64 // tokens, with fractions
	steer  float64 // level, or if that is negative, the tokens without the headroom; moves the share (7.1)
	burst  float64 // tokens, at least 1
	rate   float64 // tokens per microsecond
	own    float64 // the share at which the caller has the whole rate: rate/weight
	target float64 // the configured Target, microseconds
	long   float64 // the Target in force, microseconds
	pause  float64 // the pause after a short grant, microseconds; 0 if no longer than the configured Target
	ttl    float64 // microseconds
	weight float64
	active float64 // the sum of the weights of all holders
	need   float64
	// The limit is a window: its level reacts to a change of the share only when old charges are dropped.
	windowed bool
	crowded  bool // the budget of calls wants leases longer than the configured Target
}

// shareRange is the factor by which the share may fall below a caller's own: 100,000 equal holders.
const shareRange = 1e5

// setPoint returns the level to which the sharing steers: the tokens that all holders draw in half a Target,
// which is the pause between two calls of a holder that wants more.
func (v fairView) setPoint() float64 {
	return min(v.burst/2, max(1, float64(v.rate*v.target)/2))
}

// advance updates the fair share and the allowance d to now.
func (f *fair) advance(v fairView, d *Debit) {
	point := v.setPoint()
	pull := max(-1, min(1, (v.steer-point)/float64(2*point)))
	// The level cannot react to a corrected share before a token arrives. If a token takes longer than a
	// Target, a faster correction would push the share to the bottom of its range.
	period, least := max(v.target, point/v.rate), v.own/shareRange
	if v.windowed {
		least = float64(0.9 * (v.rate / v.active))
	}
	share := min(f.share, v.own)
	if v.pause > 0 {
		// The level reacts only when holders call. A share far above that of equal holders falls faster;
		// otherwise a fleet that has just started would take tens of seconds to divide the rate.
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

	// The share integrates the error of the level, and the level integrates the undrawn tokens, so this
	// control loop alone oscillates for ever. Let the earnings of a holder follow the error too: a gain of a
	// twelfth damps the oscillation enough. With more gain a grant would depend on the moment of the call.
	gain := float64(v.weight * f.share)
	lean := float64(pull / 12)
	earning := min(v.rate, float64(gain*((1+lean)/(1-lean))))
	earned := float64(earning * min(float64(max(v.now-d.Last, 0)), v.ttl))
	d.Allowance = min(f.owed(v, d)+earned, f.most(v))
	d.Last = v.now
}

// most returns the largest allowance that a holder can save up: its share for four Targets, because demand
// varies, or its need if that is more. An idle holder must not save up the whole bucket.
func (f *fair) most(v fairView) float64 {
	return min(exact.MaxUnits, max(1, v.need, float64(4*float64(float64(v.weight*f.share)*v.long))))
}

// owed returns the allowance with a lower bound. A holder that overdrew while tokens were plentiful should
// not starve later, so a negative allowance counts only in proportion to scarcity.
func (f *fair) owed(v fairView, d *Debit) float64 {
	return max(d.Allowance, -max(1, float64(f.most(v)*f.scarcity(v))))
}

// scarcity returns 0 while the caller may have the whole rate, and nearly 1 if many holders share the rate.
func (f *fair) scarcity(v fairView) float64 { return float64(1 - f.share/v.own) }

// allow returns the most that may be granted (7.5). If the call budget demands long leases, the level above
// the set point is divided among holders; otherwise luck would decide which holders get long leases.
func (f *fair) allow(v fairView, d *Debit, alone bool) int64 {
	if alone {
		return exact.MaxUnits
	}
	scarcity := f.scarcity(v)
	spare := v.level - float64(v.setPoint()*scarcity)
	kept := float64(scarcity / 2)
	if v.crowded {
		kept = float64(scarcity * (1 - v.weight/v.active))
	}
	most := max(math.Ceil(d.Allowance), math.Floor(float64(spare*(1-kept))))
	return int64(max(0, min(most, exact.MaxUnits)))
}

// grantIdle grants a call the least tokens that it needs once such calls have been refused for their
// allowance alone for two Targets (7.10). Until two Targets after the first refusal grantIdle grants 0.
func (f *fair) grantIdle(v fairView, least int64) int64 {
	switch {
	case f.idleSince == 0:
		f.idleSince = max(v.now, 1)
	case float64(v.now-f.idleSince) >= 2*max(v.target, v.pause):
		return least
	}
	return 0
}

// least returns how many whole tokens the next call after a short grant waits for.
func (f *fair) least(v fairView) float64 {
	share := float64(float64(float64(v.weight*f.share)*v.target) / 2)
	if v.pause > 0 {
		share = float64(float64(v.weight*f.share) * v.pause)
	}
	return math.Ceil(max(1, v.need, min(share, v.burst/2)))
}

// delay returns the microseconds until the next call after a short grant is worthwhile (7.7): the bucket has
// refilled m tokens, which takes refill microseconds, and the holder has earned them.
func (f *fair) delay(v fairView, d Debit, m, refill float64, alone, othersHold bool) int64 {
	wait := refill
	if !alone {
		// An allowance is rounded up: m tokens are granted as soon as more than m - 1 are earned.
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

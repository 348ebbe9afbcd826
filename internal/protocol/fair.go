package protocol

import (
	"math"

	"github.com/yuzhi-go/yuzhi/internal/exact"
)

// fair is the state of weighted max-min sharing, docs/protocol.md section 7. The share falls while the level
// is below its set point, and rises while the level is above. A conversion rounds every product, so that the
// Lua script agrees bit by bit.
type fair struct {
	share          float64 // tokens per microsecond and unit of weight
	updated        int64
	contendedUntil int64 // until when the bucket is contended (7.6)
	idleSince      int64 // when a call was first refused only because of its allowance; 0 after a grant
}

// Debit is the allowance of one holder: the part of its share that the holder has not drawn yet.
type Debit struct {
	Allowance float64 // tokens; negative if the holder drew more than its share
	Last      int64   // when the holder last called
}

// fairView has the inputs of the sharing: the limit with the fewest tokens for the caller, and the request.
type fairView struct {
	now    int64
	level  float64 // tokens, with fractions
	steer  float64 // level or, if negative, the level without the headroom (7.1)
	burst  float64 // tokens, at least 1
	rate   float64 // tokens per microsecond
	own    float64 // the share with which the caller has the whole rate
	target float64 // the configured Target, microseconds
	long   float64 // the Target in force, microseconds
	pause  float64 // the pause after a short grant, microseconds; 0 if no longer than the configured Target
	ttl    float64 // microseconds
	weight float64
	active float64 // the active weight
	need   float64
	// The level of a window reacts to a change of the share only when old charges are dropped (7.9).
	windowed bool
	crowded  bool // the call budget demands leases longer than the configured Target
}

// shareRange is the factor by which the share may fall below a caller's own, for 100,000 equal holders.
const shareRange = 1e5

// setPoint returns the level to which the sharing steers (7.1): the tokens that all holders draw in half a
// Target, the time between two calls of a holder that wants more.
func (v fairView) setPoint() float64 {
	return min(v.burst/2, max(1, float64(v.rate*v.target)/2))
}

// advance updates the fair share and the allowance d to now.
func (f *fair) advance(v fairView, d *Debit) {
	point := v.setPoint()
	pull := max(-1, min(1, (v.steer-point)/float64(2*point)))
	// The level cannot react to a new share before a token arrives. If a token takes longer than a Target, a
	// faster correction would push the share to the end of its range.
	period, least := max(v.target, point/v.rate), v.own/shareRange
	if v.windowed {
		least = float64(0.9 * (v.rate / v.active))
	}
	share := min(f.share, v.own)
	if v.pause > 0 {
		// The level reacts only when holders call. A share far above that of equal holders falls faster:
		// otherwise a new fleet would take tens of seconds to divide the rate.
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

	// The share integrates the error of the level, and the level integrates undrawn tokens: such a control
	// loop oscillates for ever. To damp it, a twelfth of the error also changes the tokens that the holder
	// earns. A larger factor would make a grant depend on the moment of the call.
	gain := float64(v.weight * f.share)
	lean := float64(pull / 12)
	earning := min(v.rate, float64(gain*((1+lean)/(1-lean))))
	earned := float64(earning * min(float64(max(v.now-d.Last, 0)), v.ttl))
	d.Allowance = min(f.owed(v, d)+earned, f.most(v))
	d.Last = v.now
}

// most returns the most that a holder saves up (7.3). An idle holder must not save up the whole bucket.
func (f *fair) most(v fairView) float64 {
	return min(exact.MaxUnits, max(1, v.need, float64(4*float64(float64(v.weight*f.share)*v.long))))
}

// owed returns the allowance with a lower bound, so that a holder that overdrew does not starve later (7.4).
func (f *fair) owed(v fairView, d *Debit) float64 {
	return max(d.Allowance, -max(1, float64(f.most(v)*f.scarcity(v))))
}

// scarcity returns 0 while the caller may have the whole rate, and nearly 1 if many holders share the rate.
func (f *fair) scarcity(v fairView) float64 { return float64(1 - f.share/v.own) }

// allow returns the most tokens that may be granted (7.5). If the call budget demands long leases, holders
// share the level above the set point. Otherwise luck would decide which holders get long leases.
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

// grantIdle grants a call the least that it needs if allowances have refused calls for two Targets (7.10).
func (f *fair) grantIdle(v fairView, least int64) int64 {
	switch {
	case f.idleSince == 0:
		f.idleSince = max(v.now, 1)
	case float64(v.now-f.idleSince) >= 2*max(v.target, v.pause):
		return least
	}
	return 0
}

// least returns the number of tokens for which the next call after a short grant waits (7.7).
func (f *fair) least(v fairView) float64 {
	share := float64(float64(float64(v.weight*f.share)*v.target) / 2)
	if v.pause > 0 {
		share = float64(float64(v.weight*f.share) * v.pause)
	}
	return math.Ceil(max(1, v.need, min(share, v.burst/2)))
}

// delay returns the microseconds from a short grant to the next call (7.7). The bucket refills m tokens in
// the time refill.
func (f *fair) delay(v fairView, d Debit, m, refill float64, alone, othersHold bool) int64 {
	wait := refill
	if !alone {
		// A holder that has earned more than m - 1 tokens is granted m, because an allowance is rounded up.
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

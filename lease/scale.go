package lease

import (
	"errors"
	"fmt"
	"math/bits"
	"time"
)

// maxUnits bounds every integer of the protocol: below 2^52 a sum of two of them is still exact in the
// doubles that Redis's Lua counts with.
const maxUnits = 1 << 52

// maxTimeToFull bounds how long a bucket must be remembered: 100 years still fit a Duration, a Redis
// expiry and maxUnits microseconds.
const maxTimeToFull = 100 * 365 * 24 * time.Hour

// ticks are the steps in which a level may grow, finest first (microseconds). The finest one in which the
// whole burst stays below maxUnits is taken.
var ticks = [...]int64{1, 1_000, 1_000_000}

// scale is a limit in the bucket's own integers: a token is unit units, and every tick adds step units, so
// that no refill is ever rounded. With a rate of Tokens/Per, step/unit = Tokens*tick/Per in lowest terms.
type scale struct {
	burst int64 // tokens
	unit  int64 // units in one token
	step  int64 // units added in one tick
	tick  int64 // microseconds
}

var errNotExact = errors.New("cannot be held exactly")

// newScale finds the finest tick in which (Burst + overcommit) tokens, and one tick's refill, stay below maxUnits.
func newScale(l Limit, overcommit int64) (scale, error) {
	cap, carry := bits.Add64(uint64(l.Capacity()), uint64(overcommit), 0)
	if carry != 0 || cap >= maxUnits {
		return scale{}, fmt.Errorf("%w: Burst + Overcommit is %d + %d tokens, must be below 2^52", errNotExact, l.Capacity(), overcommit)
	}
	for _, tick := range ticks {
		hi, lo := bits.Mul64(uint64(l.Tokens), uint64(tick)*1000)
		per := uint64(l.Per)
		g := gcd(bits.Rem64(hi, lo, per), per)
		unit := per / g
		if hi >= g { // the quotient does not fit
			continue
		}
		step, _ := bits.Div64(hi, lo, g)
		h, units := bits.Mul64(cap, unit)
		if h != 0 || units >= maxUnits || step >= maxUnits {
			continue
		}
		// A coarse tick leaves a remainder of up to tick microseconds, which is weighed against the room
		// left by one multiplication (see bucket_settle.go).
		if tick > 1 {
			if h, p := bits.Mul64(step, uint64(tick)); h != 0 || p >= maxUnits {
				continue
			}
		}
		s := scale{burst: l.Capacity(), unit: int64(unit), step: int64(step), tick: tick}
		if s.timeToFull() > maxTimeToFull || s.timeToFull() < 0 {
			return scale{}, fmt.Errorf("takes longer than 100 years (%d h) to fill", int64(maxTimeToFull/time.Hour))
		}
		return s, nil
	}
	return scale{}, fmt.Errorf("%w: Burst*Per/gcd(Tokens, Per) must stay below 2^52 in seconds", errNotExact)
}

// timeToFull is the time from empty to full, rounded up to a tick; -1 where it exceeds an int64.
func (s scale) timeToFull() time.Duration {
	n := (s.burst*s.unit + s.step - 1) / s.step
	hi, us := bits.Mul64(uint64(n), uint64(s.tick))
	if hi != 0 || us > uint64(maxTimeToFull/time.Microsecond) {
		return -1
	}
	return time.Duration(us) * time.Microsecond
}

// rate is tokens per microsecond, as a double; Lua computes the same quotient in the same order.
func (s scale) rate() float64 {
	return float64(s.step) / float64(s.unit) / float64(s.tick)
}

// gcd(0, b) is b: a rate of whole tokens per tick has unit 1.
func gcd(a, b uint64) uint64 {
	for a != 0 {
		a, b = b%a, a
	}
	return b
}

// mulDiv is floor(a*b/c) for a < c and b below maxUnits, without a product above 2^53, so that Lua can do
// the same: it multiplies bit by bit and divides as it goes.
func mulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(q)
}

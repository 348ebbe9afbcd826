package lease

import (
	"errors"
	"fmt"
	"math/bits"
	"time"
)

const (
	// maxUnits bounds every integer of the protocol: below 2^52 the sum of two is still exact in
	// the doubles that Redis's Lua counts with.
	maxUnits = 1 << 52
	// maxTimeToFull bounds how long a bucket must be remembered: 100 years still fit a Duration, a
	// Redis expiry and maxUnits microseconds.
	maxTimeToFull = 100 * 365 * 24 * time.Hour
)

// ticks are the steps in which a level may grow, in microseconds, finest first. The finest one in
// which the whole burst stays below maxUnits is taken.
var ticks = [...]int64{1, 1_000, 1_000_000}

// Scale is a Limit in the whole numbers that every bucket counts in, so that no refill is ever
// rounded (docs/protocol.md section 3.2): a token is Unit units, and every tick adds Step units.
// Step/Unit is Tokens*Tick/Per in lowest terms. Stores outside this package put it on the wire.
type Scale struct {
	Capacity int64 // tokens
	Unit     int64 // units in one token
	Step     int64 // units added in one tick
	Tick     int64 // microseconds; of a window, its length

	Kind   Kind
	Cell   int64 // of a sliding window, microseconds
	Offset int64 // of a calendar, microseconds
}

// Scale is l in whole numbers for a bucket with the given overcommit in tokens. It fails where
// Validate does, and for the same reason; the error wraps ErrInvalidLimit.
func (l Limit) Scale(overcommit int64) (Scale, error) {
	if err := l.validateWith(overcommit); err != nil {
		return Scale{}, err
	}
	return newScale(l, overcommit)
}

// newScale finds the finest tick in which Burst + overcommit, and a tick's refill, can be counted.
func newScale(l Limit, overcommit int64) (Scale, error) {
	if l.Windowed() {
		return newWindowScale(l), nil
	}
	cap, carry := bits.Add64(uint64(l.Capacity()), uint64(overcommit), 0)
	if carry != 0 || cap >= maxUnits {
		return Scale{}, fmt.Errorf("cannot be held exactly: Burst + Overcommit is %d + %d tokens, "+
			"must be below 2^52", l.Capacity(), overcommit)
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
		// A coarse tick leaves a rest of up to tick microseconds, which Bucket.brim weighs against the
		// room by one multiplication.
		if tick > 1 {
			if h, p := bits.Mul64(step, uint64(tick)); h != 0 || p >= maxUnits {
				continue
			}
		}
		s := Scale{Capacity: l.Capacity(), Unit: int64(unit), Step: int64(step), Tick: tick}
		if s.timeToFull() > maxTimeToFull || s.timeToFull() < 0 {
			return Scale{}, errors.New("takes longer than 100 years (876000 h) to fill")
		}
		return s, nil
	}
	return Scale{}, errors.New(
		"cannot be held exactly: Burst*Per/gcd(Tokens, Per) must stay below 2^52 in seconds")
}

// held reports whether a bucket with that overcommit can hold l, which has no other fault.
func (l Limit) held(overcommit int64) bool {
	_, err := newScale(l, overcommit)
	return err == nil
}

// overcommitMost is the most below bound with which a bucket can hold l, which it can with none.
func overcommitMost(l Limit, bound int64) int64 {
	least, beyond := int64(0), bound
	for beyond-least > 1 {
		if middle := least + (beyond-least)/2; l.held(middle) {
			least = middle
		} else {
			beyond = middle
		}
	}
	return least
}

// timeToFull is the time from empty to full, rounded up to a tick; -1 where it exceeds an int64. Of
// a window it is how long a charge counts at most.
func (s Scale) timeToFull() time.Duration {
	if s.Kind != KindBucket {
		return duration(s.Tick + s.Cell)
	}
	n := (s.Capacity*s.Unit + s.Step - 1) / s.Step
	hi, us := bits.Mul64(uint64(n), uint64(s.Tick))
	if hi != 0 || us > uint64(maxTimeToFull/time.Microsecond) {
		return -1
	}
	return time.Duration(us) * time.Microsecond
}

// timeToForget is the microseconds until what was used up counts for nothing, at most 100 years: a token
// bucket makes the overcommit too, since leases of other limits that it finds later count as used of B + E.
func (s Scale) timeToForget(overcommit int64) int64 {
	if s.Kind != KindBucket {
		return micros(s.timeToFull())
	}
	n := ((s.Capacity+overcommit)*s.Unit + s.Step - 1) / s.Step
	return min(n, micros(maxTimeToFull)/s.Tick) * s.Tick
}

// startsEmpty reports whether a new bucket has no tokens of the limit: one that takes the whole 100
// years to fill, such as Blocked, is there to deny.
func (s Scale) startsEmpty() bool { return s.timeToFull() == maxTimeToFull }

// deepest is the largest debt of a level, in units: what can be counted exactly together with the
// rest of the arithmetic, in Lua too, and leaves the level full again after at most 100 years.
func (s Scale) deepest(overcommit int64) int64 {
	if s.Kind != KindBucket {
		return maxUnits - 1 - s.Capacity - overcommit
	}
	exact := (2*maxUnits - 1 - (s.Capacity+overcommit)*s.Unit - s.Step) / s.Step
	return min(exact, micros(maxTimeToFull-s.timeToFull())/s.Tick) * s.Step
}

// rate is tokens per microsecond, as a double; Lua computes the same quotient in the same order.
func (s Scale) rate() float64 {
	return float64(s.Step) / float64(s.Unit) / float64(s.Tick)
}

// floorDiv is a/b rounded down, also for a negative a.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// gcd(0, b) is b: a rate of whole tokens per tick has unit 1.
func gcd(a, b uint64) uint64 {
	for a != 0 {
		a, b = b%a, a
	}
	return b
}

// mulDiv is floor(a*b/c) for a < c and b below maxUnits. Lua has no product above 2^53, so it
// multiplies bit by bit and divides as it goes.
func mulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(q)
}

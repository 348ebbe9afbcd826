package lease

import (
	"errors"
	"fmt"
	"math/bits"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/exact"
)

// ticks has the steps in which a level may grow, in microseconds, finest first. newScale takes the finest one
// in which the whole burst stays below 2^52 units.
var ticks = [...]int64{1, 1_000, 1_000_000}

// Scale is a Limit in the whole numbers of every bucket, so that no refill is ever rounded (docs/protocol.md
// section 3.2): a token is Unit units, and every tick adds Step units. Step/Unit is Tokens*Tick/Per in lowest
// terms. Stores outside this package put it on the wire.
type Scale struct {
	Capacity int64 // tokens
	Unit     int64 // units in one token
	Step     int64 // units added in one tick
	Tick     int64 // microseconds; for a window, its length

	Kind   Kind
	Cell   int64 // for a sliding window, microseconds
	Offset int64 // for a calendar, microseconds
}

// Scale returns l in whole numbers for a bucket with the given overcommit in tokens. It fails if Validate
// does, with the same error.
func (l Limit) Scale(overcommit int64) (Scale, error) {
	if err := l.validateWith(overcommit); err != nil {
		return Scale{}, err
	}
	return newScale(l, overcommit)
}

// newScale finds the finest tick in which Burst + overcommit and the refill of a tick can be counted.
func newScale(l Limit, overcommit int64) (Scale, error) {
	if l.Windowed() {
		return newWindowScale(l), nil
	}
	cap, carry := bits.Add64(uint64(l.Capacity()), uint64(overcommit), 0)
	if carry != 0 || cap >= exact.MaxUnits {
		return Scale{}, fmt.Errorf("cannot be held exactly: Burst + Overcommit is %d + %d tokens, "+
			"must be below 2^52", l.Capacity(), overcommit)
	}
	for _, tick := range ticks {
		hi, lo := bits.Mul64(uint64(l.Tokens), uint64(tick)*1000)
		per := uint64(l.Per)
		g := exact.GCD(bits.Rem64(hi, lo, per), per)
		unit := per / g
		if hi >= g { // the quotient does not fit
			continue
		}
		step, _ := bits.Div64(hi, lo, g)
		h, units := bits.Mul64(cap, unit)
		if h != 0 || units >= exact.MaxUnits || step >= exact.MaxUnits {
			continue
		}
		// A coarse tick leaves a rest of up to tick microseconds. Bucket.brim compares it with the room by
		// one multiplication, which must not overflow.
		if tick > 1 {
			if h, p := bits.Mul64(step, uint64(tick)); h != 0 || p >= exact.MaxUnits {
				continue
			}
		}
		s := Scale{Capacity: l.Capacity(), Unit: int64(unit), Step: int64(step), Tick: tick}
		if s.TimeToFull() > exact.MaxTime || s.TimeToFull() < 0 {
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

// overcommitMost returns the largest overcommit below bound with which a bucket can hold l; 0 is possible.
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

// TimeToFull returns the time from empty to full, rounded up to a tick; -1 if it exceeds 100 years. For a
// window it is the longest time for which a charge counts.
func (s Scale) TimeToFull() time.Duration {
	if s.Kind != KindBucket {
		return exact.Duration(s.Tick + s.Cell)
	}
	n := (s.Capacity*s.Unit + s.Step - 1) / s.Step
	hi, us := bits.Mul64(uint64(n), uint64(s.Tick))
	if hi != 0 || us > uint64(exact.MaxTime/time.Microsecond) {
		return -1
	}
	return time.Duration(us) * time.Microsecond
}

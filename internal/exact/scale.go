package exact

import (
	"errors"
	"fmt"
	"math/bits"
	"time"
)

// Scale is a limit in whole numbers, so that no refill is ever rounded (docs/protocol.md section 3.2).
// Step/Unit is Tokens*Tick/Per in lowest terms. For a window, Unit is 1, Step its tokens and Tick its length.
type Scale struct {
	Capacity int64 // tokens
	Unit     int64 // units in one token
	Step     int64 // units added in one tick
	Tick     int64 // microseconds from one Step to the next

	Cell   int64 // length of a cell of a sliding window, in microseconds
	Offset int64 // offset of a calendar, in microseconds
}

// NewScale returns the scale of a token bucket, with the finest tick that 3.2 allows.
func NewScale(tokens int64, per time.Duration, burst, overcommit int64) (Scale, error) {
	most, carry := bits.Add64(uint64(burst), uint64(overcommit), 0)
	if carry != 0 || most >= MaxUnits {
		return Scale{}, fmt.Errorf("cannot be held exactly: Burst + Overcommit is %d + %d tokens, "+
			"must be below 2^52", burst, overcommit)
	}
	for _, tick := range [...]int64{1, 1_000, 1_000_000} { // microseconds, finest first
		hi, lo := bits.Mul64(uint64(tokens), uint64(tick)*1000)
		per := uint64(per)
		g := GCD(bits.Rem64(hi, lo, per), per)
		unit := per / g
		if hi >= g { // step needs more than 64 bits
			continue
		}
		step, _ := bits.Div64(hi, lo, g)
		h, units := bits.Mul64(most, unit)
		if h != 0 || units >= MaxUnits || step >= MaxUnits {
			continue
		}
		// A bucket multiplies the rest of a coarse tick with step, which must not overflow.
		if tick > 1 {
			if h, p := bits.Mul64(step, uint64(tick)); h != 0 || p >= MaxUnits {
				continue
			}
		}
		s := Scale{Capacity: burst, Unit: int64(unit), Step: int64(step), Tick: tick}
		if s.TimeToFull() > MaxTime || s.TimeToFull() < 0 {
			return Scale{}, errors.New("takes longer than 100 years (876000 h) to fill")
		}
		return s, nil
	}
	return Scale{}, errors.New(
		"cannot be held exactly: Burst*Per/gcd(Tokens, Per) must stay below 2^52 in seconds")
}

// WindowCells is the number of cells in the length of a sliding window.
const WindowCells = 60

// WindowMin is the shortest window or period, and the shortest cell.
const WindowMin = time.Millisecond

// NewWindowScale returns the scale of a sliding window of length w, or of a calendar with the period w.
func NewWindowScale(tokens int64, w, offset time.Duration, slides bool) Scale {
	s := Scale{Capacity: tokens, Unit: 1, Step: tokens, Tick: Micros(w), Offset: Micros(offset)}
	if slides {
		s.Cell = max(Micros(WindowMin), (Micros(w)+WindowCells-1)/WindowCells)
	}
	return s
}

// TimeToFull returns the time from empty to full, rounded up to a tick; -1 if more than 100 years. For a
// window TimeToFull returns the longest time for which a charge counts.
func (s Scale) TimeToFull() time.Duration {
	n := (s.Capacity*s.Unit + s.Step - 1) / s.Step
	hi, us := bits.Mul64(uint64(n), uint64(s.Tick))
	if hi != 0 || us > uint64(MaxTime/time.Microsecond) {
		return -1
	}
	return Duration(int64(us) + s.Cell)
}

package lease

// Scale is a Limit in the whole numbers that a bucket counts in: what a Store outside this package puts on the
// wire, so that every bucket counts alike and no refill is ever rounded.
type Scale struct {
	Capacity int64 // tokens
	Unit     int64 // units in one token
	Step     int64 // units added in one tick
	Tick     int64 // microseconds
}

// Scale is l in whole numbers for a bucket with the given overcommit in tokens (0 for none). It fails where
// Validate does, and for the same reason; the error wraps ErrInvalidLimit.
func (l Limit) Scale(overcommit int64) (Scale, error) {
	if err := l.validateWith(overcommit); err != nil {
		return Scale{}, err
	}
	s, err := newScale(l, overcommit)
	if err != nil {
		return Scale{}, err
	}
	return Scale{Capacity: s.burst, Unit: s.unit, Step: s.step, Tick: s.tick}, nil
}

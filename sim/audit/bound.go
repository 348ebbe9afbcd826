// Package audit decides whether a record of admissions keeps the promise of a rate limit:
//
//	admitted(t, t+w] <= Burst + Overcommit + Tokens/Per * w        for every t and w            (1)
//	admitted(t, t+Per] <= Tokens + Overcommit                      for every t                  (2)
//	admitted[k*Per+Offset, (k+1)*Per+Offset) <= Tokens + Overcommit        for every k          (3)
//
// (1) is the promise of a token bucket, (2) of a sliding window, (3) of a calendar's periods. [Worst] takes a
// finished record, in any order, of which each time is known only to an interval. [Meter] takes exact times
// one by one. [Auditor] has meters for many keys and bounds. Worst, Meter and Auditor compute in integers
// without rounding: they find an excess of a single token, and never report a false excess.
package audit

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

var (
	// ErrBound is wrapped by every error about a Bound.
	ErrBound = errors.New("audit: invalid bound")
	// ErrSpan is wrapped by every error about a record of admissions.
	ErrSpan = errors.New("audit: invalid span")
)

// A Bound is the right-hand side of (1), (2) or (3). The function Of returns the Bound of a limit.
//
// A Burst of 0 allows no burst. The zero Bound is invalid, because its Per is 0.
type Bound struct {
	Tokens     int64         // tokens that Per refills, or that a window has; 0 or more
	Per        time.Duration // time; positive
	Burst      int64         // tokens; 0 or more; ignored for a window
	Overcommit int64         // added to Burst, or to a window's Tokens; 0 or more, the sum at most MaxInt64
	Kind       lease.Kind
	Offset     time.Duration // for a calendar: the start of a period, by the clock of the record
}

// Of returns the bound that l promises, with an overcommit. The record for a calendar must use the server's
// clock, in nanoseconds since 1970.
func Of(l lease.Limit, overcommit int64) Bound {
	return Bound{Tokens: l.Tokens, Per: l.Per, Burst: l.Capacity(), Overcommit: overcommit,
		Kind: l.Kind, Offset: l.Offset}
}

// Validate returns an error that wraps ErrBound for a bound that belongs to no limit.
func (b Bound) Validate() error {
	if b.Kind <= lease.KindCalendar && b.Per > 0 && min(b.Tokens, b.Burst, b.Overcommit) >= 0 &&
		b.ceiling() >= 0 && b.Offset >= 0 && (b.Offset == 0 || b.Offset < b.Per) {
		return nil
	}
	return fmt.Errorf("%w %+v: Tokens, Burst and Overcommit must be 0 or more, and Burst (of a window Tokens) + "+
		"Overcommit at most %d; Per positive; Offset 0 to below Per; Kind at most %v", ErrBound, b,
		int64(math.MaxInt64), lease.KindCalendar)
}

// ceiling returns the tokens of the bound that do not grow with the window's length.
func (b Bound) ceiling() int64 {
	if b.windowed() {
		return b.Tokens + b.Overcommit
	}
	return b.Burst + b.Overcommit
}

// rate is a refill of tokens in every nanos nanoseconds.
type rate struct{ tokens, nanos uint64 }

// rate returns the refill rate of a bucket, or 0 for a window, which refills nothing while it lasts.
func (b Bound) rate() rate {
	if b.windowed() {
		return rate{0, uint64(b.Per)}
	}
	return rate{uint64(b.Tokens), uint64(b.Per)}
}

// wholeTokens returns units of 1/nanos tokens in whole tokens, rounded down and at most MaxInt64.
func (r rate) wholeTokens(units exact.Uint128) int64 {
	if units.Hi >= r.nanos {
		return math.MaxInt64
	}
	q, _ := bits.Div64(units.Hi, units.Lo, r.nanos)
	return int64(min(q, math.MaxInt64))
}

// covers reports whether tokens >= rate*nanos. The arguments are differences between two windows, and may be
// negative.
func (r rate) covers(tokens, nanos int64) bool {
	switch {
	case tokens >= 0 && nanos <= 0:
		return true
	case tokens < 0 && nanos >= 0:
		return false
	case tokens < 0:
		return !exact.Product(-uint64(nanos), r.tokens).Less(exact.Product(-uint64(tokens), r.nanos))
	default:
		return !exact.Product(uint64(tokens), r.nanos).Less(exact.Product(uint64(nanos), r.tokens))
	}
}

// judge compares a window with the bound; admitted counts the tokens certainly admitted in [from, to].
func (b Bound) judge(from, to, admitted int64) Window {
	r := b.rate()
	length := uint64(to) - uint64(from) // right in two's complement for any from <= to
	flow := r.wholeTokens(exact.Product(r.tokens, length))
	// The excess rounds up because flow rounds down. The order of the subtractions prevents overflow.
	over := int64(0)
	if rest := admitted - b.ceiling(); rest > flow {
		over = rest - flow
	}
	return Window{
		From: from, To: to, Admitted: admitted,
		Bound:      float64(b.ceiling()) + float64(r.tokens)*(float64(length)/float64(b.Per)),
		ExceededBy: over,
	}
}

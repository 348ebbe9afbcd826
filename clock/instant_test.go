package clock_test

import (
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

const year = 365 * 24 * time.Hour

func TestInstantAddAndSubAreInverse(t *testing.T) {
	given := clock.Instant(1000)

	later, earlier := given.Add(time.Microsecond), given.Add(-time.Microsecond)

	if later != 2000 || earlier != 0 {
		t.Errorf("1000 +- 1us = %d and %d, want 2000 and 0", later, earlier)
	}
	if d := later.Sub(given); d != time.Microsecond {
		t.Errorf("later.Sub(given) = %v, want 1us", d)
	}
	if d := earlier.Sub(given); d != -time.Microsecond {
		t.Errorf("earlier.Sub(given) = %v, want -1us", d)
	}
	if given.Add(0) != given || given.Sub(given) != 0 {
		t.Error("adding nothing must change nothing")
	}
}

func TestInstantBeforeAndAfterAreStrict(t *testing.T) {
	for _, c := range []struct {
		a, b          clock.Instant
		before, after bool
	}{{1, 2, true, false}, {2, 2, false, false}, {2, 1, false, true}} {
		if c.a.Before(c.b) != c.before || c.a.After(c.b) != c.after {
			t.Errorf("%d against %d: before %v, after %v", c.a, c.b, c.a.Before(c.b), c.a.After(c.b))
		}
	}
}

// Whatever the operands, the result is the true sum or difference, cut off at
// the ends of the scale.
func TestInstantArithmeticStopsAtTheEnds(t *testing.T) {
	edges := []int64{math.MinInt64, math.MinInt64 + 1, -1, 0, 1, math.MaxInt64 - 1, math.MaxInt64}
	r := testkit.Rand(t)
	for range 50 {
		edges = append(edges, int64(r.Uint64()))
	}
	for _, a := range edges {
		for _, b := range edges {
			sum := new(big.Int).Add(big.NewInt(a), big.NewInt(b))
			if got, want := int64(clock.Instant(a).Add(time.Duration(b))), cutOff(sum); got != want {
				t.Fatalf("%d + %d = %d, want %d", a, b, got, want)
			}
			diff := new(big.Int).Sub(big.NewInt(a), big.NewInt(b))
			if got, want := int64(clock.Instant(a).Sub(clock.Instant(b))), cutOff(diff); got != want {
				t.Fatalf("%d - %d = %d, want %d", a, b, got, want)
			}
		}
	}
}

func cutOff(x *big.Int) int64 {
	switch {
	case x.IsInt64():
		return x.Int64()
	case x.Sign() < 0:
		return math.MinInt64
	default:
		return math.MaxInt64
	}
}

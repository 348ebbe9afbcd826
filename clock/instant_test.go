package clock_test

import (
	"fmt"
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
	equal(t, "1000 + 1us", later, 2000)
	equal(t, "1000 - 1us", earlier, 0)
	equal(t, "2000 - 1000", later.Sub(given), time.Microsecond)
	equal(t, "0 - 1000", earlier.Sub(given), -time.Microsecond)
	equal(t, "adding nothing", given.Add(0), given)
	equal(t, "1000 - 1000", given.Sub(given), 0)
}

func TestInstantBeforeAndAfterAreStrict(t *testing.T) {
	for _, c := range []struct {
		a, b          clock.Instant
		before, after bool
	}{{1, 2, true, false}, {2, 2, false, false}, {2, 1, false, true}} {
		equal(t, fmt.Sprint(c.a, " before ", c.b), c.a.Before(c.b), c.before)
		equal(t, fmt.Sprint(c.a, " after ", c.b), c.a.After(c.b), c.after)
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

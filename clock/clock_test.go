package clock_test

import (
	"math"
	"math/big"
	"testing"
	"testing/synctest"
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

// Whatever the operands, the result is the true sum or difference, cut off at the ends of the scale.
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

// outside is made where a program makes its clock: not in any bubble.
var outside = clock.System()

func TestSystemIsPositiveAndNeverGoesBack(t *testing.T) {
	last := clock.Instant(0)
	for range 10_000 {
		now := clock.System().Now()
		testkit.Must(t, now > 0 && now >= last, "read %d after %d", now, last)
		last = now
	}
}

func TestSystemClocksOfOneProcessAreComparable(t *testing.T) {
	a := outside.Now()
	b := clock.System().Now()
	c := outside.Now()
	testkit.Check(t, b >= a && c >= b, "two system clocks read %d, %d, %d in turn", a, b, c)
	equal(t, "two system clocks are equal", outside == clock.System(), true)
}

func TestSystemTimerFiresOnceNotEarlyAndCanBeStopped(t *testing.T) {
	c := clock.System()
	start, fired := c.Now(), make(chan clock.Instant, 2)
	timer := c.AfterFunc(time.Millisecond, func() { fired <- c.Now() })

	at := <-fired
	testkit.Check(t, at.Sub(start) >= time.Millisecond, "fired after %v, want 1ms or more", at.Sub(start))
	equal(t, "Stop of a timer that has fired", timer.Stop(), false)
	equal(t, "Reset of a timer that has fired", timer.Reset(time.Hour), false)
	equal(t, "Stop of a timer that was set again", timer.Stop(), true)
}

// A bubble's clock starts in the year 2000, decades before this process did.
func TestSystemFollowsTheFakeTimeOfABubble(t *testing.T) {
	before := outside.Now()
	for name, newClock := range map[string]func() clock.Clock{
		"made outside": func() clock.Clock { return outside },
		"made inside":  clock.System,
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newClock()
			start, fired := c.Now(), make(chan clock.Instant)
			testkit.Must(t, start > 0, "%s: reads %d", name, start)
			c.AfterFunc(100*year, func() { fired <- c.Now() })
			equal(t, name+": a timer of 100 years", (<-fired).Sub(start), 100*year)
		})
	}
	if after := outside.Now(); after < before || after.Sub(before) > time.Hour {
		t.Errorf("outside, the clock read %d before the bubbles and %d after", before, after)
	}
}

func TestSystemInABubbleIsComparableHoweverItWasMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		equal(t, "the clock made outside, beside one made inside", outside.Now(), clock.System().Now())
	})
}

func BenchmarkSystemNow(b *testing.B) {
	c := clock.System()
	for b.Loop() {
		c.Now()
	}
}

func BenchmarkTimeNow(b *testing.B) {
	for b.Loop() {
		time.Now()
	}
}

// equal checks one value.
func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	testkit.Check(t, got == want, "%s: %v, want %v", what, got, want)
}

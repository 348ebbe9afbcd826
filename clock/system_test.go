package clock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
)

// outside is made where a program makes its clock: not in any bubble.
var outside = clock.System()

func TestSystemIsPositiveAndNeverGoesBack(t *testing.T) {
	last := clock.Instant(0)
	for range 10_000 {
		now := clock.System().Now()
		if now <= 0 || now.Before(last) {
			t.Fatalf("read %d after %d", now, last)
		}
		last = now
	}
}

func TestSystemClocksOfOneProcessAreComparable(t *testing.T) {
	a := outside.Now()
	b := clock.System().Now()
	c := outside.Now()
	if b.Before(a) || c.Before(b) {
		t.Errorf("two system clocks read %d, %d, %d in turn", a, b, c)
	}
	equal(t, "two system clocks are equal", outside == clock.System(), true)
}

func TestSystemTimerFiresOnceNotEarlyAndCanBeStopped(t *testing.T) {
	c := clock.System()
	start, fired := c.Now(), make(chan clock.Instant, 2)
	timer := c.AfterFunc(time.Millisecond, func() { fired <- c.Now() })

	if at := <-fired; at.Sub(start) < time.Millisecond {
		t.Errorf("fired after %v, want 1ms or more", at.Sub(start))
	}
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
			if start <= 0 {
				t.Fatalf("%s: reads %d", name, start)
			}
			c.AfterFunc(100*year, func() { fired <- c.Now() })
			equal(t, name+": a timer of 100 years", (<-fired).Sub(start), 100*year)
		})
	}
	if after := outside.Now(); after.Before(before) || after.Sub(before) > time.Hour {
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

package clock_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
)

func TestSkewedMovesReadingsAndNoTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := clock.System()
		c, start, fired := clock.NewSkewed(base, -time.Hour), base.Now(), clock.Instant(0)
		reads := func(want time.Duration) {
			t.Helper()
			equal(t, "since the start", c.Now().Sub(start), want)
		}
		c.AfterFunc(10*time.Second, func() { fired = base.Now() })
		reads(-time.Hour)
		time.Sleep(5 * time.Second)
		c.Step(3 * time.Hour)
		reads(5*time.Second + 2*time.Hour)
		time.Sleep(5*time.Second - 1)
		c.Step(-2 * time.Hour)
		reads(10*time.Second - 1)
		equal(t, "fired", fired, 0)
		time.Sleep(time.Millisecond)
		equal(t, "fired after", fired.Sub(start), 10*time.Second)
	})
}

// standing is a clock that stands at an instant.
type standing struct {
	clock.Clock
	at clock.Instant
}

func (s *standing) Now() clock.Instant { return s.at }

func TestSkewedStaysOnTheScale(t *testing.T) {
	base := &standing{at: 1000}
	c := clock.NewSkewed(base, -time.Second)
	equal(t, "a second before instant 1000", c.Now(), 1)
	base.at = base.at.Add(time.Second)
	equal(t, "a second later", c.Now(), 1000)
	for range 10 {
		c.Step(100 * year)
	}
	equal(t, "a thousand years later", c.Now(), clock.Instant(1<<63-1))
}

// A machine whose clock is five minutes late, until an operator sets it by hand.
func ExampleSkewed() {
	truth := &standing{at: 4e18}
	wrong := clock.NewSkewed(truth, -5*time.Minute)
	fmt.Println("at first:", wrong.Now().Sub(truth.Now()))
	wrong.Step(5 * time.Minute)
	fmt.Println("set by hand:", wrong.Now().Sub(truth.Now()))
	// Output:
	// at first: -5m0s
	// set by hand: 0s
}

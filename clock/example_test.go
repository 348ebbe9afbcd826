package clock_test

import (
	"fmt"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
)

// A retry loop's timer, driven by hand: no waiting, the same output every time.
func ExampleManual() {
	m := clock.NewManual(0)
	start := m.Now()

	var retry clock.Timer
	attempts := 0
	retry = m.AfterFunc(time.Second, func() {
		attempts++
		fmt.Printf("attempt %d after %v\n", attempts, m.Now().Sub(start))
		retry.Reset(time.Duration(attempts) * time.Second)
	})

	m.Advance(5 * time.Second)
	next, _ := m.Next()
	fmt.Println("next after", next.Sub(start))
	// Output:
	// attempt 1 after 1s
	// attempt 2 after 2s
	// attempt 3 after 4s
	// next after 7s
}

// A machine whose clock is five minutes late and loses 200 microseconds in each
// second, until an operator sets it by hand.
func ExampleSkewed() {
	truth := clock.NewManual(0)
	wrong := clock.NewSkewed(truth, clock.Skew{Offset: -5 * time.Minute, DriftPPM: -200})
	off := func() time.Duration { return wrong.Now().Sub(truth.Now()) }

	fmt.Println("at first:", off())
	truth.Advance(10_000 * time.Second)
	fmt.Println("after 10,000 s:", off())

	wrong.AfterFunc(time.Hour, func() { fmt.Println("an hour passes by the wrong clock") })
	wrong.Step(5*time.Minute + 2*time.Second)
	fmt.Println("set by hand:", off())

	truth.Advance(time.Hour)
	fmt.Println("an hour passes by the true one")
	truth.Advance(time.Second)
	// Output:
	// at first: -5m0s
	// after 10,000 s: -5m2s
	// set by hand: 0s
	// an hour passes by the true one
	// an hour passes by the wrong clock
}

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

// A machine whose clock is five minutes late, until an operator sets it by hand.
func ExampleSkewed() {
	truth := clock.NewManual(0)
	wrong := clock.NewSkewed(truth, -5*time.Minute)
	fmt.Println("at first:", wrong.Now().Sub(truth.Now()))
	wrong.Step(5 * time.Minute)
	fmt.Println("set by hand:", wrong.Now().Sub(truth.Now()))
	// Output:
	// at first: -5m0s
	// set by hand: 0s
}

package stamps

import (
	"fmt"
	"time"
)

// A Stamper encloses a moment between two readings of the clock that all processes of one machine share.
//
// That clock is CLOCK_MONOTONIC. On Linux, reading it through golang.org/x/sys is a system call, several
// times as long as the decisions that are stamped; Go's own monotonic reading (time.Since) is the same
// clock through the vDSO, but from an origin private to the process. So NewStamper measures the distance
// between the origins once: a system call that returned m, made between two cheap readings c0 and c1,
// proves that the distance lies in [m-c1, m-c0], and many such proofs together narrow it down to
// [low, high], some 100 ns. Before adds low and After adds high to one cheap reading.
//
// Elsewhere Go's reading is not always CLOCK_MONOTONIC (on macOS it stops while the machine sleeps), so
// the system call is made each time, and the width is that of the rounding.
//
// Processes in different time namespaces have different CLOCK_MONOTONICs; so have different machines. A
// Stamper is safe for many goroutines and allocates nothing. The zero Stamper is of no use.
type Stamper struct {
	cheap     func() int64
	low, high int64 // what to add to a cheap reading
}

// calibrations is how often the distance is measured. Each takes two vDSO readings and a system call, so
// all of them take well under a millisecond.
const calibrations = 1000

// NewStamper calibrates a Stamper. It fails where there is no CLOCK_MONOTONIC to read, or none that keeps
// its distance from Go's.
func NewStamper() (*Stamper, error) {
	if _, err := monotonic(); err != nil {
		return nil, fmt.Errorf("stamps: CLOCK_MONOTONIC: %w", err)
	}
	if !goReadsMonotonic {
		return stamperOf(func() int64 { m, _ := monotonic(); return m }, 0, 0), nil
	}
	base := time.Now()
	cheap := func() int64 { return int64(time.Since(base)) }
	low, high, err := calibrate(cheap, monotonic, calibrations)
	if err != nil {
		return nil, err
	}
	return stamperOf(cheap, low, high), nil
}

// stamperOf makes After round up: a reading is cut to whole nanoseconds, so the moment itself may lie up
// to one after it.
func stamperOf(cheap func() int64, low, high int64) *Stamper {
	return &Stamper{cheap: cheap, low: low, high: high + 1}
}

// calibrate narrows down exact - cheap by rounds of bracketing.
func calibrate(cheap func() int64, exact func() (int64, error), rounds int) (low, high int64, err error) {
	for i := range rounds {
		c0 := cheap()
		m, err := exact()
		c1 := cheap()
		if err != nil {
			return 0, 0, fmt.Errorf("stamps: CLOCK_MONOTONIC: %w", err)
		}
		if i == 0 {
			low, high = m-c1, m-c0
		}
		low, high = max(low, m-c1), min(high, m-c0)
	}
	if low > high {
		return 0, 0, fmt.Errorf("stamps: Go's clock and CLOCK_MONOTONIC drift apart: their distance is both >= %d ns and <= %d ns", low, high)
	}
	return low, high, nil
}

// Before returns a moment that certainly is not later than its own return, in nanoseconds of
// CLOCK_MONOTONIC. Take it before what is to be stamped.
func (s *Stamper) Before() int64 { return s.cheap() + s.low }

// After returns a moment that certainly is not earlier than its own call, in nanoseconds of
// CLOCK_MONOTONIC. Take it after what is to be stamped.
func (s *Stamper) After() int64 { return s.cheap() + s.high }

// Slack is the width of the uncertainty: an After and a Before taken at the same moment differ by it.
func (s *Stamper) Slack() time.Duration { return time.Duration(s.high - s.low) }

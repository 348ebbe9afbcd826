package arrival

import (
	"fmt"
	"math"

	"github.com/yuzhi-go/yuzhi/sim/random"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// never is the time of what does not happen.
const Never = math.MaxInt64

// arrivals is when one process's requests come.
type Stream interface {
	// next is the moment of the next request, in nanoseconds since the start of the run. It is called once for every
	// request, with the moment of the one before, or of the start, as now. It never returns less than now, and
	// never where no more come; a moment after the end of the run may be either.
	Next(now int64) int64
}

// source is what newArrivals needs to know of one process.
type Source struct {
	W        *scenario.Workload // with its defaults
	Rate     float64            // this process's mean requests per second
	Index    int                // of the process
	Of       int                // processes
	Start    int64              // when the process begins to serve, or its rate changes: nothing comes before
	Duration int64              // of the run
	Stream   *random.Stream
	Common   uint64 // the seed of what all processes have in common
}

// newArrivals makes the requests of one process, for every kind but Adversary, Closed and Replay. Those of a process that
// starts late are what it would have got from then on: a moment of the run means the same to all. The rate must not
// be negative; with 0 nothing comes.
func New(s Source) Stream {
	switch s.W.Kind {
	case scenario.Constant:
		return newEvenly(s)
	case scenario.Poisson:
		return &poisson{stream: s.Stream, gap: s.gap(), at: float64(s.Start)}
	case scenario.OnOff:
		return newOnOff(s)
	case scenario.Pareto:
		return newBursts(s)
	case scenario.Diurnal:
		return newDiurnal(s)
	case scenario.Flash:
		return newFlash(s)
	case scenario.Sync:
		return newVolleys(s)
	}
	panic(fmt.Sprintf("sim: %q is no stream of requests", s.W.Kind)) // Validate and the engine let none through
}

// gap is the mean time between two requests, in nanoseconds; infinite where there are none, and so is every moment then.
func (s Source) gap() float64 { return 1e9 / s.Rate }

// moment is the request at a time that was computed with fractions. Whatever comes after the end of time never comes.
func moment(at float64, now int64) int64 {
	if at < Never {
		return max(int64(at), now)
	}
	return Never
}

// evenly is Constant: the process is at a random point of its interval when it starts.
type evenly struct {
	gap, phase float64
	n          int64
	start      int64
}

func newEvenly(s Source) *evenly {
	return &evenly{gap: s.gap(), phase: s.Stream.Float64(), start: s.Start}
}

// The n-th moment is computed anew and not from the one before, so that no error adds up.
func (a *evenly) Next(now int64) int64 {
	at := float64(a.start) + float64((float64(a.n)+a.phase)*a.gap)
	a.n++
	return moment(at, now)
}

// Every is a request in every so many nanoseconds, on and on.
type Every int64

// Next implements Stream.
func (e Every) Next(now int64) int64 { return now + int64(e) }

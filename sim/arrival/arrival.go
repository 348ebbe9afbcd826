// Package arrival says when the requests of one simulated process come: evenly, at random, in
// bursts, by the time of the day, or as they were recorded.
//
// A moment depends on the Source of its Stream alone, so one process more changes nothing for the others.
package arrival

import (
	"fmt"
	"math"

	"github.com/yuzhi-go/yuzhi/sim/random"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// Never is the time of an event that does not happen.
const Never = math.MaxInt64

// Stream tells when one process's requests come.
type Stream interface {
	// Next returns the moment of the next request, in nanoseconds since the start of the run. The caller
	// calls it once for every request; now is the moment of the request before, or of the start. The result
	// is never before now. It is Never if no more requests come, and may be Never once the run is over.
	Next(now int64) int64
}

// Source describes one process for New.
type Source struct {
	Workload *scenario.Workload // with its defaults
	Rate     float64            // this process's mean requests per second
	Index    int                // of the process
	Of       int                // processes
	Start    int64              // when the process starts, or its rate changes: nothing comes before
	Duration int64              // of the run
	Stream   *random.Stream
	Common   uint64 // the seed of what all processes have in common
}

// New makes the requests of one process, for every kind of workload but Adversary, Closed and
// Replay. A process that starts late gets the requests that it would have got from then on, because
// a moment of the run means the same to all. The rate is 0 or more; with 0 nothing comes.
func New(s Source) Stream {
	switch s.Workload.Kind {
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
	case scenario.Sync, scenario.Boundary:
		return newVolleys(s)
	}
	panic(fmt.Sprintf("sim: %q is no stream of requests", s.Workload.Kind)) // the engine lets none through
}

// gap returns the mean time between two requests, in nanoseconds, or +Inf if there are none.
func (s Source) gap() float64 { return 1e9 / s.Rate }

// moment rounds the time of a request down, to now at the least. A time beyond the end of the scale is Never.
func moment(at float64, now int64) int64 {
	if at < Never {
		return max(int64(at), now)
	}
	return Never
}

// evenly is scenario.Constant. When the process starts, it is at a random point of its interval.
type evenly struct {
	gap, phase float64
	n          int64
	start      int64
}

func newEvenly(s Source) *evenly {
	return &evenly{gap: s.gap(), phase: s.Stream.Float64(), start: s.Start}
}

// Next computes the n-th moment anew and not from the one before, so that no error adds up.
func (a *evenly) Next(now int64) int64 {
	at := float64(a.start) + float64((float64(a.n)+a.phase)*a.gap)
	a.n++
	return moment(at, now)
}

// Every is a Stream of requests at a distance of Every nanoseconds, without end.
type Every int64

// Next implements Stream.
func (e Every) Next(now int64) int64 { return now + int64(e) }

// Shares divides 1 into n parts, the k-th proportional to 1/k^s.
func Shares(n int, s float64) []float64 {
	shares := make([]float64, n)
	sum := 0.0
	for i := range shares {
		shares[i] = random.Pow(float64(i+1), -s)
		sum += shares[i]
	}
	for i := range shares {
		shares[i] /= sum
	}
	return shares
}

// KeyWeights returns the popularity of each key.
func KeyWeights(k scenario.Keys) *random.Weights { return random.NewWeights(Shares(k.Count, k.Zipf)) }

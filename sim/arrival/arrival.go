// Package arrival generates the times of the requests of one simulated process: at even intervals, at random,
// in bursts, or recorded.
//
// The times depend only on the Source of their Stream: an additional process changes no other Stream.
package arrival

import (
	"fmt"
	"math"
	"sort"

	"github.com/yuzhi-go/yuzhi/sim/random"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// Never is the time of an event that will not happen.
const Never = math.MaxInt64

// Stream generates the request times of one process.
type Stream interface {
	// Next returns the time of the next request, in nanoseconds since the start of the run, or Never after
	// the last request of the run. now is the time of the previous request, or of the start. The returned
	// time is at least now.
	Next(now int64) int64
}

// Source describes the requests of one process. New returns them as a Stream.
type Source struct {
	Workload *scenario.Workload // workload with its defaults filled in
	Rate     float64            // mean requests per second of the process
	Index    int                // number of the process
	Of       int                // number of processes
	Start    int64              // when the process starts or its rate changes; no request comes before Start
	Duration int64              // duration of the run
	Stream   *random.Stream
	Common   uint64 // seed that all processes share
}

// New makes the requests of one process, for every kind of workload except Adversary and Replay. A process
// that starts late gets only the requests after its start. A rate of 0 makes no request.
func New(s Source) Stream {
	switch s.Workload.Kind {
	case scenario.Constant:
		return &evenly{gap: s.gap(), phase: s.Stream.Float64(), start: s.Start}
	case scenario.Poisson:
		return &poisson{stream: s.Stream, gap: s.gap(), at: float64(s.Start)}
	case scenario.OnOff:
		return newOnOff(s)
	case scenario.Flash:
		return newFlash(s)
	case scenario.Sync, scenario.Boundary:
		return newVolleys(s)
	}
	panic(fmt.Sprintf("sim: %q is no stream of requests", s.Workload.Kind)) // the engine handles other kinds
}

// gap returns the mean time between two requests, in nanoseconds, or +Inf for a rate of 0.
func (s Source) gap() float64 { return 1e9 / s.Rate }

// moment rounds the time of a request down, but not below now. A time beyond int64 becomes Never.
func moment(at float64, now int64) int64 {
	if at < Never {
		return max(int64(at), now)
	}
	return Never
}

// evenly implements scenario.Constant. Each process starts at a random point of its interval.
type evenly struct {
	gap, phase float64
	n          int64
	start      int64
}

// Next computes the n-th time from the start, so that rounding errors do not accumulate.
func (a *evenly) Next(now int64) int64 {
	at := float64(a.start) + float64((float64(a.n)+a.phase)*a.gap)
	a.n++
	return moment(at, now)
}

// Every is an endless Stream of requests at intervals of Every nanoseconds.
type Every int64

// Next implements Stream.
func (e Every) Next(now int64) int64 { return now + int64(e) }

// Shares divides 1 into n parts; part k is proportional to 1/k^s.
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

// Recording is a trace divided between the processes that replay it. A Recording never changes.
type Recording struct {
	requests []scenario.TraceRequest
	parts    [][]uint32 // for each process, the indices of its requests
}

// NewRecording divides a trace between processes. Process numbers in the trace are taken modulo processes.
func NewRecording(t *scenario.Trace, processes int) *Recording {
	r := &Recording{requests: t.Requests, parts: make([][]uint32, processes)}
	for i, q := range t.Requests {
		p := q.Process % processes
		r.parts[p] = append(r.parts[p], uint32(i))
	}
	return r
}

// Replayer is the Stream of one process of a Recording.
type Replayer struct {
	*Recording
	part  []uint32
	place int // position of the next request in part

	// Key and Cost belong to the request whose time Next returned last. Key is a key number of the trace.
	Key  int
	Cost int64
}

// NewReplayer plays the recorded requests of a process from the time start on.
func NewReplayer(r *Recording, process int, start int64) *Replayer {
	p := &Replayer{Recording: r, part: r.parts[process]}
	p.place = sort.Search(len(p.part), func(i int) bool { return int64(r.requests[p.part[i]].At) >= start })
	return p
}

// Next implements Stream.
func (p *Replayer) Next(now int64) int64 {
	if p.place == len(p.part) {
		return Never
	}
	q := &p.requests[p.part[p.place]]
	p.place++
	p.Key, p.Cost = q.Key, q.Cost
	return max(now, int64(q.At))
}

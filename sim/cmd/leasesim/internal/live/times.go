package live

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/yuzhi-go/yuzhi/sim"
)

// decisions, roundTrips and lags are the kinds of durations that latencies counts.
const (
	decisions = iota
	roundTrips
	lags // delays of requests
	kinds
)

// latencies counts durations within 1 %, up to a minute: of decisions, round trips and delays of requests.
// Goroutines may share a latencies value.
type latencies struct {
	mu sync.Mutex
	of [kinds]*hdrhistogram.Histogram
}

const longest = time.Minute

func newLatencies() *latencies {
	l := &latencies{}
	for i := range l.of {
		l.of[i] = hdrhistogram.New(1, int64(longest), 2)
	}
	return l
}

func (l *latencies) observe(kind int, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.of[kind].RecordValue(int64(min(max(took, 0), longest))) // the value is in the histogram's range
}

// snapshots returns the counts that a process sends to its parent at the end, as JSON.
func (l *latencies) snapshots() (all []*hdrhistogram.Snapshot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.of {
		all = append(all, h.Export())
	}
	return all
}

// merge adds the counts of another process. A killed process sends no counts.
func (l *latencies) merge(all []*hdrhistogram.Snapshot) {
	for i, s := range all {
		l.of[i].Merge(hdrhistogram.Import(s))
	}
}

// Quantiles has quantiles of a duration in nanoseconds, as the caller saw it, or 0 without a sample.
type Quantiles struct {
	P50 int64 `json:"p50"`
	P99 int64 `json:"p99"`
}

func (l *latencies) quantiles(kind int) Quantiles {
	return Quantiles{P50: l.of[kind].ValueAtQuantile(50), P99: l.of[kind].ValueAtQuantile(99)}
}

// isOverloaded reports whether one request in a hundred was late by more than a tenth of a lease.
func isOverloaded(late Quantiles, target time.Duration) bool {
	return time.Duration(late.P99) > max(10*time.Millisecond, target/10)
}

// linkOf returns the distribution of a link's delay from quantiles of round trips and the server's service
// time.
func linkOf(seen Quantiles, service time.Duration) sim.DurationDist {
	trip := max(time.Duration(seen.P50)-service, time.Microsecond)
	slow := max(time.Duration(seen.P99)-service, trip)
	return sim.DurationDist{Dist: sim.Dist{Kind: sim.DistLognormal, P: float64(trip), Q: float64(slow)}}
}

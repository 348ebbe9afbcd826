package live

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/yuzhi-go/yuzhi/sim"
)

// The times that latencies count.
const (
	decisions = iota
	roundTrips
	lags // how late requests were made
	kinds
)

// latencies count how long decisions and round trips took, within 1 %, up to a minute. Any number
// of goroutines may observe and ask what there is to tell.
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
	_ = l.of[kind].RecordValue(int64(min(max(took, 0), longest))) // which is in the histogram's range
}

// told returns what a process tells its parent at its end, as JSON.
func (l *latencies) told() (all []*hdrhistogram.Snapshot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.of {
		all = append(all, h.Export())
	}
	return all
}

// merge adds what a process told; one that was killed told nothing.
func (l *latencies) merge(told []*hdrhistogram.Snapshot) {
	for i, s := range told {
		l.of[i].Merge(hdrhistogram.Import(s))
	}
}

// Quantiles of the time that something took, as the caller saw it; 0 where there was nothing.
type Quantiles struct {
	P50 int64 `json:"p50"`
	P99 int64 `json:"p99"`
}

func (l *latencies) quantiles(kind int) Quantiles {
	return Quantiles{P50: l.of[kind].ValueAtQuantile(50), P99: l.of[kind].ValueAtQuantile(99)}
}

// isOverloaded reports whether one request in a hundred was made later than a tenth of a lease.
func isOverloaded(late Quantiles, target time.Duration) bool {
	return time.Duration(late.P99) > max(10*time.Millisecond, target/10)
}

// linkOf returns the distribution of a link on which round trips took as long as seen, with service in
// the server.
func linkOf(seen Quantiles, service time.Duration) sim.DurationDist {
	trip := max(time.Duration(seen.P50)-service, time.Microsecond)
	slow := max(time.Duration(seen.P99)-service, trip)
	return sim.DurationDist{Dist: sim.Dist{Kind: sim.DistLognormal, P: float64(trip), Q: float64(slow)}}
}

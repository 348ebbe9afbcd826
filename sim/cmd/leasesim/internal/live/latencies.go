package live

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// latencies are what a process tells its parent at the end, as JSON. One that was killed tells
// nothing.
type latencies struct{ Decisions, RoundTrips *durations }

func newLatencies() *latencies { return &latencies{newDurations(), newDurations()} }

func (l *latencies) merge(other *latencies) {
	l.Decisions.counts.Merge(other.Decisions.counts)
	l.RoundTrips.counts.Merge(other.RoundTrips.counts)
}

// durations counts how long something took, within 1 %, up to a minute. Any number of goroutines
// may observe, also while it is marshalled; all else needs it alone.
type durations struct {
	mu     sync.Mutex
	counts *hdrhistogram.Histogram
}

const longest = time.Minute

func newDurations() *durations { return &durations{counts: hdrhistogram.New(1, int64(longest), 2)} }

func (d *durations) observe(took time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.counts.RecordValue(int64(min(max(took, 0), longest))) // which is in the histogram's range
}

// Quantiles of the time that something took, as the caller saw it; 0 where there was nothing.
type Quantiles struct {
	P50 int64 `json:"p50"`
	P99 int64 `json:"p99"`
}

// String is what a table has, in two columns.
func (q Quantiles) String() string {
	return fmt.Sprintf("p50 %v\tp99 %v", time.Duration(q.P50), time.Duration(q.P99))
}

func (d *durations) quantiles() Quantiles {
	return Quantiles{P50: d.counts.ValueAtQuantile(50), P99: d.counts.ValueAtQuantile(99)}
}

// MarshalJSON implements json.Marshaler.
func (d *durations) MarshalJSON() ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return json.Marshal(d.counts.Export())
}

// UnmarshalJSON implements json.Unmarshaler.
func (d *durations) UnmarshalJSON(text []byte) error {
	var counts hdrhistogram.Snapshot
	err := json.Unmarshal(text, &counts)
	if err == nil {
		d.counts = hdrhistogram.Import(&counts)
	}
	return err
}

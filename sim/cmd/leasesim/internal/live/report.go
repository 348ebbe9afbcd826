package live

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/audit"
	"github.com/yuzhi-go/yuzhi/sim/report"
)

// Report holds the results of a run. Its JSON keys are part of the command's interface.
type Report struct {
	Redis                string    `json:"redis"`
	BoundExceededBy      int64     `json:"bound_exceeded_by"`
	Admitted             int64     `json:"admitted"`
	Offered              int64     `json:"offered"`
	WorstWindow          Window    `json:"worst_window"`
	RoundTrips           int64     `json:"round_trips"`
	AdmittedPerRoundTrip float64   `json:"admitted_per_round_trip"`
	DecisionNs           Quantiles `json:"decision_ns"`
	RoundTripNs          Quantiles `json:"round_trip_ns"`
	LagNs                Quantiles `json:"lag_ns"` // how late requests were made
	// by that: the machine, so that nothing is proved
	Overloaded            bool      `json:"overloaded,omitempty"`
	ServiceTimeNs         int64     `json:"service_time_ns,omitempty"` // of a call, by the server; 0: unknown
	Jain                  float64   `json:"jain"`
	Processes             []Process `json:"processes"`
	Central               *Central  `json:"central,omitempty"` // nil: the requests cannot be replayed
	Shape                 string    `json:"shape"`
	Limit                 string    `json:"limit"`
	Overcommit            int64     `json:"overcommit"`
	DurationMs            int64     `json:"duration_ms"`
	TargetMs              float64   `json:"target_ms"`
	TTLMs                 float64   `json:"ttl_ms"`
	AdmittedOfEntitlement float64   `json:"admitted_of_entitlement"`
	entitled              string    // what that is a part of
}

// Window is the worst of all windows: the one that came nearest to the bound, or went farthest beyond it.
type Window struct {
	FromMs     float64 `json:"from_ms"` // since the first admission
	DurationMs float64 `json:"duration_ms"`
	Admitted   int64   `json:"admitted"`
	Bound      float64 `json:"bound"`
}

// Process is one process's part. Jain's index is over those that ran all the time.
type Process struct {
	Admitted   int64  `json:"admitted"`
	Offered    int64  `json:"offered"`
	RoundTrips int64  `json:"round_trips"`
	Fate       string `json:"fate,omitempty"` // "killed" or "stopped"
}

// summarise audits the files of all processes.
func (o Options) summarise(redis string, fleet []*process, parts [][]sim.TraceRequest,
	ahead interval) (Report, error) {
	leased := o.leased()
	r := Report{
		Redis: redis, Shape: o.Shape, Limit: o.limit().String(),
		Overcommit: o.Overcommit, entitled: o.entitled(), DurationMs: o.Duration.Milliseconds(),
		TargetMs: ms(leased.Target), TTLMs: ms(leased.TTL),
	}
	var spans, denied []audit.Span
	replayed := parts == nil // where nothing is missing
	byKey := map[int][]audit.Span{}
	took := newLatencies()
	var offered, admitted, weights []int64 // of those that ran all the time
	for i, p := range fleet {
		if n := p.file.Overflowed(); n > 0 {
			return r, fmt.Errorf("leasesim: process %d had no room to record %d admissions; "+
				"the run proves nothing", i, n)
		}
		before := len(spans)
		spans = p.file.AppendSpans(spans)
		denied = p.denied.AppendSpans(denied)
		replayed = replayed && p.denied.Overflowed() == 0
		one := Process{
			Admitted: int64(len(spans) - before), Offered: p.file.Offered().Load(),
			RoundTrips: p.file.RoundTrips().Load(), Fate: p.fate,
		}
		if parts != nil {
			one.Admitted = played(p.file, parts[i], byKey)
		}
		r.Processes = append(r.Processes, one)
		r.Admitted += one.Admitted
		r.Offered += one.Offered
		r.RoundTrips += one.RoundTrips
		if p.fate == fateStopped {
			p.told = p.told[:min(lags, len(p.told))] // it was late because it was told to
		}
		took.merge(p.told)
		if p.fate == "" {
			offered, admitted = append(offered, one.Offered), append(admitted, one.Admitted)
			weights = append(weights, append(o.Weights, slices.Repeat([]int64{1}, len(fleet))...)[i])
		}
	}
	if parts == nil {
		byKey[0] = spans
	}
	w, err := o.audit(byKey, ahead)
	if err != nil {
		return r, err
	}
	if replayed {
		if r.Central, err = o.central(spans, denied, ahead); err != nil {
			return r, fmt.Errorf("leasesim: a central limiter: %w", err)
		}
	}
	first := w.From
	for _, s := range spans {
		first = min(first, s.Before)
	}
	r.BoundExceededBy = w.ExceededBy
	r.WorstWindow = Window{
		FromMs: float64(w.From-first) / 1e6, DurationMs: float64(w.To-w.From) / 1e6,
		Admitted: w.Admitted, Bound: w.Bound,
	}
	r.AdmittedPerRoundTrip = float64(r.Admitted) / float64(max(r.RoundTrips, 1))
	r.AdmittedOfEntitlement = float64(r.Admitted) / (o.entitlement(o.Duration) * float64(max(o.Keys, 1)))
	r.DecisionNs, r.RoundTripNs = took.quantiles(decisions), took.quantiles(roundTrips)
	r.LagNs = took.quantiles(lags)
	r.Overloaded = isOverloaded(r.LagNs, leased.Target)
	r.Jain = report.FairnessOf(offered, admitted, weights).Jain
	return r, nil
}

// embeddedSlow is how long half of the calls to the embedded Redis take where it has more of them
// than it can serve: it interprets the script anew for each, in some milliseconds.
const embeddedSlow = 20 * time.Millisecond

// isOverloaded reports whether one request in a hundred was made later than a tenth of a lease.
func isOverloaded(late Quantiles, target time.Duration) bool {
	return time.Duration(late.P99) > max(10*time.Millisecond, target/10)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// WriteJSON writes the report as one object.
func (r Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

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

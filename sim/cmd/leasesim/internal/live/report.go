package live

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/audit"
	"github.com/yuzhi-go/yuzhi/sim/report"
)

// Report holds the results of a run. The JSON keys of Report are part of the command's interface.
type Report struct {
	Redis           string    `json:"redis"`
	BoundExceededBy int64     `json:"bound_exceeded_by"`
	Admitted        int64     `json:"admitted"`
	Offered         int64     `json:"offered"`
	WorstWindow     Window    `json:"worst_window"`
	RoundTrips      int64     `json:"round_trips"`
	DecisionNs      Quantiles `json:"decision_ns"`
	RoundTripNs     Quantiles `json:"round_trip_ns"`
	LagNs           Quantiles `json:"lag_ns"` // delay of requests
	// Overloaded means that the machine delayed requests too long for the figures to prove anything.
	Overloaded            bool      `json:"overloaded,omitempty"`
	ServiceTimeNs         int64     `json:"service_time_ns,omitempty"` // call time by the server; 0 if unknown
	Jain                  float64   `json:"jain"`
	Processes             []Process `json:"processes"`
	Central               *Central  `json:"central,omitempty"` // nil if the requests cannot be replayed
	Shape                 string    `json:"shape"`
	Limit                 string    `json:"limit"`
	Overcommit            int64     `json:"overcommit"`
	DurationMs            int64     `json:"duration_ms"`
	TargetMs              float64   `json:"target_ms"`
	TTLMs                 float64   `json:"ttl_ms"`
	AdmittedOfEntitlement float64   `json:"admitted_of_entitlement"`
	entitled              string    // description of the entitlement in AdmittedOfEntitlement
}

// Window is the worst of all windows: the window nearest to the bound, or farthest beyond the bound.
type Window struct {
	FromMs     float64 `json:"from_ms"` // start in ms after the first admission
	DurationMs float64 `json:"duration_ms"`
	Admitted   int64   `json:"admitted"`
	Bound      float64 `json:"bound"`
}

// Process is the share of one process in the run. Jain's index counts only processes that ran all the time.
type Process struct {
	Admitted   int64  `json:"admitted"`
	Offered    int64  `json:"offered"`
	RoundTrips int64  `json:"round_trips"`
	Fate       string `json:"fate,omitempty"` // "killed" or "stopped"
}

// summarise audits the files of all processes after a run of length lasted.
func summarise(o Options, lasted time.Duration, redis string, fleet []*process, ahead interval) (Report, error) {
	leased := o.leased()
	r := Report{
		Redis: redis, Shape: o.Scenario.Workload.Kind, Limit: o.limit().String(),
		Overcommit: o.Scenario.Policy.Overcommit, entitled: o.entitled(), DurationMs: lasted.Milliseconds(),
		TargetMs: ms(leased.Target), TTLMs: ms(leased.TTL),
	}
	asked := make([]asks, max(o.Scenario.Keys.Count, 1))
	took := newLatencies()
	var offered, admitted, weights []int64 // values of the processes that ran all the time
	for i, p := range fleet {
		one := Process{Offered: p.file.Offered().Load(), RoundTrips: p.file.RoundTrips().Load(), Fate: p.fate}
		var err error
		if one.Admitted, err = read(p.file, o, i, asked); err != nil {
			return r, fmt.Errorf("leasesim: process %d: %w", i, err)
		}
		r.Processes = append(r.Processes, one)
		r.Admitted += one.Admitted
		r.Offered += one.Offered
		r.RoundTrips += one.RoundTrips
		if p.fate == fateStopped {
			p.latencies = p.latencies[:min(lags, len(p.latencies))] // the pause of the process made its requests late
		}
		took.merge(p.latencies)
		if p.fate == "" {
			offered, admitted = append(offered, one.Offered), append(admitted, one.Admitted)
			weights = append(weights, o.weights()[i])
		}
	}
	w, err := worstOf(audit.Of(o.limit(), o.Scenario.Policy.Overcommit), asked, ahead)
	if err != nil {
		return r, err
	}
	if o.Scenario.Workload.Verb != sim.VerbWait { // a central limiter would have waiting requests too
		if r.Central, err = central(o.limit(), asked, r.Admitted, ahead); err != nil {
			return r, fmt.Errorf("leasesim: a central limiter: %w", err)
		}
	}
	first := w.From
	for _, a := range asked {
		for _, s := range a.admitted {
			first = min(first, s.Before)
		}
	}
	r.BoundExceededBy = w.ExceededBy
	r.WorstWindow = Window{
		FromMs: float64(w.From-first) / 1e6, DurationMs: float64(w.To-w.From) / 1e6,
		Admitted: w.Admitted, Bound: w.Bound,
	}
	r.AdmittedOfEntitlement = float64(r.Admitted) / o.entitlement(lasted)
	r.DecisionNs, r.RoundTripNs = took.quantiles(decisions), took.quantiles(roundTrips)
	r.LagNs = took.quantiles(lags)
	r.Overloaded = isOverloaded(r.LagNs, leased.Target)
	r.Jain = report.FairnessOf(offered, admitted, weights).Jain
	return r, nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// WriteJSON writes the report as one object.
func (r Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

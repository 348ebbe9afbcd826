package live

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/audit"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

// Report has the results of a run. The JSON keys of Report are part of the command's interface.
type Report struct {
	Redis           string    `json:"redis"`
	BoundExceededBy int64     `json:"bound_exceeded_by"`
	Admitted        int64     `json:"admitted"`
	Offered         int64     `json:"offered"`
	WorstWindow     Window    `json:"worst_window"`
	RoundTrips      int64     `json:"round_trips"`
	RoundTripNs     Quantiles `json:"round_trip_ns"`
	LagNs           Quantiles `json:"lag_ns"` // delays of requests after their due times
	// Overloaded means that the machine made requests too late for a comparison.
	Overloaded    bool      `json:"overloaded,omitempty"`
	ServiceTimeNs int64     `json:"service_time_ns,omitempty"` // mean time of a lease call in the server; 0 if unknown
	Processes     []Process `json:"processes"`
	Central       *Central  `json:"central,omitempty"` // nil without requests, and for requests that wait
	Shape         string    `json:"shape"`
	Limit         string    `json:"limit"`
	Overcommit    int64     `json:"overcommit"`
	DurationMs    int64     `json:"duration_ms"`
	TargetMs      float64   `json:"target_ms"`
	TTLMs         float64   `json:"ttl_ms"`
}

// Window is the worst of all windows: the window farthest above the bound, or nearest to the bound.
type Window struct {
	DurationMs float64 `json:"duration_ms"`
	Admitted   int64   `json:"admitted"`
	Bound      float64 `json:"bound"`
}

// Process has the results of one process.
type Process struct {
	Admitted   int64  `json:"admitted"`
	Offered    int64  `json:"offered"`
	RoundTrips int64  `json:"round_trips"`
	Fate       string `json:"fate,omitempty"` // "killed" or "stopped"
}

// summarise audits the files of all processes after a run that lasted for some time.
func summarise(o Options, lasted time.Duration, redis string, fleet []*process) (Report, error) {
	leased := o.leased()
	r := Report{
		Redis: redis, Shape: o.Scenario.Workload.Kind, Limit: o.limit().String(),
		Overcommit: o.Scenario.Policy.Overcommit, DurationMs: lasted.Milliseconds(),
		TargetMs: ms(leased.Target), TTLMs: ms(leased.TTL),
	}
	byKey := make([]outcomes, max(o.Scenario.Keys.Count, 1))
	took := newLatencies()
	for i, p := range fleet {
		one := Process{Offered: p.file.Offered().Load(), RoundTrips: p.file.RoundTrips().Load(), Fate: p.fate}
		var err error
		if one.Admitted, err = read(p.file, o, i, byKey); err != nil {
			return r, fmt.Errorf("leasesim: process %d: %w", i, err)
		}
		r.Processes = append(r.Processes, one)
		r.Admitted += one.Admitted
		r.Offered += one.Offered
		r.RoundTrips += one.RoundTrips
		if p.fate == fateStopped {
			p.latencies = p.latencies[:min(lags, len(p.latencies))] // the stop of the process made its requests late
		}
		took.merge(p.latencies)
	}
	w, err := worstOf(audit.Of(o.limit(), o.Scenario.Policy.Overcommit), byKey)
	if err != nil {
		return r, err
	}
	if o.Scenario.Workload.Verb != sim.VerbWait { // in a central limiter requests would wait too
		if r.Central, err = central(o.limit(), byKey, r.Admitted); err != nil {
			return r, fmt.Errorf("leasesim: a central limiter: %w", err)
		}
	}
	r.BoundExceededBy = w.ExceededBy
	r.WorstWindow = Window{DurationMs: float64(w.To-w.From) / 1e6, Admitted: w.Admitted, Bound: w.Bound}
	r.RoundTripNs, r.LagNs = took.quantiles(roundTrips), took.quantiles(lags)
	r.Overloaded = isOverloaded(r.LagNs, leased.Target)
	return r, nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Document returns the report as a document, whose JSON is the report.
func (r Report) Document() view.Document {
	t := view.Table{Columns: strings.Split(">process,>admitted,>share,>offered,>round trips,", ",")}
	for i, p := range r.Processes {
		t.Add(strconv.Itoa(i), view.Number(p.Admitted), part(float64(p.Admitted)/float64(max(r.Admitted, 1))),
			view.Number(p.Offered), view.Number(p.RoundTrips), p.Fate)
	}
	return view.Document{
		Title: "Redis " + r.Redis,
		Subtitle: fmt.Sprintf("limit %s overcommit %d, leases of target %s, TTL %s", r.Limit, r.Overcommit,
			ofMs(r.TargetMs), ofMs(r.TTLMs)),
		Verdicts: r.verdicts(),
		Facts: []view.Fact{{Name: "load", Value: r.Shape}, {Name: "processes", Value: view.Number(len(r.Processes))},
			{Name: "seconds", Value: fmt.Sprintf("%.4g", float64(r.DurationMs)/1000)}},
		Sections: []view.Section{{Title: "Figures", Table: r.figures()}, {Title: "Processes", Table: &t}},
		Data:     r,
	}
}

// verdicts returns the results that the run proves, and warnings about the others.
func (r Report) verdicts() (all []view.Verdict) {
	say := func(mood, text string) { all = append(all, view.Verdict{Mood: mood, Text: text}) }
	if excess := r.BoundExceededBy; excess > 0 {
		say(view.Bad, "THE BOUND IS EXCEEDED by "+view.Count(excess, "token")+".")
	} else {
		say(view.Good, "The bound holds in every window of all processes.")
	}
	if c := r.Central; c != nil {
		say(view.Neutral, fmt.Sprintf("The fleet admitted %s of the requests that a central %s without a network "+
			"would have admitted.", part(c.Part), c.Limiter))
	}
	if r.Overloaded {
		say(view.Bad, "THIS MACHINE IS OVERLOADED: the processes got too little CPU time. This lowers the admissions, "+
			"and does not affect the bound. Use fewer processes, a longer policy.target, or a real Redis with --redis.")
	}
	return all
}

func (r Report) figures() *view.Table {
	t := &view.Table{Columns: []string{"figure", ">value", "what it is"}}
	t.Add("offered", view.Number(r.Offered), "requests")
	t.Add("admitted", view.Number(r.Admitted), "requests")
	if c := r.Central; c != nil {
		t.Add("central limiter", view.Number(c.Admitted), "admitted of the same requests, by a "+c.Limiter)
	}
	w, verdict := r.WorstWindow, "the bound holds"
	if r.BoundExceededBy > 0 {
		verdict = fmt.Sprintf("EXCEEDED by %d", r.BoundExceededBy)
	}
	t.Add("worst window", view.Number(w.Admitted), fmt.Sprintf("admitted in %s, %s allowed: %s",
		ofMs(w.DurationMs), view.Number(int64(w.Bound)), verdict))
	perSecond := float64(r.RoundTrips) / float64(len(r.Processes)) / (float64(r.DurationMs) / 1000)
	t.Add("round trips", view.Number(r.RoundTrips), view.Number(math.Round(10*perSecond)/10)+" a second and process")
	quantiles := func(name string, q Quantiles) {
		t.Add(name, view.Shortly(time.Duration(q.P50)), "p50; p99 "+view.Shortly(time.Duration(q.P99)))
	}
	quantiles("round trip time", r.RoundTripNs)
	quantiles("requests late by", r.LagNs)
	if r.ServiceTimeNs > 0 {
		t.Add("service time", view.Shortly(time.Duration(r.ServiceTimeNs)), "of a lease call, by the server")
	}
	return t
}

func part(x float64) string { return view.Percent(math.Round(1e4*x) / 1e4) }

func ofMs(ms float64) string { return view.Shortly(time.Duration(ms * float64(time.Millisecond))) }

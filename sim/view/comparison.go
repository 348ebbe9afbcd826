package view

import (
	"slices"
	"strings"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/search"
)

// Comparison shows the report of a run beside the reports of its rivals. The JSON of Comparison equals the
// JSON of Run.
func Comparison(r Result) Document {
	d := r.document()
	d.Title += ": " + Own + " and its rivals"
	r.rivals(&d)
	r.classes(&d)
	d.Sections = append(d.Sections, r.overTime())
	return d
}

// rivals returns the table that compares the algorithms.
func (r Result) rivals(d *Document) {
	f := &r.Report.Figures
	own := sim.RivalReport{
		Name: Own, Remote: true, Admitted: f.Admitted, AdmittedVsCentral: f.AdmittedVsCentral,
		BoundExceededBy:  f.BoundExceededBy,
		FalseRejectRatio: f.FalseRejectRatio, RoundTripsPerS: f.RoundTripsPerS, Jain: f.Jain,
		WorstShare: f.WorstShare,
		FaultStock: f.FaultStock, RedisCPU: f.RedisCPU, WaitMsP99: f.WaitMsP99,
	}
	all := append([]sim.RivalReport{own}, r.Report.Rivals...)
	faults := slices.ContainsFunc(all, func(a sim.RivalReport) bool { return a.FaultStock.Mean > 0 })
	keys := []string{"admitted_vs_central", search.BoundFigure, "false_reject_ratio"}
	if faults {
		keys = append(keys, "fault_stock")
	}
	keys = append(keys, "wait_ms_p99", "round_trips_per_s", "redis_cpu", "jain", "worst_share")
	table := func(write func(string, sim.Figure) string) Table {
		t := Table{Columns: []string{"algorithm"}}
		for i, key := range keys {
			t.Columns = append(t.Columns, either(i < len(keys)-3, ">", "?>")+column(key))
		}
		for _, a := range all {
			wait, busy := write("wait_ms_p99", a.WaitMsP99), write("redis_cpu", a.RedisCPU)
			if a.Admitted.Mean == 0 {
				wait = "none"
			}
			if !a.Remote {
				wait, busy = "-", "-"
			}
			cells := []string{a.Name, write("admitted_vs_central", a.AdmittedVsCentral),
				Number(a.BoundExceededBy.Worst), write("false_reject_ratio", a.FalseRejectRatio)}
			if faults {
				cells = append(cells, write("fault_stock", a.FaultStock))
			}
			t.Add(append(cells, wait, write("round_trips_per_s", a.RoundTripsPerS), busy,
				write("jain", a.Jain), write("worst_share", a.WorstShare))...)
		}
		return t
	}
	d.both("Side by side", table, "Every algorithm saw the same requests. "+strings.TrimSpace(r.subject()),
		r.kinds(glossary(keys...)+" "+Bases))
	if r.Describe == nil {
		return
	}
	about := Table{Columns: []string{"algorithm", "what it does"}}
	for _, a := range r.Report.Rivals {
		about.Add(a.Name, r.Describe(a.Name))
	}
	d.Sections = append(d.Sections, Section{Title: "The algorithms", Shown: InFull, Table: &about})
}

// subject returns a sentence about the rivals that call Redis over the network for each request.
func (r Result) subject() (text string) {
	some := func(holds func(sim.RivalReport) bool) bool { return slices.ContainsFunc(r.Report.Rivals, holds) }
	if some(func(a sim.RivalReport) bool { return a.Remote }) {
		text = "The rivals with a wait ask Redis for each request, over the same links and with the same shards " +
			"and faults as the leases. Each has a Redis of its own, where a call takes a third of a " +
			"lease call's time. A request without an answer in time is denied. "
	}
	if some(func(a sim.RivalReport) bool { return search.Saturated(a.RedisCPU) }) {
		text += "If Redis is busy all the time, requests wait in line for longer than their timeout. A " +
			"small pool " +
			"of connections would turn them away earlier, and Redis would answer as many as it can. "
	}
	if r.someLoad(func(w *sim.Workload) bool { return w.Verb == sim.VerbWait }) {
		text += "Requests wait only for tokens of leases: the rivals answer at once. "
	}
	if r.someLoad((*sim.Workload).Reserves) {
		text += "The rivals decide by the reserved tokens and never learn the cost: their figures leave " +
			"out tokens that are used beyond the reservation or given back. "
	}
	if some(func(a sim.RivalReport) bool { return !a.Remote }) {
		text += "Those without a wait (-) are spared network and faults: their figures are the best case. "
	}
	return text
}

// someLoad reports whether the condition holds for the shared workload or the workload of a group.
func (r Result) someLoad(holds func(*sim.Workload) bool) bool {
	return holds(&r.Scenario.Workload) || slices.ContainsFunc(r.Scenario.Groups, func(g sim.Group) bool {
		return g.Workload != nil && holds(g.Workload)
	})
}

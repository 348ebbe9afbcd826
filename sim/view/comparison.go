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
	own := sim.RivalReport{Name: Own, Remote: true}
	for _, f := range own.All() {
		*f.Figure = search.FigureOf(&r.Report.Figures, f.Name)
	}
	all := append([]sim.RivalReport{own}, r.Report.Rivals...)
	keys := []string{"admitted_vs_central", search.BoundFigure, "false_reject_ratio", "wait_ms_p99",
		"round_trips_per_s", "redis_cpu", "jain", "worst_share"}
	if slices.ContainsFunc(all, func(a sim.RivalReport) bool { return a.FaultStock.Mean > 0 }) {
		keys = slices.Insert(keys, 3, "fault_stock")
	}
	table := func(write func(string, sim.Figure) string) Table {
		t := Table{Columns: []string{"algorithm"}}
		for i, key := range keys {
			t.Columns = append(t.Columns, either(i < len(keys)-3, ">", "?>")+column(key))
		}
		for i := range all {
			a, cells := &all[i], []string{all[i].Name}
			for _, key := range keys {
				f, wait := search.FigureOf(a, key), key == "wait_ms_p99"
				text := write(key, f)
				switch {
				case key == search.BoundFigure:
					text = Number(f.Worst)
				case !a.Remote && (wait || key == "redis_cpu"):
					text = "-"
				case wait && a.Admitted.Mean == 0:
					text = "none"
				}
				cells = append(cells, text)
			}
			t.Add(cells...)
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
		text += "If Redis is busy all the time, requests wait in line for longer than their timeout. A small pool " +
			"of connections would turn them away earlier, and Redis would answer as many as it can. "
	}
	loads := r.Scenario.Workloads()
	if slices.ContainsFunc(loads, func(w *sim.Workload) bool { return w.Verb == sim.VerbWait }) {
		text += "Requests wait only for tokens of leases: the rivals answer at once. "
	}
	if slices.ContainsFunc(loads, (*sim.Workload).Reserves) {
		text += "The rivals decide by the reserved tokens and never learn the cost: their figures leave " +
			"out tokens that are used beyond the reservation or given back. "
	}
	if some(func(a sim.RivalReport) bool { return !a.Remote }) {
		text += "Those without a wait (-) are spared network and faults: their figures are the best case. "
	}
	return text
}

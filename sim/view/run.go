package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/rival"
	"github.com/yuzhi-go/yuzhi/sim/search"
)

// Result is the report of a run, with the texts that a Document shows beside the report.
type Result struct {
	Scenario   sim.Scenario // the simulated scenario
	Text       string       // text of the scenario's file
	Report     sim.Report
	Command    string // the command line that repeats the run
	Thresholds []search.Threshold
}

func (r Result) bound() string {
	const bucket = "burst + overcommit + rate × window"
	const window = "the tokens of a sliding window or a period + overcommit"
	limits := r.Scenario.Limits
	switch {
	case !slices.ContainsFunc(limits, lease.Limit.Windowed):
		return bucket
	case !slices.ContainsFunc(limits, func(l lease.Limit) bool { return !l.Windowed() }):
		return window
	}
	return "a bucket's " + bucket + ", or " + window
}

// Run shows the report of a run. The document's JSON is the report.
func Run(r Result) Document {
	d := r.document()
	d.Sections = []Section{r.overTime()}
	r.figures(&d)
	r.classes(&d)
	if len(r.Report.Rivals) > 0 {
		r.rivals(&d)
	}
	return d
}

func (r Result) document() Document {
	rep, s := &r.Report, r.Scenario.Defaults()
	reps := Number(rep.Reps) + either(rep.Reps < rep.RepsAsked, fmt.Sprintf(" of %d", rep.RepsAsked), "")
	d := Document{
		Title:    cmp.Or(rep.Scenario, unnamed),
		Subtitle: strings.TrimSpace(s.Description + "\n" + r.subtitle(s)),
		Facts: []Fact{
			{"offered", fmt.Sprintf("%.3g × the limit",
				rep.Offered.Mean/(r.limit()*(s.Duration-s.Warmup).Seconds()))},
			{"target", targetFact(s)},
			{"ttl", s.TTLInForce().String()},
			{"replications", reps},
			{"confidence", Percent(rep.Confidence)},
			{"seed", fmt.Sprint(rep.Seed)},
			{"hash", rep.ScenarioHash},
		},
		Scenario: r.Text, Command: r.Command, Machine: rep.Machine,
		Data: rep,
	}
	r.judge(&d, s)
	if rep.Reps > 0 {
		d.Headline = headline(float64(rep.Machine.Requests)/(float64(rep.Reps)*rep.DurationS), &rep.Figures)
	}
	return d
}

// headline returns the figures that most readers read first. requests is per second, or 0 if unknown.
func headline(requests float64, f *sim.Figures) []Fact {
	each := ""
	if calls := f.CallsPerS.Mean; requests > 0 && calls > 0 {
		each = fmt.Sprintf(", one for %.3g requests", requests/calls)
	}
	mean := func(key string) string { return Mean(key, search.FigureOf(f, key)) }
	return []Fact{
		{"admitted, of one central bucket", mean("admitted_vs_central")},
		{"rejected wrongly", mean("false_reject_ratio")},
		{"tokens above the bound", Number(f.BoundExceededBy.Worst)},
		{"lease calls per second", mean("calls_per_s") + each},
		{"Redis CPU, busiest shard", mean("redis_cpu") + " of a core"},
	}
}

// limit returns the rate of the tightest limit, for all keys together.
func (r Result) limit() float64 {
	return r.Scenario.LeastRate() * float64(max(r.Scenario.Keys.Count, 1))
}

func targetFact(s sim.Scenario) string {
	given, inForce := s.Policy.Target, s.TargetInForce()
	if given == 0 || given == inForce {
		return inForce.String()
	}
	return given.String() + " (in force " + inForce.String() + ")"
}

func (r Result) subtitle(s sim.Scenario) string {
	limits := make([]string, len(s.Limits))
	for i, l := range s.Limits {
		limits[i] = l.String()
	}
	var loads []string // each distinct workload of the groups
	for _, g := range s.Groups {
		if load := loadText(cmp.Or(g.Workload, &s.Workload)); !slices.Contains(loads, load) {
			loads = append(loads, load)
		}
	}
	warmup := fmt.Sprintf(" (the first %s s do not count)", Number(r.Report.WarmupS))
	return fmt.Sprintf("%s, %s, load %s, %s of %s s%s", strings.Join(limits, " and "),
		Count(r.Report.Processes, "process"), strings.Join(loads, " and "), Count(r.Report.Reps, "replication"),
		Number(r.Report.DurationS), either(r.Report.WarmupS > 0, warmup, ""))
}

// loadText describes a workload with its rate. The answers decide the rate of an adversary.
func loadText(w *sim.Workload) string {
	switch {
	case w.Kind == sim.Replay:
		return "replayed from " + w.File
	case w.Kind == sim.Adversary:
		return w.Kind
	case w.Rate > 0:
		return fmt.Sprintf("%s at %s/s", w.Kind, Number(w.Rate))
	}
	return fmt.Sprintf("%s at %s × the limit", w.Kind, Number(w.Load))
}

func (r Result) figures(d *Document) {
	mean := either(r.Report.Reps < 2, ">value", ">mean ± "+Percent(r.Report.Confidence))
	all := Table{Columns: []string{"figure", mean, "?>worst", "?>of seed", "what it is"}}
	for _, f := range r.Report.Figures.All() {
		if name := f.Name; !f.IsZero() {
			all.Add(name, Figure(name, *f.Figure), Value(name, f.Worst), fmt.Sprint(f.WorstSeed), About(name))
		}
	}
	d.tabulate("Figures", all, Bases+" Figures of 0 are left out. In parentheses: the range of the replications "+
		"where an interval would promise too much. The HTML page has the worst value of each; its seed and "+
		"--reps 1 reproduce it.")
}

func (r Result) classes(d *Document) {
	if len(r.Report.Classes) == 0 {
		return
	}
	t := Table{Columns: []string{"groups"}, Brief: true}
	t.head("headroom", "offered", "admitted", "of offered", "shadowed")
	for _, c := range r.Report.Classes {
		t.Add(strings.Join(c.Groups, ", "), Percent(c.Headroom), Figure("offered", c.Offered),
			Figure("admitted", c.Admitted), Figure("admitted_ratio", c.AdmittedRatio), Figure("shadowed", c.Shadowed))
	}
	d.tabulate("Classes", t, glossary("shadowed")+" A class gets tokens only while the bucket has more than "+
		"its headroom, so more important classes go on when it runs low.")
}

func (r Result) overTime() Section {
	s, rep := r.Report.Series, &r.Report
	all := Section{
		Title: "Over time",
		Text: []string{fmt.Sprintf("The first replication (seed %d), one point per %s.", rep.Seed,
			Shortly(time.Duration(s.StepS*float64(time.Second))))},
	}
	line := func(name string, values []float64, series int) Line {
		l := Line{Name: name, Series: series}
		for i, y := range values {
			l.add(s.StepS+s.StepS*float64(i), y)
		}
		return l
	}
	across := func(name string, from, until, y float64, series int, mark string) Line {
		return Line{Name: name, X: []float64{from, until}, Y: []float64{y, y}, Series: series, Mark: mark}
	}
	draw := func(title, unit, note string, lines ...Line) {
		all.Charts = append(all.Charts, Chart{Title: title, Note: note, X: Axis{Label: "seconds"},
			Y: Axis{Unit: unit}, Lines: lines})
	}
	tokens := []Line{line("offered", s.Offered, Grey), line("one central bucket", s.Central, 1),
		line("admitted", s.Admitted, 0)}
	if warmup := r.Scenario.Warmup; warmup > 0 {
		tokens = append(tokens, across("not counted", 0, warmup.Seconds(), 0, Grey, Thick))
	}
	for _, x := range r.Scenario.Disturbances() {
		if x.Fault && x.Until > x.From {
			tokens = append(tokens, across("fault", x.From.Seconds(), x.Until.Seconds(), 0, 3, Thick))
		}
	}
	bucket := []Line{line("level", s.Level, 0), line("ledger", s.Ledger, 1)}
	if limits := r.Scenario.Limits; len(limits) > 0 {
		end := s.StepS * float64(max(len(s.Admitted), 2))
		tokens = append(tokens, across("limit", 0, end, r.limit(), Grey, Dashed))
		bucket = append(bucket, across(either(limits[0].Windowed(), "window", "burst"), 0, end,
			float64(limits[0].Capacity()), Grey, Dashed))
	}
	draw("How many tokens are admitted each second?", "tokens/s",
		"The limit is what buckets refill; a full bucket lets more through for a while, here as in one "+
			"central bucket.", tokens...)
	draw("How many tokens are in the bucket, and how many are leased from it?", "tokens",
		"Level: tokens in the bucket of the most popular key. Ledger: tokens that Redis counts as leased "+
			"from it.",
		bucket...)
	draw("How many round trips to Redis does the fleet make each second?", "round trips/s", "",
		line("", s.RoundTrips, 3))
	draw("How many processes run?", "processes", "", line("", s.Running, 4))
	return all
}

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
	t := Table{Columns: []string{"algorithm"}, Brief: true}
	for i, key := range keys {
		t.Columns = append(t.Columns, either(i < len(keys)-2, ">", "?>")+column(key))
	}
	for i := range all {
		a, cells := &all[i], []string{all[i].Name}
		for _, key := range keys {
			f, wait := search.FigureOf(a, key), key == "wait_ms_p99"
			text := Figure(key, f)
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
	d.tabulate("Side by side", t, "Every algorithm saw the same requests. Rivals decide them at once, for the "+
		"reserved cost. Rivals with a wait ask Redis for each request, over the same links and with the same shards "+
		"and faults as the leases. Each has a Redis of its own, where a call takes a third of a lease call's time. "+
		"A request without an answer in time is denied. Rivals without a wait (-) have no network and no faults: "+
		"their figures are the best case.", glossary(keys...)+" "+Bases)
	about := Table{Columns: []string{"algorithm", "what it does"}}
	for _, a := range r.Report.Rivals {
		about.Add(a.Name, rival.Describe(a.Name))
	}
	d.tabulate("The algorithms", about)
}

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

// bound describes the bound that the audit checked.
func (r Result) bound() string {
	limits := r.Scenario.Limits
	switch {
	case !slices.ContainsFunc(limits, lease.Limit.Windowed):
		return boundText
	case !slices.ContainsFunc(limits, func(l lease.Limit) bool { return !l.Windowed() }):
		return windowText
	}
	return "a bucket's " + boundText + ", or " + windowText
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

// document returns the content that a run and a comparison share.
func (r Result) document() Document {
	rep, s := &r.Report, r.Scenario.Defaults()
	reps := Number(rep.Reps) + either(r.interrupted(), fmt.Sprintf(" of %d", rep.RepsAsked), "")
	d := Document{
		Title:    cmp.Or(rep.Scenario, unnamed),
		Subtitle: strings.TrimSpace(s.Description + "\n" + r.subtitle(s)),
		Facts: []Fact{
			{"offered", r.offered(s)},
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
		perSecond := float64(rep.Machine.Requests) / (float64(rep.Reps) * rep.DurationS)
		d.Headline = headline(perSecond, &rep.Figures)
	}
	return d
}

// headline returns the five figures that most readers read first: use of the limit, wrong rejects, excess
// above the bound, calls to Redis, and load of Redis. requests is per second, or 0 if unknown.
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

// offered describes the load as a multiple of the tightest limit's rate for all keys.
func (r Result) offered(s sim.Scenario) string {
	limit := r.limit() * (s.Duration - s.Warmup).Seconds()
	return fmt.Sprintf("%.3g × the limit", r.Report.Offered.Mean/limit)
}

// limit returns the rate of the tightest limit, for all keys together.
func (r Result) limit() float64 {
	return r.Scenario.LeastRate() * float64(max(r.Scenario.Keys.Count, 1))
}

// targetFact describes the target, with the target in force if it differs.
func targetFact(s sim.Scenario) string {
	given, inForce := s.Policy.Target, s.TargetInForce()
	if given == 0 || given == inForce {
		return inForce.String()
	}
	return given.String() + " (in force " + inForce.String() + ")"
}

func (r Result) interrupted() bool { return r.Report.Reps < r.Report.RepsAsked }

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
	load := strings.Join(loads, " and ")
	warmup := fmt.Sprintf(" (the first %s s do not count)", Number(r.Report.WarmupS))
	return fmt.Sprintf("%s, %s, load %s, %s of %s s%s", strings.Join(limits, " and "),
		Count(r.Report.Processes, "process"), load, Count(r.Report.Reps, "replication"),
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

// figures returns the table of all figures. The text format omits the worst values.
func (r Result) figures(d *Document) {
	mean := either(r.Report.Reps < 2, ">value", ">mean ± "+Percent(r.Report.Confidence))
	all := Table{Columns: []string{"figure", mean, "?>worst", "?>of seed", "what it is"}}
	for _, f := range r.Report.Figures.All() {
		if name := f.Name; !f.IsZero() {
			all.Add(name, Figure(name, *f.Figure), Value(name, f.Worst), fmt.Sprint(f.WorstSeed),
				About(name))
		}
	}
	d.tabulate("Figures", all, Bases+" Figures of 0 are left out. In parentheses: the range of the replications "+
		"where an interval would promise too much. The HTML page has the worst value of each; its seed and "+
		"--reps 1 reproduce it.")
}

// classes adds the table of the groups by headroom, if their headrooms differ.
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

// overTime returns a section with charts of the first replication over time.
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
	level := func(name string, y float64) Line {
		end := s.StepS * float64(max(len(s.Admitted), 2))
		return Line{Name: name, X: []float64{0, end}, Y: []float64{y, y}, Series: Grey, Mark: Dashed}
	}
	draw := func(title, unit, note string, lines ...Line) {
		all.Charts = append(all.Charts, Chart{Title: title, Note: note, X: Axis{Label: "seconds"},
			Y: Axis{Unit: unit}, Lines: lines})
	}
	tokens := []Line{line("offered", s.Offered, Grey), line("one central bucket", s.Central, 1),
		line("admitted", s.Admitted, 0)}
	span := func(name string, from, until time.Duration, series int) {
		tokens = append(tokens, Line{Name: name, X: []float64{from.Seconds(), until.Seconds()}, Y: []float64{0, 0},
			Series: series, Mark: Thick})
	}
	if warmup := r.Scenario.Warmup; warmup > 0 {
		span("not counted", 0, warmup, Grey)
	}
	for _, x := range r.Scenario.Disturbances() {
		if x.Fault && x.Until > x.From {
			span("fault", x.From, x.Until, 3)
		}
	}
	bucket := []Line{line("level", s.Level, 0), line("ledger", s.Ledger, 1)}
	if limits := r.Scenario.Limits; len(limits) > 0 {
		tokens = append(tokens, level("limit", r.limit()))
		bucket = append(bucket, level(either(limits[0].Windowed(), "window", "burst"),
			float64(limits[0].Capacity())))
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

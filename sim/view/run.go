package view

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/search"
)

// Result is the report of one run with what a reader needs beside it.
type Result struct {
	Scenario   sim.Scenario // that was run
	Text       string       // of the scenario's file
	Report     sim.Report
	Command    string // the command line that repeats it
	Thresholds []search.Threshold
	// Describe is a line about an algorithm; nil where there is none.
	Describe func(algorithm string) string
}

// Own is the name of the leases among algorithms.
const Own = "yuzhi"

const (
	boundText   = "burst + overcommit + rate × window"
	windowText  = "the tokens of a sliding window or a period + overcommit"
	centralText = "one central bucket"
	unnamed     = "unnamed scenario"
)

// bound is what the audit held the scenario's limits to.
func (r Result) bound() string {
	limits := r.Scenario.Limits
	windows, buckets := slices.ContainsFunc(limits, lease.Limit.Windowed), false
	for _, l := range limits {
		buckets = buckets || !l.Windowed()
	}
	switch {
	case !windows:
		return boundText
	case !buckets:
		return windowText
	}
	return "a bucket's " + boundText + ", or " + windowText
}

// kinds has text speak of a central limiter where not all limits are buckets.
func (r Result) kinds(text string) string {
	if !slices.ContainsFunc(r.Scenario.Limits, lease.Limit.Windowed) {
		return text
	}
	return strings.ReplaceAll(text, centralText, "one central limiter")
}

// Run shows the report of a run. JSON is the report itself; CSV has a line per figure, of the fleet
// and of each rival.
func Run(r Result) Document {
	d := r.document()
	d.Sections = r.charts()
	r.figures(&d)
	r.classes(&d)
	if len(r.Report.Rivals) > 0 {
		r.rivals(&d)
	}
	return d
}

// Comparison shows the report of a run with rivals, side by side. JSON and CSV are those of Run.
func Comparison(r Result) Document {
	d := r.document()
	d.Title += ": " + Own + " and its rivals"
	r.rivals(&d)
	r.classes(&d)
	d.Sections = append(d.Sections, r.charts()...)
	return d
}

// document is what a run and a comparison have in common.
func (r Result) document() Document {
	rep, s := &r.Report, r.Scenario.Defaults()
	reps := Number(float64(rep.Reps)) + either(r.interrupted(), fmt.Sprintf(" of %d", rep.RepsAsked), "")
	policy := s.Policy.ConfigFor(s.Limits, 0, s.CallTimeout)
	d := Document{
		Title:    cmp.Or(rep.Scenario, unnamed),
		Subtitle: strings.TrimSpace(s.Description + "\n" + r.subtitle(s)),
		Facts: []Fact{
			{"hash", rep.ScenarioHash},
			{"seed", fmt.Sprint(rep.Seed)},
			{"replications", reps},
			{"confidence", Percent(rep.Confidence)},
			{"target", targetFact(s)},
			{"ttl", policy.TTL.String()},
		},
		Scenario: r.Text, Command: r.Command, Machine: rep.Machine,
		Data: rep, Rows: [][]string{figureHead},
	}
	d.figureRows(Own, rep.Figures.All())
	for i := range rep.Classes {
		d.figureRows("headroom "+Number(rep.Classes[i].Headroom), rep.Classes[i].All())
	}
	for i := range rep.Rivals {
		d.figureRows(rep.Rivals[i].Name, rep.Rivals[i].All())
	}
	r.judge(&d, s)
	return d
}

// targetFact is the target, and where that is not the one in force, that one.
func targetFact(s sim.Scenario) string {
	given, inForce := s.Policy.Target, s.TargetInForce()
	if given == 0 || given == inForce {
		return inForce.String()
	}
	return given.String() + " (in force " + inForce.String() + ")"
}

func (r Result) interrupted() bool { return r.Report.Reps < r.Report.RepsAsked }

// subtitle says in a line what was simulated.
func (r Result) subtitle(s sim.Scenario) string {
	limits := make([]string, len(s.Limits))
	for i, l := range s.Limits {
		limits[i] = l.String()
	}
	var loads []string // each once: the groups' own, and the one that they share
	for _, g := range s.Groups {
		w := &s.Workload
		if g.Workload != nil {
			w = g.Workload
		}
		if load := loadText(w); !slices.Contains(loads, load) {
			loads = append(loads, load)
		}
	}
	load := strings.Join(loads, " and ")
	warmup := fmt.Sprintf(", of which the first %s s do not count", Number(r.Report.WarmupS))
	return fmt.Sprintf("%s, %s, load %s, %s of %s s%s", strings.Join(limits, " and "),
		count(r.Report.Processes, "process"), load, count(r.Report.Reps, "replication"),
		Number(r.Report.DurationS), either(r.Report.WarmupS > 0, warmup, ""))
}

// loadText is what comes of a workload, and how much where it is not the answers that decide that.
func loadText(w *sim.Workload) string {
	switch {
	case w.Kind == sim.Replay:
		return "replayed from " + w.File
	case w.Kind == sim.Closed || w.Kind == sim.Adversary:
		return w.Kind
	case w.Rate > 0:
		return fmt.Sprintf("%s at %s/s", w.Kind, Number(float64(w.Rate)))
	}
	return fmt.Sprintf("%s at %s × the limit", w.Kind, Number(w.Load))
}

// judge says what the report means, in plain words: first whether the bound holds, then how good
// and how dear it was.
func (r Result) judge(d *Document, s sim.Scenario) {
	rep, bound := &r.Report, r.bound()
	if !rep.Charged.IsZero() || !rep.Refunded.IsZero() {
		bound += ", net of what was given back and of what is still owed"
	}
	if r.interrupted() {
		d.say(Neutral, "Interrupted after %d of %d replications; all figures are of these.", rep.Reps, rep.RepsAsked)
	}
	if worst := rep.BoundExceededBy; worst.Worst == 0 {
		d.say(Good, "The bound holds: in no window of %s did the fleet admit more than %s.",
			count(rep.Reps, "replication"), bound)
	} else {
		why := ""
		if reasons := excuses(s); len(reasons) > 0 {
			why = " The scenario allows that: " + strings.Join(reasons, "; ") + "."
		}
		d.say(Bad, "The bound is exceeded: in the worst window the fleet admitted %s tokens more than %s (seed %d).%s",
			Number(worst.Worst), bound, worst.WorstSeed, why)
	}
	enough := s.Enough()
	d.say(Neutral, either(enough > 0, "The", "Once settled, the")+
		r.kinds(" fleet admitted %s of what "+centralText+" would have, and rejected %s of it wrongly, ")+
		"with %s Redis calls per second, which keep a core %s busy.", Mean("admitted_vs_central", rep.AdmittedVsCentral),
		Mean("false_reject_ratio", rep.FalseRejectRatio), Mean("calls_per_s", rep.CallsPerS), Mean("redis_cpu", rep.RedisCPU))
	if enough > 0 && rep.FalseRejectRatio.Mean > 0 {
		d.say(Neutral, "%s s are too short for this fleet to settle: what it rejects once, at the start, counts as if it went on. "+
			"--duration %v would do.", Number(rep.DurationS), enough)
	}
	saturation(d, "", &rep.Figures, rep.Relief)
	var once []string
	for _, stock := range []struct {
		key, when string
		of        sim.Figure
	}{{"start_stock", "once, while it started or grew", rep.StartStock}, {"fault_stock", "for each fault", rep.FaultStock}} {
		if math.Round(stock.of.Mean) > 0 {
			once = append(once, Mean(stock.key, stock.of)+" tokens wrongly "+stock.when)
		}
	}
	if len(once) > 0 {
		d.say(Neutral, "It rejected %s.", strings.Join(once, ", and "))
	}
	if budget, burst := crowd(s); burst > 0 {
		d.say(Neutral, "The burst does not allow leases as long as the fleet would need to be sure of policy.calls_per_second, "+
			"%s for a key: a burst of %s would.", Number(float64(budget)), Number(float64(burst)))
	}
	for _, t := range r.Thresholds {
		if failure := t.Failure(rep); failure != "" {
			d.say(Bad, "Does not hold: %s (%s)", t, failure)
		} else {
			d.say(Good, "Holds: %s", t)
		}
	}
}

// saturation says where Redis could not keep up, and what would help.
func saturation(d *Document, where string, f *sim.Figures, relief *sim.Relief) {
	if !search.Saturated(f) {
		return
	}
	more := "More shards would not help: ask less often, with a longer target or fewer calls."
	if relief != nil {
		keys := either(relief.KeyShards > 0, fmt.Sprintf(" and policy.shards: %d", relief.KeyShards), "")
		more = fmt.Sprintf("With redis.shards: %d%s its busiest shard would work %s of the time.", relief.Shards, keys,
			Percent(relief.RedisCPU))
	}
	d.say(Bad, "Redis is saturated%s: its busiest shard works %s of the time, and calls wait in line. %s", where,
		Percent(f.RedisCPU.Worst), more)
}

// crowd is the budget of lease calls for one key, and where the burst is too small for leases as
// long as that wants them, one that is not.
func crowd(s sim.Scenario) (budget, burst int64) {
	s = s.Defaults()
	shards := max(1, s.Policy.Shards)
	g := lease.Grant{Config: s.Policy.ConfigFor(s.Limits, 0, s.CallTimeout)}
	budget = g.Config.CallsPerSecond
	for _, group := range s.Groups {
		g.ActiveWeight += int64(group.Count) * max(1, group.Weight)
	}
	if shards > 1 { // a large fleet is divided between them
		g.ActiveWeight = (g.ActiveWeight + int64(shards) - 1) / int64(shards)
		g.Config = g.Config.Shard(0, shards)
	}
	return budget, g.BurstWanted(1) * int64(shards)
}

// excuses are the settings of a scenario with which a fleet may exceed the bound although its
// leases work as they should.
func excuses(s sim.Scenario) (reasons []string) {
	excuse := func(allows bool, reason string) {
		if allows {
			reasons = append(reasons, reason)
		}
	}
	excuse(s.Policy.Fallback != lease.FallbackDeny, "the policy's fallback admits without a lease while Redis does not answer")
	excuse(s.Policy.ColdStart == lease.ColdStartAllow, "the policy admits before the first reply")
	excuse(s.Redis.ClientTime, "the bucket counts time by the callers' clocks")
	for _, f := range s.Redis.Faults {
		excuse(f.Kind == sim.FaultClockStep && f.By > 0, fmt.Sprintf("the clock of Redis steps forward by %v", f.By))
		excuse(f.Kind == sim.FaultFailover && f.Lost > 0, fmt.Sprintf("a failover loses %v of writes", f.Lost))
		excuse(f.Kind == sim.FaultRestartEmpty && !s.Policy.StartEmpty, "Redis restarts empty, and new buckets start full")
	}
	for _, g := range s.Groups {
		excuse(g.Pauses.Every+g.Pauses.At > 0 && !s.Policy.StrictExpiry, "processes are paused past their leases, without strict_expiry")
	}
	return reasons
}

// deciding are the figures that most readers look at first, and the only ones of a text without
// Document.All: is the promise kept, is the limit used, who is turned away wrongly, what does it
// cost, and how long does anybody wait?
var deciding = []string{search.BoundFigure, "admitted_vs_central", "false_reject_ratio", "calls_per_s", "wait_ms_p99"}

// figures is the table of the figures that decide, and then that of all.
func (r Result) figures(d *Document) {
	mean := either(r.Report.Reps < 2, ">value", ">mean ± "+Percent(r.Report.Confidence))
	all := Table{Columns: []string{"figure", mean, ">worst", ">of seed", "what it is"}}
	five := Table{Columns: []string{"figure", mean, "what it is"}}
	for _, f := range r.Report.Figures.All() {
		name, value, about := f.Name, Figure(f.Name, *f.Figure), r.kinds(About(f.Name))
		all.Add(name, value, Value(name, f.Worst), fmt.Sprint(f.WorstSeed), about)
		if slices.Contains(deciding, name) {
			five.Add(name, value, about)
		}
	}
	d.Sections = append(d.Sections, Section{Title: "The figures that decide", Shown: InBrief, Table: &five,
		Text: []string{five.ranges() + r.kinds(wrongly)}})
	d.Sections = append(d.Sections, Section{Title: "Figures", Shown: InFull, Table: &all,
		Text: []string{all.ranges() + r.kinds(Bases) + " A worst value comes again with its seed and --reps 1."}})
}

// ranges explains the ranges in the second column of a table, where there are any.
func (t *Table) ranges() string {
	if !slices.ContainsFunc(t.Rows, func(row []string) bool { return strings.Contains(row[1], "..") }) {
		return ""
	}
	return "In parentheses: the range of the replications, where an interval would promise too much. "
}

// classes is the table of what became of the groups with each headroom, if they differ.
func (r Result) classes(d *Document) {
	if len(r.Report.Classes) == 0 {
		return
	}
	for _, shown := range []Shown{InBrief, InFull} {
		t, write := Table{Columns: []string{"groups"}}, shown.figure()
		t.head("headroom", "offered", "admitted", "of offered", "shadowed")
		for _, c := range r.Report.Classes {
			t.Add(strings.Join(c.Groups, ", "), Percent(c.Headroom), write("offered", c.Offered), write("admitted", c.Admitted),
				write("admitted_ratio", c.AdmittedRatio), write("shadowed", c.Shadowed))
		}
		d.Sections = append(d.Sections, Section{Title: "Classes", Shown: shown, Table: &t,
			Text: []string{"A class is granted only while the bucket has more than its headroom, so that those " +
				"above go on when it runs low."}})
	}
}

// rivals set the algorithms side by side.
func (r Result) rivals(d *Document) {
	f := &r.Report.Figures
	own := sim.RivalReport{
		Name: Own, Remote: true, Admitted: f.Admitted, AdmittedVsCentral: f.AdmittedVsCentral, BoundExceededBy: f.BoundExceededBy,
		FalseRejectRatio: f.FalseRejectRatio, RoundTripsPerS: f.RoundTripsPerS, Jain: f.Jain, WorstShare: f.WorstShare,
		FaultStock: f.FaultStock, RedisCPU: f.RedisCPU, WaitMsP99: f.WaitMsP99,
	}
	all := append([]sim.RivalReport{own}, r.Report.Rivals...)
	faults := slices.ContainsFunc(all, func(a sim.RivalReport) bool { return a.FaultStock.Mean > 0 })
	for _, shown := range []Shown{InBrief, InFull} {
		t, write := Table{Columns: []string{"algorithm"}}, shown.figure()
		t.head("of central", "excess", "rejects")
		if faults {
			t.head("per fault")
		}
		t.head("wait p99", "trips/s")
		t.Columns = append(t.Columns, "?>Redis busy", "?>admitted", "?>Jain", "?>worst share")
		for _, a := range all {
			wait, busy := write("wait_ms_p99", a.WaitMsP99), write("redis_cpu", a.RedisCPU)
			if a.Admitted.Mean == 0 {
				wait = "none"
			}
			if !a.Remote {
				wait, busy = "-", "-"
			}
			cells := []string{a.Name, write("admitted_vs_central", a.AdmittedVsCentral), Number(a.BoundExceededBy.Worst),
				write("false_reject_ratio", a.FalseRejectRatio)}
			if faults {
				cells = append(cells, write("fault_stock", a.FaultStock))
			}
			t.Add(append(cells, wait, write("round_trips_per_s", a.RoundTripsPerS), busy, write("admitted", a.Admitted),
				write("jain", a.Jain), write("worst_share", a.WorstShare))...)
		}
		d.Sections = append(d.Sections, Section{Title: "Side by side", Shown: shown, Table: &t,
			Text: []string{"Every algorithm saw the same requests. " + r.subject() + "Excess: tokens above " + r.bound() +
				", in the worst of all windows of all replications. Rejects: wrong ones, once settled" +
				either(faults, "; per fault: tokens that were rejected wrongly beyond that. ", ". ") + r.kinds(Bases)}})
	}
	if r.Describe == nil {
		return
	}
	about := Section{Title: "The algorithms"}
	for _, a := range r.Report.Rivals {
		if text := r.Describe(a.Name); text != "" {
			about.Facts = append(about.Facts, Fact{a.Name, text})
		}
	}
	d.Sections = append(d.Sections, about)
}

// subject says which of the rivals pay for the network and for Redis.
func (r Result) subject() (text string) {
	some := func(holds func(sim.RivalReport) bool) bool { return slices.ContainsFunc(r.Report.Rivals, holds) }
	if some(func(a sim.RivalReport) bool { return a.Remote }) {
		text = "The rivals with a wait ask Redis for each request, over the same links and with the same shards and " +
			"faults as the leases, each a Redis to itself, where a call takes a third of a lease call's time: who has " +
			"no answer in time is denied. Wait: of those who were admitted. "
	}
	if some(func(a sim.RivalReport) bool { return search.Saturates(a.RedisCPU) }) {
		text += "Where Redis is busy all the time, requests wait in line for longer than anybody listens, unless a pool " +
			"of few connections turns them away before: then as many are answered as Redis can. "
	}
	if s := r.Scenario; s.Workload.Verb == sim.VerbWait || slices.ContainsFunc(s.Groups, func(g sim.Group) bool {
		return g.Workload != nil && g.Workload.Verb == sim.VerbWait
	}) {
		text += "Requests wait for tokens from leases only: the rivals answer at once. "
	}
	if some(func(a sim.RivalReport) bool { return !a.Remote }) {
		text += "Those without a wait (-) are spared network and faults: their figures are the best case. "
	}
	return text
}

// charts show how the first replication went, and what each process got.
func (r Result) charts() []Section {
	s, rep := r.Report.Series, &r.Report
	overTime := Section{
		Title: "Over time",
		Text: []string{fmt.Sprintf("The first replication (seed %d), one point per %s.", rep.Seed,
			Shortly(time.Duration(s.StepS*float64(time.Second))))},
	}
	line := func(name string, values []float64, series int) Line {
		return Line{Name: name, X: spaced(len(values), s.StepS, s.StepS), Y: values, Series: series}
	}
	level := func(name string, y float64) Line {
		end := s.StepS * float64(max(len(s.Admitted), 2))
		return Line{Name: name, X: []float64{0, end}, Y: []float64{y, y}, Series: Grey, Mark: Dashed}
	}
	draw := func(title, note string, height float64, lines ...Line) {
		overTime.Charts = append(overTime.Charts,
			Chart{Title: title, Note: note, XLabel: "seconds", Lines: lines, FromZero: true, Height: height})
	}
	tokens := []Line{line("offered", s.Offered, Grey), line(r.kinds(centralText), s.Central, 1), line("admitted", s.Admitted, 0)}
	bucket := []Line{line("level", s.Level, 0), line("ledger", s.Ledger, 1)}
	if limits := r.Scenario.Limits; len(limits) > 0 {
		rate := math.Inf(1)
		for _, l := range limits {
			rate = min(rate, l.Rate())
		}
		tokens = append(tokens, level("limit", rate*float64(max(r.Scenario.Keys.Count, 1))))
		bucket = append(bucket, level(either(limits[0].Windowed(), "window", "burst"), float64(limits[0].Capacity())))
	}
	draw("Tokens per second",
		"The limit is what buckets refill; a full bucket lets more through for a while, here as in "+r.kinds(centralText)+".", 240, tokens...)
	draw("The bucket in Redis",
		"Level: tokens in the bucket of the most popular key. Ledger: tokens leased from it, as it knows.", 240, bucket...)
	draw("Tokens in the processes", "", 180, line("held in all pools", s.Held, 2))
	draw("Round trips to Redis per second", "", 180, line("round trips", s.RoundTrips, 3))
	if len(s.Running) > 0 && slices.Min(s.Running) != slices.Max(s.Running) {
		draw("Processes", "", 160, line("running", s.Running, 4))
	}
	if len(rep.Members) < 2 {
		return []Section{overTime}
	}
	return []Section{overTime, r.shares()}
}

// membersMax is how many processes are drawn: more would be one band.
const membersMax = 500

// shares shows what each process got beside what it was due.
func (r Result) shares() Section {
	members := slices.SortedStableFunc(slices.Values(r.Report.Members), func(a, b sim.Member) int {
		return cmp.Or(cmp.Compare(a.Share, b.Share), cmp.Compare(a.Admitted, b.Admitted))
	})
	chart := Chart{
		Title: "Tokens per process", Note: "In the order of the shares. On the line a process got exactly its share.",
		XLabel: "process", FromZero: true, Lines: []Line{{Name: "max-min share", Series: Grey}},
	}
	lineOf := map[string]int{} // by the process's group
	for _, m := range r.Report.Members {
		if n := len(chart.Lines); lineOf[m.Group] == 0 {
			lineOf[m.Group] = n
			chart.Lines = append(chart.Lines, Line{Name: "admitted, " + m.Group, Series: n - 1, Mark: Dots})
		}
	}
	if len(chart.Lines)-1 > len(series) { // colours that come again would say nothing
		chart.Lines = append(chart.Lines[:1], Line{Name: "admitted", Mark: Dots})
		for group := range lineOf {
			lineOf[group] = 1
		}
	}
	every := (len(members) + membersMax - 1) / membersMax
	if every > 1 {
		chart.Note += fmt.Sprintf(" One process of %d is drawn.", every)
	}
	for i := 0; i < len(members); i += every {
		m := members[i]
		chart.Lines[0].add(float64(i+1), m.Share)
		line := &chart.Lines[lineOf[m.Group]]
		line.add(float64(i+1), float64(m.Admitted))
		line.Titles = append(line.Titles, fmt.Sprintf("%s: %s admitted, a share of %s", m.Group, Number(float64(m.Admitted)),
			Number(math.Round(m.Share))))
	}
	return Section{
		Title: "Share per process",
		Text: []string{fmt.Sprintf("The max-min share is what a fair division of the same total would give: nobody more than "+
			"they asked for, and otherwise alike. Jain's index is %s; the worst process got %s of its share.",
			Number(r.Report.Jain.Mean), Percent(r.Report.WorstShare.Mean))},
		Charts: []Chart{chart},
	}
}

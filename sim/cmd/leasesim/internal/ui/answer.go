package ui

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/rival"
	scenfile "github.com/yuzhi-go/yuzhi/sim/scenario/file"
	"github.com/yuzhi-go/yuzhi/sim/search"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

const (
	fullReps  = 10
	quickReps = 4
	quickFor  = 300 * time.Millisecond // time for the first figures
	loadsFor  = time.Second            // time for the first curves over the load
	longAfter = 20 * time.Second       // longer simulations start only on request
)

// loads lists the loads at which the curves have points.
var loads = []float64{0.5, 0.9, 1, 1.1, 1.5, 2, 3}

// event is a line of an answer to the page. The page replaces the values that it shows by those of the event.
type event struct {
	Kind     string         `json:"kind"`
	Text     string         `json:"text,omitempty"`
	Done     float64        `json:"done,omitempty"` // progress from 0 to 1
	Seconds  float64        `json:"seconds,omitempty"`
	Wrong    []wrong        `json:"wrong,omitempty"`
	Figures  []figure       `json:"figures,omitempty"`
	Verdicts []view.Verdict `json:"verdicts,omitempty"`
	Charts   []view.Chart   `json:"charts,omitempty"`
	Tables   []table        `json:"tables,omitempty"`
	YAML     string         `json:"yaml,omitempty"`
	Code     string         `json:"code,omitempty"`
	Policy   *search.Policy `json:"policy,omitempty"`
}

// figure is one of the five headline figures, under its name in reports.
type figure struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Exact string `json:"exact"`           // the value with its interval or range
	Fault string `json:"fault,omitempty"` // what the fault adds to the value
	Text  string `json:"text"`
}

type table struct {
	Title string        `json:"title"`
	Text  []string      `json:"text,omitempty"`
	Cells [][]view.Cell `json:"cells,omitempty"`
	Code  string        `json:"code,omitempty"`
}

// headline explains the figures of view.Document.Headline in their order.
var headline = []struct{ key, text string }{
	{"admitted_vs_central", "One exact bucket without a network admits 100 %."},
	{"false_reject_ratio", "Denied requests that one exact bucket would have admitted. Hardly any below a load of 1."},
	{search.BoundFigure, "Requests beyond burst + rate × window, in the worst window. With 0, the limit held."},
	{"calls_per_s", "Calls to Redis by all processes together. Without leases, each request is a call."},
	{"redis_cpu", "Time that Redis spends on these calls."},
}

// answer handles one request of the page for a simulation.
type answer struct {
	*settings
	anyway bool // the user asked for all runs, however long they take
	pace   *pace
	tell   func(event)
	again  bool // the page has the results of short runs, which longer ones may replace
}

// run sends the results of short runs first, and later the results of long runs.
func (a *answer) run(ctx context.Context) error {
	whole := a.whole()
	text, err := scenfile.Marshal(whole)
	if err != nil {
		return err
	}
	a.tell(event{Kind: "texts", YAML: string(text), Code: search.GoCode(whole)})
	short := a.short(a.numbers["load"], quickReps, quickFor, true)
	if a.tooLong(short, "No figures yet") {
		return nil
	}
	began := time.Now()
	if err := a.figures(ctx, short); err != nil {
		return err
	}
	a.pace.learn(a.work(short), time.Since(began))
	long := a.tooLong(whole, "The figures come from short runs")
	if err := errors.Join(a.curves(ctx, loadsFor), a.rivals(ctx, short)); err != nil || long {
		return err
	}
	if err := a.figures(ctx, whole); err != nil {
		return err
	}
	whole.Reps, a.again = quickReps, true
	if err := errors.Join(a.curves(ctx, longAfter), a.rivals(ctx, whole)); err != nil {
		return err
	}
	a.tell(event{Kind: "done"})
	return nil
}

// tooLong reports whether the runs of s take too long, and if so offers the user shorter runs. shown says
// which figures the page has.
func (a *answer) tooLong(s sim.Scenario, shown string) bool {
	needs := a.pace.needs(a.work(s))
	if needs <= longAfter || a.anyway {
		return false
	}
	shorter := a.seconds() * (longAfter / 4).Seconds() / needs.Seconds()
	a.tell(event{Kind: "long", Seconds: max(0.1, math.Round(10*shorter)/10), Text: fmt.Sprintf(
		"%s: %d runs of %v take about %v on this machine.", shown, s.Reps, s.Duration, needs.Round(time.Second))})
	return true
}

// leftOut reports whether a section takes too long. The page then keeps that of short runs, or gets a note.
func (a *answer) leftOut(kind string, work float64) bool {
	needs := a.pace.needs(work)
	if needs <= longAfter || a.anyway {
		return false
	}
	if !a.again {
		a.tell(event{Kind: kind, Tables: []table{{Title: fmt.Sprintf(
			"Left out, as it takes about %v. Use a shorter simulated time.", needs.Round(time.Second))}}})
	}
	return true
}

// work returns the cost of all runs of s as a number of requests. Lease calls of a process cost as much as
// 50 requests a second.
func (a *answer) work(s sim.Scenario) float64 {
	perSecond := a.numbers["rate"]*s.Workload.Load + 50*a.numbers["processes"]
	return perSecond * s.Duration.Seconds() * float64(s.Reps)
}

// short returns a scenario whose runs together take about the real time within. Each run lasts
// until the fleet has settled, as earlier figures mislead. If reps such runs take too long, short returns 2.
func (a *answer) short(load float64, reps int, within time.Duration, withFault bool) sim.Scenario {
	long := a.scenario(a.seconds(), load, withFault)
	long.Reps = reps
	part := a.pace.affords(within) / a.work(long)
	warmup := long.Warmup.Seconds()
	needs := 2*long.Defaults().Settling().Seconds() - warmup
	seconds := a.seconds()*part - warmup*(1-part)
	if seconds < needs {
		reps, seconds = 2, needs
	}
	s := a.scenario(min(a.seconds(), math.Ceil(10*seconds)/10), load, withFault)
	s.Reps = reps
	return s
}

// figures simulates s, and sends its figures, its verdicts and its chart over time.
func (a *answer) figures(ctx context.Context, s sim.Scenario) error {
	full := s.Reps == fullReps
	runner := sim.Runner{}
	runs := fmt.Sprintf("%d runs of %v, of which the last %v count", s.Reps, s.Duration, s.Duration-s.Warmup)
	if full {
		runner.Progress = func(done float64) { a.tell(event{Kind: "progress", Done: done, Text: runs}) }
	}
	r, err := runner.Run(ctx, s)
	if err != nil {
		return err
	}
	calm := r
	calm.FaultStock = sim.Figure{} // remarks writes about the fault
	d := view.Run(view.Result{Scenario: s, Report: calm})
	e := event{Kind: "figures", Text: runs, Charts: d.Sections[0].Charts[:1]}
	if !full {
		e.Text += ", as a first answer. Longer runs follow"
	}
	for i, f := range d.Headline {
		exact := view.Figure(headline[i].key, search.FigureOf(&r.Figures, headline[i].key))
		e.Figures = append(e.Figures, figure{f.Name, f.Value, exact, "", headline[i].text})
	}
	if lost := math.Round(r.FaultStock.Mean); lost > 0 {
		e.Figures[1].Fault = "and " + view.Count(lost, "request") + " by the fault"
	}
	e.Verdicts = append(verdicts(d), a.remarks(&s, &r)...)
	a.tell(e)
	return nil
}

// remarks returns findings of the page itself, beside the verdicts of package view.
func (a *answer) remarks(s *sim.Scenario, r *sim.Report) (all []view.Verdict) {
	say := func(format string, args ...any) {
		all = append(all, view.Verdict{Mood: view.Neutral, Text: fmt.Sprintf(format, args...)})
	}
	if offered := r.Offered.Mean; r.Admitted.Mean < 0.999*offered {
		say("Rightly or wrongly, %.3g %% of the requests are rejected. One exact bucket rejects %.3g %%.",
			100*(1-r.Admitted.Mean/offered), 100*(1-r.CentralAdmitted.Mean/offered))
	}
	full := s.Defaults()
	for _, f := range s.Disturbances() {
		denied := ""
		if ms := r.DeniedWaitMsP99.Mean; ms >= 0.1 {
			denied = fmt.Sprintf(", and 99 %% of the denied requests for at most %.3g ms", ms)
		}
		say("From second %.3g to %.3g, %s. Until the fleet has settled again, that costs %s, rejected wrongly; the "+
			"percentages above leave this time out. An admitted request waits for at most %.3g ms%s.",
			f.From.Seconds(), f.Until.Seconds(), a.words["fault"],
			view.Count(math.Round(r.FaultStock.Mean), "request"), r.WaitMsMax.Mean, denied)
	}
	if s.Policy.Target == 0 {
		say("Target is not set: a lease lasts %v here.", full.TargetInForce())
	} else if inForce := full.TargetInForce(); inForce != s.Policy.Target {
		say("A lease lasts %v, not the Target of %v: a lease may use at most a quarter of the burst, and a large "+
			"fleet has longer leases to save calls.", inForce, s.Policy.Target)
	}
	return all
}

// curves simulates the loads without the fault. All runs together take about the real time within.
func (a *answer) curves(ctx context.Context, within time.Duration) error {
	at := append(slices.Clone(loads), a.numbers["load"])
	slices.Sort(at)
	at = slices.Compact(at)
	curve := func(title, unit string, series int) view.Chart {
		return view.Chart{Title: title, X: view.Axis{Label: "load, × the limit"},
			Y: view.Axis{Unit: unit}, Lines: []view.Line{{Series: series, Mark: view.Dotted}}}
	}
	calls := curve("How many lease calls does Redis get each second?", "calls/s", 3)
	rejects := curve("How many requests are rejected wrongly?", "%", 1)
	add := func(c *view.Chart, x, scale float64, f sim.Figure) {
		l := &c.Lines[0]
		l.X, l.Y = append(l.X, x), append(l.Y, scale*f.Mean)
		l.Low, l.High = append(l.Low, max(0, scale*f.Low)), append(l.High, scale*f.High)
	}
	t := view.Table{Columns: []string{
		">load", ">lease calls/s", ">rejected wrongly", ">rejected in all", ">requests per call"}}
	all, work := make([]sim.Scenario, len(at)), 0.0
	for i, load := range at {
		all[i] = a.short(load, quickReps, within/time.Duration(len(at)), false)
		work += a.work(all[i])
	}
	if a.leftOut("loads", work) {
		return nil
	}
	for i, s := range all {
		load := s.Workload.Load
		a.tell(event{Kind: "progress", Done: float64(i) / float64(len(all)), Text: "other loads"})
		r, err := sim.Runner{}.Run(ctx, s)
		if err != nil {
			return err
		}
		add(&calls, load, 1, r.CallsPerS)
		add(&rejects, load, 100, r.FalseRejectRatio)
		perCall := r.Offered.Mean / (r.CallsPerS.Mean * (s.Duration - s.Warmup).Seconds())
		t.Add(view.Number(load), view.Mean("calls_per_s", r.CallsPerS),
			view.Mean("false_reject_ratio", r.FalseRejectRatio),
			fmt.Sprintf("%.3g %%", 100*max(0, 1-r.Admitted.Mean/max(r.Offered.Mean, 1))),
			view.Number(math.Round(10*perCall)/10))
	}
	a.tell(event{Kind: "loads", Charts: []view.Chart{calls, rejects}, Tables: []table{{Cells: t.Cells()}}})
	return nil
}

// rivals compares other algorithms on the requests of s. A rival takes as long to simulate as the leases.
func (a *answer) rivals(ctx context.Context, s sim.Scenario) error {
	fleet := rival.Fleet{Processes: s.Groups[0].Count, Limits: s.Limits, Keys: 1}
	for _, name := range rival.Names() {
		if _, err := rival.New(name, fleet); err == nil && !strings.HasSuffix(name, "_client") {
			s.Rivals = append(s.Rivals, name)
		}
	}
	if a.leftOut("rivals", a.work(s)*float64(1+len(s.Rivals))) {
		return nil
	}
	r, err := sim.Runner{Progress: func(done float64) {
		a.tell(event{Kind: "progress", Done: done, Text: "other algorithms"})
	}}.Run(ctx, s)
	if err != nil {
		return err
	}
	d := view.Comparison(view.Result{Scenario: s, Report: r})
	a.tell(event{Kind: "rivals", Tables: tables(d)})
	return nil
}

// keys matches the JSON key in parentheses after the name of a figure.
var keys = regexp.MustCompile(` \([a-z]+_[a-z0-9_]+\)`)

// inWords replaces the names of fields, figures and flags by words of the page.
var inWords = strings.NewReplacer("Use --duration", "Use a simulated time of", "--reps", "runs",
	"--overcommit-max", "an overcommit", "policy.calls_per_second", "budget of calls", "policy.fallback", "Fallback",
	"replication", "run", "call_timeout", "the time limit of a call", " (redis.shards)", "",
	"false_reject_ratio", "wrong rejects",
	search.BoundFigure, "tokens above the bound")

// plain returns text of a report in the page's words.
func plain(text string) string { return inWords.Replace(keys.ReplaceAllString(text, "")) }

func verdicts(d view.Document) []view.Verdict {
	for i := range d.Verdicts {
		d.Verdicts[i].Text = plain(d.Verdicts[i].Text)
	}
	return d.Verdicts
}

// tables returns the tables of a report, with means, and its Go code.
func tables(d view.Document) (all []table) {
	for _, s := range d.Sections {
		t := table{Title: s.Title, Code: s.Code}
		for _, text := range s.Text {
			t.Text = append(t.Text, plain(text))
		}
		if of := s.Table; of != nil {
			if of.Brief {
				of = of.Means()
			}
			t.Cells = of.Cells()
			for _, row := range t.Cells {
				for i := range row {
					row[i].Text = plain(row[i].Text)
				}
			}
		}
		if t.Cells != nil || t.Code != "" {
			all = append(all, t)
		}
	}
	return all
}

// plan finds the policy with the fewest calls that rejects at most the fraction most of the requests wrongly.
func (a *answer) plan(ctx context.Context, most sim.Ratio) error {
	s := a.scenario(a.seconds(), a.numbers["load"], false)
	lab := search.Lab{
		Run: sim.Runner{}.Run,
		Progress: func(phase string, done, of int) {
			a.tell(event{Kind: "progress", Done: float64(done) / float64(max(of, 1)), Text: phase})
		},
	}
	question := search.Question{Scenario: s, Targets: []search.Threshold{
		search.AtMost("false_reject_ratio", float64(most))}}
	p, err := lab.Plan(ctx, question)
	if err != nil && !errors.Is(err, search.ErrInfeasible) {
		return err
	}
	d := view.Plan(p, "", "")
	e := event{Kind: "plan", Text: plain(d.Subtitle), Verdicts: verdicts(d), Tables: tables(d)}
	if p.Chosen != nil {
		e.Policy = &p.Chosen.Policy
	}
	a.tell(e)
	return nil
}

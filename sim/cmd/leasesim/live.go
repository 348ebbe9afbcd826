package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/yuzhi-go/yuzhi/internal/violation"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/cmd/leasesim/internal/live"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

// fleetFlags are the flags of live.
type fleetFlags struct {
	redis, key, limit, shape, out  string
	processes                      int
	offered                        float64
	duration, killAfter, stopAfter time.Duration
	overcommit, callsPerSecond     int64
	target, ttl                    time.Duration
	strict                         bool
}

// shapes are the loads of live, with the kinds of workload that they are.
var shapes = []struct{ name, kind string }{
	{"steady", sim.Constant}, {"bursts", sim.Sync}, {"adversary", sim.Adversary},
}

// liveFlags are the flags that set a field of the scenario.
var liveFlags = map[string]string{
	"groups[0].count": "--processes", "limits[0]": "--limit", "workload.load": "--offered", "duration": "--duration",
	"policy.target": "--target", "policy.ttl": "--ttl", "policy.overcommit": "--overcommit",
	"policy.calls_per_second": "--calls-per-second", "groups[0].pauses.at": "--stop-after",
	"groups[0].scale[0].at": "--kill-after",
}

func liveCommand() *cobra.Command {
	var x fleetFlags
	c := command("live", x.run)
	f := c.Flags()
	var names []string
	for _, shape := range shapes {
		names = append(names, shape.name)
	}
	f.StringVar(&x.redis, "redis", "", "host:port or URL of a real Redis (default: an embedded one)")
	f.IntVar(&x.processes, "processes", 4, "number of processes")
	f.StringVar(&x.limit, "limit", "20000/s burst 5000", "limit of any kind, as in 500/m burst 50 or "+
		"1000 in 10s")
	f.Int64Var(&x.overcommit, "overcommit", 0, "tokens by which level and leases together may exceed the "+
		"burst")
	f.Float64Var(&x.offered, "offered", 2, "requests offered, as a multiple of the limit")
	f.StringVar(&x.shape, "shape", names[0], "shape of the load: "+strings.Join(names, ", ")+
		" (an adversary spends its lease just before every report, and asks for all it can)")
	f.DurationVar(&x.duration, "duration", 5*time.Second,
		"length of the load (for a window of up to 1m: at least three windows)")
	f.DurationVar(&x.target, "target", 0, "length of one lease (default: 100ms, less for a small burst)")
	f.DurationVar(&x.ttl, "ttl", 0, "validity of a lease without renewal (default: 4 targets, at least 200ms)")
	f.Int64Var(&x.callsPerSecond, "calls-per-second", 0,
		"budget of lease calls for all processes (default: at most 3,125)")
	f.BoolVar(&x.strict, "strict", false, "clock reading for every decision (Policy.StrictExpiry)")
	f.StringVar(&x.key, "key", live.NewKey(), "key of the limiter (default: a random one)")
	f.Lookup("key").DefValue = "" // the help says it in words
	f.DurationVar(&x.killAfter, "kill-after", 0, "time at which one process gets a kill -9 (0: never)")
	f.DurationVar(&x.stopAfter, "stop-after", 0, "time at which one process is stopped for twice the TTL "+
		"(0: never)")
	f.StringVar(&x.out, "out", "table", "table or json")
	return c
}

// options returns the run that the flags describe, and what is wrong with them by themselves.
func (x *fleetFlags) options(changed func(flag string) bool) (o live.Options, err error) {
	var all faults
	bad := violation.List{Kind: live.ErrUsage}
	limit, err := lease.ParseLimit(x.limit)
	bad.Adopt(err, violation.Under("--limit"))
	kind := ""
	for _, shape := range shapes {
		if shape.name == x.shape {
			kind = shape.kind
		}
	}
	all.addf(kind == "", "--shape is %q, must be one of steady, bursts, adversary", x.shape)
	all.addf(x.shape == "adversary" && changed("offered"), "--offered cannot be combined with --shape %s, which asks "+
		"for all it can", x.shape)
	all.addf(x.offered == 0, "--offered is 0, must be above 0")
	for flag, zero := range map[string]bool{
		"target": x.target == 0, "ttl": x.ttl == 0, "calls-per-second": x.callsPerSecond == 0,
	} {
		all.addf(zero && changed(flag), "--%s is 0, must be above 0; leave it out for its default", flag)
	}
	all.addf(x.out != "table" && x.out != "json", "--out is %q, must be table or json", x.out)
	all.addf(x.processes < 1, "--processes is %d, must be 1 to 256", x.processes)
	all.addf(x.duration <= 0, "--duration is %v, must be 100ms to 1h", x.duration)
	if limit.Windowed() && !changed("duration") {
		x.duration = max(x.duration, 3*min(limit.Per, time.Minute))
	}
	for flag, at := range map[string]time.Duration{"kill-after": x.killAfter, "stop-after": x.stopAfter} {
		all.addf(at < 0 || at > 0 && at >= x.duration, "--%s is %v, must be 0 (never) or less than --duration (%v)",
			flag, at, x.duration)
	}
	if err := errors.Join(append(all, bad.Err())...); err != nil {
		return o, err
	}
	if kind == sim.Constant && limit.Windowed() {
		kind = sim.Poisson // as of many users
	}
	o = live.Options{Redis: x.redis, Key: x.key, Load: x.shape, Backlog: 50 * time.Millisecond, Scenario: sim.Scenario{
		Duration: x.duration, Limits: []lease.Limit{limit},
		Policy: lease.Policy{Target: x.target, TTL: x.ttl, Overcommit: x.overcommit, StrictExpiry: x.strict,
			CallsPerSecond: x.callsPerSecond, Fallback: lease.FallbackDeny},
		Groups: []sim.Group{{Count: x.processes}}, Workload: sim.Workload{Kind: kind, Load: x.offered},
	}}
	if kind == sim.Adversary {
		o.Scenario.Workload.Load = 0 // it asks for all it can
	}
	if g := &o.Scenario.Groups[0]; x.killAfter > 0 {
		g.Scale = []sim.Step{{At: x.killAfter, Count: x.processes - 1, Kill: true}}
	}
	if p := o.Scenario.Policy; x.stopAfter > 0 {
		ttl := p.ConfigFor(o.Scenario.Limits, 0, 0).TTL
		o.Scenario.Groups[0].Pauses = sim.Stops{At: x.stopAfter, For: sim.Constantly(2 * ttl)}
	}
	bad.Adopt(o.Validate(), func(path string) string { return cmp.Or(liveFlags[path], path) })
	return o, bad.Err()
}

func (x *fleetFlags) run(c *cobra.Command) error {
	o, err := x.options(c.Flags().Changed)
	if err != nil {
		return err
	}
	progress, clear := statusLine(c.ErrOrStderr())
	report, err := live.Run(c.Context(), o, progress)
	clear()
	interrupted := c.Context().Err() != nil
	switch {
	case interrupted && report.Offered == 0:
		return fmt.Errorf("leasesim: %w (%w)", sim.ErrInterrupted, err)
	case !interrupted && err != nil:
		return err
	}
	if interrupted {
		lasted := time.Duration(report.DurationMs) * time.Millisecond
		err = fmt.Errorf("leasesim: the report covers the first %v: %w",
			lasted.Round(100*time.Millisecond), sim.ErrInterrupted)
	}
	return showFleet(c, &report, x.out, err)
}

// showFleet writes the report of a real fleet. The command ends with early, unless the bound was exceeded.
func showFleet(c *cobra.Command, r *live.Report, out string, early error) error {
	write := r.WriteTable
	if out == view.FormatJSON {
		write = r.WriteJSON
	}
	if err := write(c.OutOrStdout()); err != nil {
		return fmt.Errorf("leasesim: %w", err)
	}
	if excess := r.BoundExceededBy; excess > 0 {
		return fmt.Errorf("%w by %d", errExceeded, excess)
	}
	return early
}

// liveFile is the scenario of compare --live without -f: what live does without flags.
const liveFile = "example:real-processes"

// sideBySide is the output of compare --live. Its JSON keys are part of the command's interface.
type sideBySide struct {
	Agrees    bool        `json:"agrees"`
	Rows      []live.Row  `json:"rows"`
	Fleet     string      `json:"fleet"`
	Redis     string      `json:"redis"`
	Real      live.Report `json:"real"`
	Simulated sim.Report  `json:"simulated"`
}

// compareLive runs a scenario with real processes and in the simulator.
func (f *shared) compareLive(redis string) error {
	if !f.cmd.Flags().Changed("file") {
		f.file = liveFile
	}
	s, err := f.load(withoutRivals)
	if err != nil {
		return err
	}
	o, notes, err := live.FromScenario(s)
	if err != nil {
		return err
	}
	for _, note := range notes {
		fmt.Fprintf(f.cmd.ErrOrStderr(), "leasesim: %s; both runs have the latter\n", note)
	}
	var b sideBySide
	status, clear := statusLine(f.cmd.ErrOrStderr())
	o.Redis = redis
	b.Real, err = live.Run(f.cmd.Context(), o, status)
	clear()
	if f.cmd.Context().Err() != nil {
		return f.alone(&b.Real)
	}
	if err != nil {
		return err
	}
	if s, err = sim.Record(o.Scenario); err != nil { // real processes and simulated ones are asked the same
		return err
	}
	if b.Simulated, err = f.simulate(live.Simulated(s, b.Real)); errors.Is(err, sim.ErrInterrupted) {
		return f.alone(&b.Real)
	} else if err != nil {
		return fmt.Errorf("leasesim: no comparison: %w", err)
	}
	b.Rows = live.Compare(o, b.Simulated, b.Real)
	var disagree []string
	for _, row := range b.Rows {
		if !row.Agrees {
			disagree = append(disagree, row.Name)
		}
	}
	b.Agrees = len(disagree) == 0
	b.Redis = b.Real.Redis
	full := o.Scenario.Defaults()
	b.Fleet = fmt.Sprintf("%s at %s; %s, %s for %s, %v", view.Count(len(b.Real.Processes), "process"), full.Limits[0],
		cmp.Or(full.Workload.File, o.Load), view.Count(len(s.Workload.Trace.Requests), "request"),
		view.Count(full.Keys.Count, "key"), full.Duration)
	if !b.Agrees {
		err = fmt.Errorf("%w: %s", errDisagree, strings.Join(disagree, ", "))
	}
	document := b.document(f.text, f.program.commandLine(b.Simulated.Seed))
	return f.finish(document, nil, errors.Join(err, f.judge(b.Simulated)))
}

// alone shows the real fleet alone, as live does, after an interrupt: no comparison is with a half.
func (f *shared) alone(r *live.Report) error {
	early := fmt.Errorf("leasesim: no comparison, only the real fleet: %w", sim.ErrInterrupted)
	if r.Offered == 0 {
		return early
	}
	return showFleet(f.cmd, r, f.out, early)
}

// rowWords are the names of rows for people, where they differ.
var rowWords = map[string]string{
	live.AdmittedPart: "of burst + rate × duration",
	live.Calls:        "lease calls/s of a process",
	live.Jain:         "Jain's index",
	live.Exceeded:     "bound exceeded by",
}

// document shows the two side by side.
func (b *sideBySide) document(scenario, command string) view.Document {
	t := view.Table{Columns: strings.Split("figure,>simulated,>real,>agrees from,>to,tolerance,agrees", ",")}
	verdict := view.Verdict{Mood: view.Good, Text: "The simulation and the real fleet agree."}
	if !b.Agrees {
		verdict = view.Verdict{Mood: view.Bad, Text: "The simulation and the real fleet DISAGREE."}
	}
	tooFew := false
	for _, r := range b.Rows {
		name, number, agrees := cmp.Or(rowWords[r.Name], r.Name), view.Number, "yes"
		if r.Name == live.AdmittedPart {
			number = view.Percent
		}
		if !r.Agrees {
			agrees = "NO"
		}
		tooFew = tooFew || r.Name == live.Offered && r.Real < r.Low
		t.Add(name, number(r.Simulated), number(r.Real), number(r.Low), number(r.High), r.Tolerance, agrees)
	}
	if b.Real.Overloaded || tooFew {
		verdict.Text += fmt.Sprintf(" This machine is overloaded: the real processes got too little CPU "+
			"time, and one "+
			"request in a hundred was made %s late or later. Run it again on an idle machine, or "+
			"with less load.", view.Shortly(time.Duration(b.Real.LagNs.P99)))
	}
	denied := 1 - float64(b.Real.Admitted)/float64(max(b.Real.Offered, 1))
	kept := view.Verdict{Mood: view.Good,
		Text: "The bound holds for every key in every window of the real " +
			"processes. They denied " + view.Percent(denied) + " of the requests."}
	if excess := b.Real.BoundExceededBy; excess > 0 {
		kept = view.Verdict{Mood: view.Bad,
			Text: fmt.Sprintf("The bound is exceeded: in one window the real processes "+
				"admitted %d more.", excess)}
	}
	service := "an unknown part of it in the server"
	if ns := b.Real.ServiceTimeNs; ns > 0 {
		service = view.Shortly(time.Duration(ns)) + " of it in the server"
	}
	trip := b.Real.RoundTripNs
	return view.Document{
		Title: "Simulation and reality",
		Subtitle: fmt.Sprintf("%s\nRedis: %s; a round trip took %s, one in a hundred %s or more, %s",
			b.Fleet, b.Redis, view.Shortly(time.Duration(trip.P50)), view.Shortly(time.Duration(trip.P99)), service),
		Facts: []view.Fact{
			{Name: "hash", Value: b.Simulated.ScenarioHash}, {Name: "seed", Value: fmt.Sprint(b.Simulated.Seed)},
		},
		Verdicts: []view.Verdict{kept, verdict},
		Sections: []view.Section{{Title: "Figures", Table: &t}},
		Scenario: scenario,
		Command:  command,
		Machine:  b.Simulated.Machine,
		Data:     b,
	}
}

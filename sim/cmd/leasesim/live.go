package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/cmd/leasesim/internal/live"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

func liveCommand() *cobra.Command {
	var o live.Options
	var out string
	c := command("live", func(c *cobra.Command) error {
		if o.Shape == live.ShapeAdversary && c.Flags().Changed("offered") {
			return fmt.Errorf("%w: --offered cannot be combined with --shape %s, which asks "+
				"for all it can", live.ErrUsage, o.Shape)
		}
		for flag, zero := range map[string]bool{
			"target": o.Target == 0, "ttl": o.TTL == 0, "calls-per-second": o.CallsPerSecond == 0,
		} {
			if zero && c.Flags().Changed(flag) {
				return fmt.Errorf("%w: --%s is 0, must be above 0; leave it out for its default", live.ErrUsage, flag)
			}
		}
		if !c.Flags().Changed("duration") {
			o.Duration = o.ThreeWindows()
		}
		if out != "table" && out != "json" {
			return fmt.Errorf("%w: --out is %q, must be table or json", live.ErrUsage, out)
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
		return showFleet(c, &report, out, err)
	})
	f := c.Flags()
	f.StringVar(&o.Redis, "redis", "", "host:port or URL of a real Redis (default: an embedded one)")
	f.IntVar(&o.Processes, "processes", 4, "number of processes")
	f.StringVar(&o.Limit, "limit", "20000/s burst 5000", "limit of any kind, as in 500/m burst 50 or "+
		"1000 in 10s")
	f.Int64Var(&o.Overcommit, "overcommit", 0, "tokens by which level and leases together may exceed the "+
		"burst")
	f.Float64Var(&o.Offered, "offered", live.OfferedDefault, "requests offered, as a multiple of the limit")
	f.StringVar(&o.Shape, "shape", live.ShapeSteady, "shape of the load: "+strings.Join(live.Shapes, ", ")+
		" (an adversary spends its lease just before every report, and asks for all it can)")
	f.DurationVar(&o.Within, "within", 0, "length of a burst (0: as fast as two workers can)")
	f.DurationVar(&o.Duration, "duration", live.DurationDefault,
		"length of the load (for a window of up to 1m: at least three windows)")
	f.DurationVar(&o.Target, "target", 0, "length of one lease (default: 100ms, less for a small burst)")
	f.DurationVar(&o.TTL, "ttl", 0, "validity of a lease without renewal (default: 4 targets, at least 200ms)")
	f.Int64Var(&o.CallsPerSecond, "calls-per-second", 0,
		"budget of lease calls for all processes (default: at most 3,125)")
	f.BoolVar(&o.Strict, "strict", false, "clock reading for every decision (Policy.StrictExpiry)")
	f.StringVar(&o.Key, "key", live.NewKey(), "key of the limiter (default: a random one)")
	f.Lookup("key").DefValue = "" // the help says it in words
	f.DurationVar(&o.KillAfter, "kill-after", 0, "time at which one process gets a kill -9 (0: never)")
	f.DurationVar(&o.StopAfter, "stop-after", 0, "time at which one process is stopped for twice the TTL "+
		"(0: never)")
	f.StringVar(&out, "out", "table", "table or json")
	f.Int64Var(&o.Forge, "forge", 0, "invent this many admissions at one instant, to see the audit find them")
	_ = f.MarkHidden("forge")
	return c
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
	load := cmp.Or(s.Workload.File, s.Defaults().Workload.Kind)
	if s, err = live.Played(s); err != nil {
		return err
	}
	o, err := live.FromScenario(s)
	if err != nil {
		return err
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
	if o.Shape == live.ShapeReplay {
		load += fmt.Sprintf(", %s for %s", view.Count(len(o.Trace), "request"), view.Count(o.Keys, "key"))
	} else {
		load = fmt.Sprintf("load %s at %s × the limit", o.Shape, view.Number(o.Offered))
	}
	b.Fleet = fmt.Sprintf("%s at %s; %s, %v", view.Count(o.Processes, "process"), o.Limit, load, o.Duration)
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
	head := "figure,simulated,simulated_least,simulated_most,real,low,high,tolerance,agrees"
	rows := [][]string{strings.Split(head, ",")}
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
		row := []string{r.Name}
		for _, x := range []float64{r.Simulated, r.Least, r.Most, r.Real, r.Low, r.High} {
			row = append(row, view.Raw(x))
		}
		rows = append(rows, append(row, r.Tolerance, fmt.Sprint(r.Agrees)))
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
		Rows:     rows,
	}
}

package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/cmd/leasesim/internal/live"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

// liveFile is the default of -f for live and compare --live.
const liveFile = "example:real-processes"

func liveCommand(p *program) *cobra.Command {
	var redis string
	f := p.asking("live", liveFile, view.FormatTable, view.FormatJSON)
	f.cmd.RunE = func(c *cobra.Command, _ []string) error {
		r, _, err := f.fleet(redis, false)
		interrupted := c.Context().Err() != nil
		switch {
		case interrupted && r.Offered == 0:
			return fmt.Errorf("leasesim: %w (%w)", sim.ErrInterrupted, err)
		case interrupted:
			lasted := time.Duration(r.DurationMs) * time.Millisecond
			err = fmt.Errorf("leasesim: the report covers the first %v: %w",
				lasted.Round(100*time.Millisecond), sim.ErrInterrupted)
		case err != nil:
			return err
		}
		return f.showFleet(&r, err)
	}
	f.cmd.Flags().StringVar(&redis, "redis", "", "host:port or URL of a real Redis (default: an embedded one)")
	return f.cmd
}

// fleet runs the scenario of the flags with real processes. compared says that a simulation follows.
func (f *shared) fleet(redis string, compared bool) (r live.Report, o live.Options, err error) {
	s, err := f.load(withoutRivals)
	if err != nil {
		return r, o, err
	}
	o, notes, err := live.FromScenario(s, compared)
	if err != nil {
		return r, o, err
	}
	for _, note := range notes {
		if compared {
			note += "; both runs have the latter"
		}
		fmt.Fprintf(f.cmd.ErrOrStderr(), "leasesim: %s\n", note)
	}
	o.Redis = redis
	r, err = live.Run(f.cmd.Context(), o)
	return r, o, err
}

// showFleet writes the report of a real fleet. showFleet returns an error for an exceeded bound, else early.
func (f *shared) showFleet(r *live.Report, early error) error {
	if excess := r.BoundExceededBy; excess > 0 {
		early = fmt.Errorf("%w by %d", errExceeded, excess)
	}
	return f.finish(r.Document(), nil, early)
}

// sideBySide is the output of compare --live, whose JSON keys are part of the interface.
type sideBySide struct {
	Agrees    bool        `json:"agrees"`
	Busy      string      `json:"busy,omitempty"` // the reason why the machine was too busy for a comparison
	Rows      []live.Row  `json:"rows"`
	Fleet     string      `json:"fleet"`
	Real      live.Report `json:"real"`
	Simulated sim.Report  `json:"simulated"`
}

// compareLive runs the scenario of the flags with real processes and in the simulator.
func (f *shared) compareLive(redis string) error {
	if !f.cmd.Flags().Changed("file") {
		f.file = liveFile
	}
	var b sideBySide
	var o live.Options
	var err error
	b.Real, o, err = f.fleet(redis, true)
	if f.cmd.Context().Err() != nil {
		return fmt.Errorf("leasesim: no comparison: %w", sim.ErrInterrupted)
	} else if err != nil {
		return err
	}
	s, err := sim.Record(o.Scenario) // real and simulated processes get the same requests
	if err != nil {
		return err
	}
	if b.Simulated, err = f.simulate(live.Simulated(s, b.Real)); err != nil {
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
	full := o.Scenario.Defaults()
	b.Fleet = fmt.Sprintf("%s at %s; %s, %s for %s, %v", view.Count(len(b.Real.Processes), "process"), full.Limits[0],
		cmp.Or(full.Workload.File, full.Workload.Kind), view.Count(len(s.Workload.Trace.Requests), "request"),
		view.Count(full.Keys.Count, "key"), full.Duration)
	b.Busy = busy(b.Real, full.CallTimeout, b.Rows[0].Real < b.Rows[0].Low)
	switch figures := strings.Join(disagree, ", "); {
	case b.Agrees:
	case b.Busy != "" && !slices.Contains(disagree, live.Exceeded):
		err = fmt.Errorf("%w: %s", errBusy, figures)
	default:
		err = fmt.Errorf("%w: %s", errDisagree, figures)
	}
	document := b.document(f.text, f.program.commandLine(b.Simulated.Seed))
	return f.finish(document, nil, errors.Join(err, f.judge(b.Simulated)))
}

// busy returns the reason why the machine was too busy for a comparison, or "". tooFew says that the
// processes made fewer requests than the simulation.
func busy(r live.Report, callTimeout time.Duration, tooFew bool) string {
	switch trip, lag := time.Duration(r.RoundTripNs.P99), time.Duration(r.LagNs.P99); {
	case trip > callTimeout:
		return fmt.Sprintf("one round trip in a hundred took %s or longer, more than call_timeout", view.Shortly(trip))
	case r.Overloaded || tooFew:
		return fmt.Sprintf("one request in a hundred was made %s late or later", view.Shortly(lag))
	}
	return ""
}

func (b *sideBySide) document(scenario, command string) view.Document {
	t := view.Table{Columns: strings.Split("figure,>simulated,>real,>agrees from,>to,agrees", ",")}
	verdict := view.Verdict{Mood: view.Good, Text: "The simulation and the real fleet agree."}
	if !b.Agrees {
		verdict = view.Verdict{Mood: view.Bad, Text: "The simulation and the real fleet DISAGREE."}
	}
	for _, r := range b.Rows {
		number, agrees := view.Number[float64], "yes"
		if !r.Agrees {
			agrees = "NO"
		}
		t.Add(r.Name, number(r.Simulated), number(r.Real), number(r.Low), number(r.High), agrees)
	}
	if b.Busy != "" {
		verdict.Text += " This machine is overloaded: " + b.Busy + ". Run it again on an idle " +
			"machine, or with less load."
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
	subtitle := fmt.Sprintf("%s\nRedis: %s; a round trip took %s, one in a hundred %s or more", b.Fleet, b.Real.Redis,
		view.Shortly(time.Duration(b.Real.RoundTripNs.P50)), view.Shortly(time.Duration(b.Real.RoundTripNs.P99)))
	if ns := b.Real.ServiceTimeNs; ns > 0 {
		subtitle += "; Redis worked " + view.Shortly(time.Duration(ns)) + " on a lease call"
	}
	return view.Document{
		Title:    "Simulation and reality",
		Subtitle: subtitle,
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

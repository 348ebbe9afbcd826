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

// liveFile is the scenario of compare --live without -f: what live does without flags.
const liveFile = "example:real-processes"

// realFleet holds the flags of compare --live.
type realFleet struct {
	live  bool
	redis string
}

func (r *realFleet) add(c *cobra.Command) {
	c.Flags().BoolVar(&r.live, "live", false, "set the simulation beside real processes that share a Redis, instead of other algorithms")
	c.Flags().StringVar(&r.redis, "redis", "", "with --live: host:port or URL of a real Redis; without it an embedded one is started")
}

// apply says which flags do not go together, and gives --live a scenario where there is none.
func (r *realFleet) apply(f *shared) error {
	switch {
	case !r.live && f.changed("redis"):
		return fmt.Errorf("%w: --redis is for compare --live", errUsage)
	case r.live && f.changed("rivals"):
		return fmt.Errorf("%w: --rivals are not run by --live", errUsage)
	case r.live && !f.changed("file"):
		f.file = liveFile
	}
	return nil
}

// errDisagree: compare --live worked and found a difference.
var errDisagree = errors.New("leasesim: the simulation and the real fleet disagree")

// liveHelp says what --live does, and how near is near enough.
func liveHelp() string {
	return `--live takes the place of the other algorithms with reality: the scenario is run by as many processes, as leasesim live
does it, on the Redis at --redis or an embedded one, and by the simulator, with the round trips and the service time
of that run. ` + live.ToleranceHelp() + `
Scenarios that live cannot run are refused, and what is wrong with them is named. Without -f it is ` + liveFile + `.`
}

// sideBySide is what compare --live shows. Its JSON keys are part of the command's interface.
type sideBySide struct {
	Agrees    bool        `json:"agrees"`
	Rows      []live.Row  `json:"rows"`
	Fleet     string      `json:"fleet"`
	Redis     string      `json:"redis"`
	Real      live.Report `json:"real"`
	Simulated sim.Report  `json:"simulated"`
}

// compareLive runs a scenario with real processes and in the simulator.
func (p *program) compareLive(c *cobra.Command, f *shared, fleet realFleet) error {
	var o live.Options
	s, err := f.load(withoutRivals, func(s *sim.Scenario) (err error) {
		if err := s.Validate(); err != nil {
			return err
		}
		o, err = live.FromScenario(*s)
		return err
	})
	if err != nil {
		return err
	}
	var b sideBySide
	status, clear := statusLine(c.ErrOrStderr())
	o.Redis = fleet.redis
	b.Real, err = live.Run(c.Context(), o, status)
	clear()
	if c.Context().Err() != nil {
		return fmt.Errorf("leasesim: nothing is compared: %w", sim.ErrInterrupted)
	}
	if err != nil {
		return err
	}
	if b.Simulated, err = f.simulate(p, c, live.Simulated(s, b.Real)); err != nil {
		return fmt.Errorf("leasesim: nothing is compared: %w", err)
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
	b.Fleet = fmt.Sprintf("%d processes share %d/s burst %d; load %s at %s × the limit, %v",
		o.Processes, o.Rate, o.Burst, o.Shape, view.Number(o.Offered), o.Duration)
	if err := f.show(c, b.document(f.text, p.commandLine(b.Simulated.Seed))); err != nil {
		return err
	}
	if !b.Agrees {
		err = fmt.Errorf("%w: %s", errDisagree, strings.Join(disagree, ", "))
	}
	return errors.Join(err, f.judge(b.Simulated))
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
	t := view.Table{Columns: []string{"figure", ">simulated", ">real", ">agrees from", ">to", "tolerance", "agrees"}}
	rows := [][]string{{"figure", "simulated", "simulated_least", "simulated_most", "real", "low", "high", "tolerance", "agrees"}}
	verdict := view.Verdict{Mood: view.Good, Text: "The simulation and the real fleet agree."}
	if !b.Agrees {
		verdict = view.Verdict{Mood: view.Bad, Text: "The simulation and the real fleet DISAGREE."}
	}
	for _, r := range b.Rows {
		name, number, agrees := cmp.Or(rowWords[r.Name], r.Name), view.Number, "yes"
		if r.Name == live.AdmittedPart {
			number = view.Percent
		}
		if !r.Agrees {
			agrees = "NO"
		}
		if r.Name == live.Offered && r.Real < r.Low {
			verdict.Text += " The real processes asked less than they should, as they did not get the processor in time: " +
				"run it again on an idle machine, or with less load."
		}
		t.Add(name, number(r.Simulated), number(r.Real), number(r.Low), number(r.High), r.Tolerance, agrees)
		row := []string{r.Name}
		for _, x := range []float64{r.Simulated, r.Least, r.Most, r.Real, r.Low, r.High} {
			row = append(row, view.Raw(x))
		}
		rows = append(rows, append(row, r.Tolerance, fmt.Sprint(r.Agrees)))
	}
	service := "the server does not say how much of it is its own"
	if ns := b.Real.ServiceTimeNs; ns > 0 {
		service = fmt.Sprintf("%v of it in the server", time.Duration(ns))
	}
	trip := b.Real.RoundTripNs
	return view.Document{
		Title: "Simulation and reality",
		Subtitle: fmt.Sprintf("%s\nRedis: %s; a round trip took %v, one in a hundred %v or more, %s", b.Fleet, b.Redis,
			time.Duration(trip.P50), time.Duration(trip.P99), service),
		Facts:    []view.Fact{{Name: "hash", Value: b.Simulated.ScenarioHash}, {Name: "seed", Value: fmt.Sprint(b.Simulated.Seed)}},
		Verdicts: []view.Verdict{verdict},
		Sections: []view.Section{{Title: "Figures", Table: &t}},
		Scenario: scenario,
		Command:  command,
		Machine:  b.Simulated.Machine,
		Data:     b,
		Rows:     rows,
	}
}

package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

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

// validate checks the flags that do not go together, and chooses the scenario.
func (r *realFleet) validate(f *shared) error {
	switch {
	case !r.live && f.changed("redis"):
		return fmt.Errorf("%w: --redis is for compare --live", errUsage)
	case r.live && f.changed("rivals"):
		return fmt.Errorf("%w: --rivals are not run by --live", errUsage)
	case r.live && f.out == view.FormatHTML:
		return fmt.Errorf("%w: --out is html, must be table, json or csv with --live", errUsage)
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
	RealBy    command     `json:"real_by"`
	SimBy     command     `json:"simulated_by"`
	Real      live.Report `json:"real"`
	Simulated sim.Report  `json:"simulated"`
}

// compareLive runs a scenario with real processes and in the simulator.
func (p *program) compareLive(c *cobra.Command, f *shared, fleet realFleet) error {
	var o live.Options
	s, err := f.load(func(s *sim.Scenario) (err error) {
		if err := s.Validate(); err != nil {
			return err
		}
		s.Rivals = nil
		o, err = live.FromScenario(*s)
		return err
	})
	if err != nil {
		return err
	}
	var shown sideBySide
	progress, clear := progressLine(c.ErrOrStderr())
	o.Redis = fleet.redis
	shown.Real, err = live.Run(c.Context(), o, progress)
	clear()
	if c.Context().Err() != nil {
		return fmt.Errorf("leasesim: nothing is compared: %w", sim.ErrInterrupted)
	}
	if err != nil {
		return err
	}
	s = live.Simulated(s, shown.Real)

	runner, stop := f.runner(c, c.Name())
	shown.Simulated, err = p.simulate(runner, c.Context(), s)
	stop()
	if err != nil {
		return fmt.Errorf("leasesim: nothing is compared: %w", err)
	}
	shown.Rows = live.Compare(o, shown.Simulated, shown.Real)
	var disagree []string
	for _, row := range shown.Rows {
		if !row.Agrees {
			disagree = append(disagree, row.Name)
		}
	}
	shown.Agrees = len(disagree) == 0
	shown.Redis, shown.Fleet = shown.Real.Redis, fleetText(o)
	shown.RealBy = realBy(o)
	if shown.SimBy, err = simulatedBy(f, s); err != nil {
		return err
	}
	if err := f.write(c, func(w io.Writer) error { return shown.write(w, f.out) }); err != nil {
		return err
	}
	if !shown.Agrees {
		err = fmt.Errorf("%w: %s", errDisagree, strings.Join(disagree, ", "))
	}
	return errors.Join(err, f.judge(shown.Simulated))
}

// fleetText says in a line what is run.
func fleetText(o live.Options) string {
	return fmt.Sprintf("%d processes share %d/s burst %d; load %s at %s × the limit, %v",
		o.Processes, o.Rate, o.Burst, o.Shape, view.Number(o.Offered), o.Duration)
}

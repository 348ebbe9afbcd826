package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/rival"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

func (p *program) runCommand() *cobra.Command {
	return p.simulating("run", func(f *shared) error { return f.report(view.Run) }).Command
}

// report simulates the scenario that the flags describe and shows what came of it.
func (f *shared) report(show func(view.Result) view.Document, adjust ...func(*sim.Scenario) error) error {
	s, err := f.load(adjust...)
	if err != nil {
		return err
	}
	r, err := f.simulate(s)
	if errors.Is(err, sim.ErrInterrupted) && r.Reps > 0 {
		err = fmt.Errorf("the report covers the finished replications: %w", err)
	} else if err != nil {
		return err
	}
	result := view.Result{
		Scenario: s, Text: f.text, Report: r, Command: f.program.commandLine(r.Seed),
		Thresholds: f.rules, Describe: rival.Describe,
	}
	return f.finish(show(result), err, f.judge(r))
}

// simulate runs s, with a progress bar on a terminal.
func (f *shared) simulate(s sim.Scenario) (sim.Report, error) {
	runner := sim.Runner{Parallel: f.parallel}
	show, clear := phases(f.ErrOrStderr())
	defer clear()
	if show != nil {
		runner.Progress = func(done float64) { show(f.Name(), int(1000*done), 1000) }
	}
	return f.program.simulate(runner, f.Context(), s)
}

func (p *program) compareCommand() *cobra.Command {
	var rivals []string
	var real bool
	var redis string
	f := p.simulating("compare", func(f *shared) error {
		given := f.Flags().Changed
		switch {
		case real && given("rivals"):
			return fmt.Errorf("%w: --rivals cannot be combined with --live", errUsage)
		case real && given("calibrate"):
			return fmt.Errorf("%w: --calibrate cannot be combined with --live, which measures the run "+
				"itself", errUsage)
		case real:
			return f.compareLive(redis)
		case given("redis"):
			return fmt.Errorf("%w: --redis needs --live", errUsage)
		}
		return f.report(view.Comparison, func(s *sim.Scenario) error {
			if given("rivals") {
				s.Rivals = nil
				return f.addRivals(s, rivals, true)
			}
			return f.defaultRivals(s)
		})
	})
	flags := f.Flags()
	flags.StringSliceVar(&rivals, "rivals", nil,
		"algorithms, separated by commas (default: the scenario's, or all that can hold its limits)")
	flags.BoolVar(&real, "live", false,
		"comparison with real processes instead of other algorithms")
	flags.StringVar(&redis, "redis", "",
		"with --live: host:port or URL of a real Redis (default: an embedded one)")
	return f.Command
}

// defaultRivals leaves s those of its algorithms that can take part, or gives it all that can.
func (f *shared) defaultRivals(s *sim.Scenario) error {
	names := s.Rivals
	if s.Rivals = nil; len(names) == 0 {
		names = rival.Names()
	}
	return f.addRivals(s, names, false)
}

// addRivals adds the algorithms that can take part in s. That another cannot is an error where all
// are asked for, else it is said. One key is enough to see whether it can.
func (f *shared) addRivals(s *sim.Scenario, names []string, all bool) error {
	full := s.Defaults()
	fleet := rival.Fleet{Limits: full.Limits, Keys: 1}
	for _, g := range full.Groups {
		fleet.Processes += g.Count
	}
	fleet.Processes = max(fleet.Processes, 1)
	for _, name := range names {
		_, err := rival.New(name, fleet)
		switch {
		case all && slices.Contains(s.Rivals, name):
			return fmt.Errorf("%w: --rivals: %s is listed twice", errUsage, name)
		case err == nil, !all && !errors.Is(err, rival.ErrLimit): // Validate says what else is wrong
			s.Rivals = append(s.Rivals, name)
		case all:
			return fmt.Errorf("%w: --rivals: %w", errUsage, err)
		default:
			fmt.Fprintln(f.ErrOrStderr(), prefixed(fmt.Errorf("without %s: %w", name, err)))
		}
	}
	return nil
}

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

func runCommand(p *program) *cobra.Command {
	return p.simulating("run", func(f *shared) error { return f.report(view.Run) }).cmd
}

func compareCommand(p *program) *cobra.Command {
	var rivals []string
	var real bool
	var redis string
	f := p.simulating("compare", func(f *shared) error {
		given := f.cmd.Flags().Changed
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
				return addRivals(f, s, rivals, true)
			}
			return defaultRivals(f, s)
		})
	})
	flags := f.cmd.Flags()
	flags.StringSliceVar(&rivals, "rivals", nil,
		"algorithms, separated by commas (default: the scenario's, or all that can hold its limits)")
	flags.BoolVar(&real, "live", false,
		"comparison with real processes instead of other algorithms")
	flags.StringVar(&redis, "redis", "",
		"with --live: host:port or URL of a real Redis (default: an embedded one)")
	return f.cmd
}

// defaultRivals sets s.Rivals to the algorithms in s.Rivals, or all if empty, that can take part in s.
func defaultRivals(f *shared, s *sim.Scenario) error {
	names := s.Rivals
	if s.Rivals = nil; len(names) == 0 {
		names = rival.Names()
	}
	return addRivals(f, s, names, false)
}

// addRivals adds each named algorithm that can take part in s. addRivals returns an error for any other
// algorithm if all is set, and else prints a note. A fleet with one key shows whether an algorithm can take
// part.
func addRivals(f *shared, s *sim.Scenario, names []string, all bool) error {
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
		case err == nil, !all && !errors.Is(err, rival.ErrLimit): // Validate reports other faults
			s.Rivals = append(s.Rivals, name)
		case all:
			return fmt.Errorf("%w: --rivals: %w", errUsage, err)
		default:
			fmt.Fprintln(f.cmd.ErrOrStderr(), prefixed(fmt.Errorf("without %s: %w", name, err)))
		}
	}
	return nil
}

package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/rival"
	"github.com/yuzhi-go/yuzhi/sim/scenario/trace"
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
		case real:
			return f.compareLive(redis)
		case given("redis"):
			return fmt.Errorf("%w: --redis needs --live", errUsage)
		}
		return f.report(view.Comparison, func(s *sim.Scenario) error { return f.setRivals(s, rivals) })
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

// setRivals sets s.Rivals to the named algorithms. Without names, setRivals takes the algorithms of the
// scenario, or all, prints a note for each algorithm that cannot hold the limits of s, and leaves it out.
func (f *shared) setRivals(s *sim.Scenario, named []string) error {
	full := s.Defaults()
	fleet := rival.Fleet{Limits: full.Limits, Keys: 1}
	for _, g := range full.Groups {
		fleet.Processes += g.Count
	}
	fleet.Processes = max(fleet.Processes, 1)
	names := named
	if len(names) == 0 {
		names = s.Rivals
	}
	if len(names) == 0 {
		names = rival.Names()
	}
	s.Rivals = nil
	for _, name := range names {
		switch _, err := rival.New(name, fleet); {
		case !errors.Is(err, rival.ErrLimit): // Validate reports other faults
			s.Rivals = append(s.Rivals, name)
		case len(named) > 0:
			return fmt.Errorf("%w: --rivals: %w", errUsage, err)
		default:
			fmt.Fprintln(f.cmd.ErrOrStderr(), prefixed(fmt.Errorf("without %s: %w", name, err)))
		}
	}
	return nil
}

func replayCommand(p *program) *cobra.Command {
	var file string
	f := p.simulating("replay", func(f *shared) error {
		if file == "" {
			return fmt.Errorf("%w: replay needs a --trace", errUsage)
		}
		var t *sim.Trace
		f.first = func(s *sim.Scenario) error {
			var err error
			if t, err = trace.ReadFile(file); err != nil {
				return fmt.Errorf("%w: --trace: %w", errUsage, err)
			}
			w := s.Workload
			s.Workload = sim.Workload{
				Kind: sim.Replay, Verb: w.Verb, Deadline: w.Deadline, Actual: w.Actual, Hold: w.Hold,
				File: file, Trace: t,
			}
			fit(s, t, f.cmd.Flags().Changed("file"))
			return nil
		}
		return f.report(view.Run, func(s *sim.Scenario) error {
			if s.Workload.Trace != t || slices.ContainsFunc(s.Groups, ownLoad) {
				return fmt.Errorf("%w: --set of another load: the trace replaces it; only workload.verb, deadline, "+
					"actual and hold have an effect", errUsage)
			}
			return nil
		})
	})
	f.cmd.Flags().StringVar(&file, "trace", "", "file of recorded requests, CSV or an access log")
	return f.cmd
}

// fit sets the duration and the number of keys of s from the trace t, and in a scenario with one group the
// number of processes. Unless a file was given, fit drops the name and the description, and a warm-up that is
// too long.
func fit(s *sim.Scenario, t *sim.Trace, given bool) {
	warmup := s.Warmup
	s.Duration, s.Warmup, s.Keys.Count = 0, 0, t.Keys
	if given || warmup < s.Defaults().Duration/2 {
		s.Warmup = warmup
	}
	if !given {
		s.Name, s.Description = filepath.Base(s.Workload.File), ""
	}
	if len(s.Groups) <= 1 && t.Processes > 0 {
		s.Groups = slices.Clone(s.Defaults().Groups)
		s.Groups[0].Count, s.Groups[0].Share = t.Processes, 0
	}
	for i := range s.Groups {
		s.Groups[i].Workload = nil
	}
}

package main

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/scenario/trace"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

func replayCommand(p *program) *cobra.Command {
	var file, columns string
	var repeat bool
	f := p.simulating("replay", func(f *shared) error {
		if file == "" {
			return fmt.Errorf("%w: replay needs a --trace", errUsage)
		}
		var t *sim.Trace
		f.first = func(s *sim.Scenario) error {
			names, err := trace.ParseColumns(columns)
			if err != nil {
				return fmt.Errorf("%w: --columns: %w", errUsage, err)
			}
			if t, err = trace.ReadFile(file, names); err != nil {
				return fmt.Errorf("%w: --trace: %w", errUsage, err)
			}
			w := s.Workload
			s.Workload = sim.Workload{
				Kind: sim.Replay, Verb: w.Verb, Deadline: w.Deadline, Patience: w.Patience,
				Actual: w.Actual, Hold: w.Hold, Cancelled: w.Cancelled,
				File: file, Columns: columns, Trace: t, TraceSum: trace.Digest(t), Repeated: repeat,
			}
			fit(s, t, f.cmd.Flags().Changed("file"))
			return nil
		}
		return f.report(view.Run, func(s *sim.Scenario) error {
			if s.Workload.Trace != t || slices.ContainsFunc(s.Groups, ownLoad) {
				return fmt.Errorf("%w: --set of another load: the trace replaces it; only workload.verb, deadline, "+
					"patience, actual, hold and cancelled have an effect, and no workload of a group", errUsage)
			}
			if repeat && s.Duration == 0 {
				return fmt.Errorf("%w: --repeat needs --duration: without it the run ends with the trace", errUsage)
			}
			return nil
		})
	})
	f.cmd.Flags().StringVar(&file, "trace", "", "file of recorded requests, CSV or an access log")
	f.cmd.Flags().StringVar(&columns, "columns", "",
		"names of the fields in the file, as in time_ms=ts,key=user,process=host,tokens=cost")
	f.cmd.Flags().BoolVar(&repeat, "repeat", false, "repetition of the trace until the end of --duration")
	return f.cmd
}

// fit sets the duration of the run and the numbers of keys and processes from the trace t. If there are
// several groups, each keeps its number of processes. fit drops the name and description of the built-in
// scenario, and a warm-up that is too long.
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

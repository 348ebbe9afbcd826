package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/scenario/trace"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

func (p *program) replayCommand() *cobra.Command {
	var f shared
	var file string
	var repeat bool
	c := &cobra.Command{
		Use:   "replay --trace FILE",
		Short: "Simulate a fleet under a recorded load",
		Long: `replay is run with the requests of a CSV file in the place of the scenario's workload, and of its groups' own. The
first line names the columns, in any order:

  time_s    when the request came, from the start or as a timestamp; or time_ms, time_us, time_ns
  process   which process it came to; without it all come to the first
  key       which key it was for; without it all are for the first
  tokens    how many it took; without it 1

Processes and keys beyond those of the scenario are counted from the first again: set groups[0].count and keys.count to
what the trace has. The run lasts as long as the trace unless --duration says otherwise.

` + thresholdHelp() + `
Exit status: as of run.`,
		Example: `  leasesim replay -f fleet.yaml --trace monday.csv
  leasesim replay --trace monday.csv --set 'limits=[500/s burst 1000]' --set groups[0].count=40 --out html -o m.html
  leasesim replay --trace minute.csv --repeat --duration 1h`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if file == "" {
				return fmt.Errorf("%w: replay needs a --trace", errUsage)
			}
			s, err := f.load(func(s *sim.Scenario) error {
				t, err := trace.ReadFile(file)
				if err != nil {
					return fmt.Errorf("%w: --trace: %w", errUsage, err)
				}
				long := f.changed("duration") || slices.ContainsFunc(f.sets, func(set string) bool { return strings.HasPrefix(set, "duration=") })
				if n := len(t.Requests); n > 0 && !long {
					s.Duration = t.Requests[n-1].At.Truncate(time.Millisecond) + time.Millisecond
				}
				for i := range s.Groups {
					s.Groups[i].Workload = nil
				}
				s.Workload = sim.Workload{
					Kind: sim.Replay, Verb: s.Workload.Verb, Deadline: s.Workload.Deadline,
					File: file, Trace: t, TraceSum: trace.Digest(t), Repeated: repeat,
				}
				return nil
			})
			if err != nil {
				return err
			}
			return p.report(c, &f, s, view.Run)
		},
	}
	f.add(c)
	c.Flags().StringVar(&file, "trace", "", "the recorded requests: a CSV file")
	c.Flags().BoolVar(&repeat, "repeat", false, "start again at the end of the trace, until --duration is over")
	return c
}

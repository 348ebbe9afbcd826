package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/rival"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

func (p *program) compareCommand() *cobra.Command {
	var f shared
	var rivals []string
	var real realFleet
	c := &cobra.Command{
		Use:   "compare",
		Short: "Set leases beside other rate limiting algorithms, on the same requests",
		Long: `compare simulates a fleet as run does, and lets other algorithms decide the same requests at the same times. It prints
side by side what each admits, by how much it exceeds the bound in the worst of all windows, what it rejects that one
central bucket would have admitted, its round trips to Redis, and how fair it is. Where clocks are wrong (clock.offset)
it shows what algorithms cost that go by the clock of the process that calls.

The algorithms, some of which take an argument after a colon (in capitals):

` + rivalHelp() + `
` + view.Wrap(liveHelp()) + `
` + thresholdHelp() + `
Exit status: as of run, and 3 too where --live finds that simulation and reality disagree.`,
		Example: `  leasesim compare -f fleet.yaml
  leasesim compare --rivals central,fixed_window,local_batches:50
  leasesim compare --set clock.offset=10s --out html -o compare.html
  leasesim compare --live --redis localhost:6379 --set workload.load=0.5
  leasesim compare --threshold 'admitted_vs_central >= 99%' --threshold 'rival.central.jain > 0.9'`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := real.apply(&f); err != nil {
				return err
			}
			if real.live {
				return p.compareLive(c, &f, real)
			}
			s, err := f.load(func(s *sim.Scenario) error {
				given := c.Flags().Changed("rivals")
				switch {
				case given:
				case len(s.Rivals) > 0:
					rivals = s.Rivals
				default:
					rivals = rival.Names()
				}
				s.Rivals = nil
				for _, name := range rivals {
					err := canRun(name, *s)
					switch {
					case given && slices.Contains(s.Rivals, name):
						return fmt.Errorf("%w: --rivals: %s is there twice", errUsage, name)
					case err == nil:
						s.Rivals = append(s.Rivals, name)
					case given:
						return fmt.Errorf("%w: --rivals: %w", errUsage, err)
					default:
						fmt.Fprintf(c.ErrOrStderr(), "leasesim: without %s: %v\n", name, err)
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			return p.report(c, &f, s, view.Comparison)
		},
	}
	f.add(c)
	c.Flags().StringSliceVar(&rivals, "rivals", nil, "the algorithms, separated by commas (default: the scenario's, or all that can hold its limits)")
	real.add(c)
	return c
}

// canRun says why an algorithm cannot take part in a scenario; nil if it can. One key is enough to
// see that.
func canRun(name string, s sim.Scenario) error {
	s = s.Defaults()
	processes := 0
	for _, g := range s.Groups {
		processes += g.Count
	}
	_, err := rival.New(name, rival.Fleet{Processes: max(processes, 1), Limits: s.Limits, Keys: 1})
	return err
}

// rivalHelp has a line for each algorithm. One that goes by the caller's clock shares the line of
// the one that goes by the store's.
func rivalHelp() string {
	var b strings.Builder
	all := rival.Names()
	for _, name := range all {
		if base, ok := strings.CutSuffix(name, "_client"); ok && slices.Contains(all, base) {
			continue
		}
		star := " "
		if slices.Contains(all, name+"_client") {
			star = "*"
		}
		fmt.Fprintf(&b, "  %-18s%s %s\n", name, star, strings.TrimSuffix(rival.Describe(name), "; by the store's time"))
	}
	b.WriteString("\n  * by the store's clock; with _client after its name, by that of the process that calls, as many libraries do\n")
	return b.String()
}

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/rival"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

func (p *program) runCommand() *cobra.Command {
	var f shared
	c := &cobra.Command{
		Use:   "run",
		Short: "Simulate a fleet and show what its leases admit, reject and cost",
		Long: `run simulates the fleet of a scenario, several times with different random streams, and shows the mean of each
figure with its confidence interval, and the worst replication with its seed. Every admission is audited: in no
window may the fleet admit more than

    burst + overcommit + rate x window

A scenario may allow more, as with a fallback that serves while Redis is away. So run says whether the bound holds,
but fails only for a --threshold.

` + thresholdHelp() + `
Exit status: 0 it ran; 2 the command line or the scenario is wrong; 3 a --threshold does not hold; 130 interrupted,
after a report of the replications done so far; 1 anything else.`,
		Example: `  leasesim run
  leasesim run -f fleet.yaml --set policy.target=50ms --reps 20
  leasesim run -f example:flash-sale --out html -o report.html
  leasesim run -f fleet.yaml --threshold 'bound_exceeded_by.worst == 0' --threshold 'false_reject_ratio < 0.5%'`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := f.load()
			if err != nil {
				return err
			}
			return p.report(c, &f, s, view.Run)
		},
	}
	f.add(c)
	return c
}

// report simulates s and shows what came of it.
func (p *program) report(c *cobra.Command, f *shared, s sim.Scenario, show func(view.Result) view.Document) error {
	r, err := f.simulate(p, c, s)
	interrupted := errors.Is(err, sim.ErrInterrupted)
	if err != nil && !(interrupted && r.Reps > 0) {
		return err
	}
	result := view.Result{
		Scenario: s, Text: f.text, Report: r, Command: p.commandLine(r.Seed),
		Thresholds: f.rules, Describe: rival.Describe,
	}
	if err := f.show(c, show(result)); err != nil {
		return err
	}
	if interrupted {
		return fmt.Errorf("leasesim: the report is of the replications that had ended: %w", err)
	}
	return f.judge(r)
}

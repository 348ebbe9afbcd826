package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/search"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

// sweepFlags are what sweep has beside the shared flags.
type sweepFlags struct {
	vary       []string
	objectives string
}

func (p *program) sweepCommand() *cobra.Command {
	var f shared
	var o sweepFlags
	c := &cobra.Command{
		Use:   "sweep --vary PATH=VALUES",
		Short: "Simulate a fleet at every point of a grid of parameters",
		Long: `sweep simulates a scenario with every combination of the values of each --vary, all on the same seeds, so that two
points differ by their parameters and not by their luck. A --vary names a field as --set does, and its values:

  policy.target=10ms,50ms,1s        these
  policy.target=10ms..1s:log:8      8 from 10ms to 1s, each the same factor above the one before
  groups[0].count=50..250:lin:5     5 from 50 to 250 in equal steps; whole numbers stay whole
  network.loss=0%,0.1%..10%:log:3   both

Each point is compared with the first value of each --vary: the difference of every figure, paired by replication, with
its interval. The points that no other point beats in all objectives at once are marked: the Pareto front. A point at
which the scenario is not valid (a TTL below two targets) says so. The page of --out html has lines, for one or two
parameters.

A --threshold must hold at every point that ran.

Exit status: 0 it ran; 2 the command line or the scenario is wrong; 3 a --threshold does not hold; 130 interrupted,
after a report of the points that have finished; 1 anything else.`,
		Example: `  leasesim sweep --vary policy.target=5ms..50ms:log:6
  leasesim sweep -f fleet.yaml --vary policy.target=10ms..1s:log:8 --vary clock.offset=0,1s,10s --out html -o s.html
  leasesim sweep -f fleet.yaml --vary 'groups[0].count=50..400:log:4'
  leasesim sweep -f fleet.yaml --vary policy.overcommit=0,100,1000 --objectives admitted_vs_central:max,calls_per_s:min`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := f.load(withoutRivals)
			if err != nil {
				return err
			}
			axes, objectives, err := o.parse()
			if err != nil {
				return err
			}
			return p.sweep(c, &f, s, axes, objectives)
		},
	}
	f.add(c)
	flags := c.Flags()
	flags.StringArrayVar(&o.vary, "vary", nil, "a field and its values, as in policy.target=10ms..1s:log:8; repeatable")
	flags.StringVar(&o.objectives, "objectives", "", "what points are good for, as in admitted_vs_central:max,calls_per_s:min (default false_reject_ratio:min,calls_per_s:min)")
	return c
}

// parse reads what the flags ask of a sweep.
func (o *sweepFlags) parse() (axes []search.Axis, objectives []search.Objective, err error) {
	for _, text := range o.vary {
		a, err := search.ParseAxis(text)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: --vary: %w", errUsage, err)
		}
		if slices.Contains([]string{"seed", "reps", "parallel"}, a.Path) {
			return nil, nil, fmt.Errorf("%w: --vary %s: all points have the same seeds and replications; use --%s", errUsage, a.Path, a.Path)
		}
		axes = append(axes, a)
	}
	if o.objectives != "" {
		if objectives, err = search.ParseObjectives(o.objectives); err != nil {
			return nil, nil, fmt.Errorf("%w: --objectives: %w", errUsage, err)
		}
	}
	return axes, objectives, nil
}

// sweep runs the grid and shows it.
func (p *program) sweep(c *cobra.Command, f *shared, s sim.Scenario, axes []search.Axis, objectives []search.Objective) error {
	show, clear := phases(c.ErrOrStderr())
	lab := search.Lab{Run: p.single(0), Parallel: f.parallel, Progress: counted(show)}
	r, err := lab.Sweep(c.Context(), s, axes, objectives)
	clear()
	interrupted := errors.Is(err, sim.ErrInterrupted)
	switch {
	case errors.Is(err, search.ErrAxis), errors.Is(err, search.ErrGrid):
		return fmt.Errorf("%w: --vary: %w", errUsage, err)
	case err != nil && !(interrupted && r.Finished > 0):
		return err
	}
	if err := f.show(c, view.Sweep(r, f.text, p.commandLine(r.Seed))); err != nil {
		return err
	}
	if interrupted {
		return fmt.Errorf("leasesim: %w", err)
	}
	if r.Invalid == len(r.Points) {
		return fmt.Errorf("%w: no point is a valid scenario: at %s: %s", errUsage, r.Label(&r.Points[0]), r.Points[0].Invalid)
	}
	var errs []error
	for i := range r.Points {
		if point := &r.Points[i]; point.Figures != nil {
			if err := f.judge(sim.Report{Figures: *point.Figures}); err != nil {
				errs = append(errs, fmt.Errorf("at %s: %w", r.Label(point), err))
			}
		}
	}
	return errors.Join(errs...)
}

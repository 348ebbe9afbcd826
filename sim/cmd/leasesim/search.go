package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/search"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

func sweepCommand(p *program) *cobra.Command {
	var vary []string
	f := p.simulating("sweep", func(f *shared) error { return f.sweep(vary) })
	f.cmd.Flags().StringArrayVar(&vary, "vary", nil,
		"field and its values, as in policy.target=10ms,50ms,1s; repeatable")
	return f.cmd
}

func (f *shared) sweep(vary []string) error {
	s, err := f.load(withoutRivals)
	if err != nil {
		return err
	}
	var axes []search.Axis
	for _, text := range vary {
		a, err := search.ParseAxis(text)
		if err != nil {
			return fmt.Errorf("%w: --vary: %w", errUsage, err)
		}
		if slices.Contains([]string{"seed", "reps", "parallel"}, a.Path) {
			return fmt.Errorf("%w: --vary %s: all points share seeds and replications; use --%s",
				errUsage, a.Path, a.Path)
		}
		if ownLoads(&s) && workloadSet.MatchString(text) {
			return fmt.Errorf("%w: --vary: %s", errUsage, workloadUnread)
		}
		axes = append(axes, a)
	}
	lab, clear := f.lab(0)
	r, err := lab.Sweep(f.cmd.Context(), s, axes)
	clear()
	switch {
	case errors.Is(err, search.ErrAxis):
		return fmt.Errorf("%w: --vary: %w", errUsage, err)
	case err != nil:
		return err
	}
	var errs []error
	for i := range r.Points {
		if err := f.judge(sim.Report{Figures: r.Points[i].Figures}); err != nil {
			errs = append(errs, fmt.Errorf("at %s: %w", r.Label(&r.Points[i]), err))
		}
	}
	return f.finish(view.Sweep(r, f.text, f.program.commandLine(r.Seed)), nil, errors.Join(errs...))
}

// partTargets lists the targets of plan that are ratios, with their flags.
var partTargets = []struct{ flag, figure, op, help string }{
	{"false-rejects", "false_reject_ratio", "<=", "max `share` of wrong rejects, which one central " +
		"bucket would have admitted (default 0.5% without other targets)"},
	{"admitted", "admitted_vs_central", ">=", "min admissions, as a `share` of those of one central " +
		"bucket, as in 99%"},
	{"redis-cpu", "redis_cpu", "<=", "max `share` of a core that the busiest shard uses, as in 5%"},
	{"jain", "jain", ">=", "min Jain's index of fairness, a `share`, as in 99%"},
	{"worst-share", "worst_share", ">=", "min `share` of its fair share for the worst process, as in 95%"},
}

type planFlags struct {
	parts         []sim.Ratio // one ratio for each element of partTargets
	redisCalls    float64
	waitP99       time.Duration
	confidence    sim.Ratio
	overcommitMax int64
	mustHold      []string
}

func planCommand(p *program) *cobra.Command {
	o := planFlags{parts: make([]sim.Ratio, len(partTargets))}
	f := p.simulating("plan", func(f *shared) error { return f.plan(o) })
	flags := f.cmd.Flags()
	for i, t := range partTargets {
		flags.TextVar(&o.parts[i], t.flag, sim.Ratio(0), t.help)
		flags.Lookup(t.flag).DefValue = ""
	}
	flags.Float64Var(&o.redisCalls, "redis-calls", 0, "max lease calls per second, whole fleet")
	flags.DurationVar(&o.waitP99, "wait-p99", 0, "max wait of 99 % of the admitted requests")
	flags.TextVar(&o.confidence, "confidence", sim.Ratio(0.95), "confidence of the intervals, a `share`")
	flags.Int64Var(&o.overcommitMax, "overcommit-max", 0, "max policy.overcommit in tokens, "+
		"which weakens the bound by that many (default: the scenario's)")
	flags.StringSliceVar(&o.mustHold, "stress-must-hold", nil,
		"stresses under which the targets must hold too: all, or some "+
			"of "+strings.Join(search.Stresses, ", "))
	return f.cmd
}

// question returns the search.Question of the flags, without the scenario.
func (o planFlags) question(changed func(flag string) bool) (q search.Question, err error) {
	for i, t := range partTargets {
		if changed(t.flag) {
			q.Targets = append(q.Targets, search.Threshold{Figure: t.figure, Op: t.op, Bound: float64(o.parts[i])})
		}
	}
	if changed("redis-calls") {
		q.Targets = append(q.Targets, search.AtMost("calls_per_s", o.redisCalls))
	}
	if changed("wait-p99") {
		q.Targets = append(q.Targets, search.AtMost("wait_ms_p99", o.waitP99.Seconds()*1000))
	}
	var all faults
	all.addf(changed("redis-calls") && !(o.redisCalls > 0 && o.redisCalls < math.Inf(1)),
		"--redis-calls is %v, must be above 0 and finite", o.redisCalls)
	all.addf(o.waitP99 < 0, "--wait-p99 is %v, must be at least 0", o.waitP99)
	x := float64(o.confidence)
	all.addf(!(x >= 0.5 && x <= 0.9999), "--confidence is %v%%, must be 50%% to 99.99%%", 100*x)
	all.addf(o.overcommitMax < 0, "--overcommit-max is %d, must be at least 0", o.overcommitMax)
	q.OvercommitMax = o.overcommitMax
	if q.MustHold = o.mustHold; slices.Contains(o.mustHold, "all") {
		q.MustHold = search.Stresses
	}
	return q, errors.Join(all...)
}

func (f *shared) plan(o planFlags) error {
	q, err := o.question(f.cmd.Flags().Changed)
	if err != nil {
		return err
	}
	if q.Scenario, err = f.load(withoutRivals); err != nil {
		return err
	}
	if own := q.Scenario.Policy.Overcommit; f.cmd.Flags().Changed("overcommit-max") && o.overcommitMax < own {
		return fmt.Errorf("%w: --overcommit-max is %d, must be at least the scenario's policy.overcommit, %d",
			errUsage, o.overcommitMax, own)
	}
	lab, clear := f.lab(float64(o.confidence))
	plan, err := lab.Plan(f.cmd.Context(), q)
	clear()
	var missed error
	switch {
	case err == nil:
		missed = f.judge(sim.Report{Figures: plan.Chosen.Figures})
	case !errors.Is(err, search.ErrInfeasible) && !errors.Is(err, search.ErrUndecided):
		return err
	}
	d := view.Plan(plan, f.text, f.program.commandLine(plan.Seed))
	if plan.Chosen != nil {
		d.Sections = append(d.Sections, view.Section{Title: "Run it", Code: f.rerun(q.Scenario, plan.Chosen) + "\n",
			Text: []string{"The run whose figures these are."}})
	}
	return f.finish(d, err, missed)
}

// rerun returns the command that repeats the plan's simulation of c's policy, without default lengths.
func (f *shared) rerun(s sim.Scenario, c *search.Candidate) string {
	words := []string{"leasesim", "run", "-f", quoted(f.file)}
	own, sets, p := search.PolicyOf(s), slices.Clone(f.sets), c.Policy
	set := func(same bool, field string, value any) {
		if !same {
			path := "policy." + field + "="
			sets = slices.DeleteFunc(sets, func(own string) bool { return strings.HasPrefix(own, path) })
			sets = append(sets, path+fmt.Sprint(value))
		}
	}
	set(p.DefaultTarget == own.DefaultTarget && p.Target == own.Target, "target", p.Target)
	set(p.DefaultTTL && own.DefaultTTL || !own.DefaultTTL && p.TTL == own.TTL, "ttl", p.TTL)
	set(p.Overcommit == own.Overcommit, "overcommit", p.Overcommit)
	set(p.CallsPerSecond == own.CallsPerSecond, "calls_per_second", p.CallsPerSecond)
	for _, set := range append(sets, fmt.Sprintf("warmup=%vs", c.WarmupS)) {
		words = append(words, "\\\n  --set", quoted(set))
	}
	run := fmt.Sprintf("\\\n  --duration %vs --seed %d --reps %d", c.DurationS, c.Seed, c.Reps)
	return strings.Join(append(words, run), " ")
}

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/search"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

// planFlags are what plan has beside the shared flags.
type planFlags struct {
	parts         []sim.Ratio // one for each of partTargets
	redisCalls    float64
	waitP99       time.Duration
	confidence    sim.Ratio
	overcommitMax int64
	mustHold      []string
}

// partTargets are the targets that are parts of one, with their flags.
var partTargets = []struct {
	flag, figure, op, help string
}{
	{"false-rejects", "false_reject_ratio", "<=",
		"at most this `part` is rejected that one central bucket would have admitted (default 0.5% if there is no other target)"},
	{"admitted", "admitted_vs_central", ">=", "at least this `part` of what one central bucket would have is admitted, as 99%"},
	{"redis-cpu", "redis_cpu", "<=", "at most this `part` of a core is busy, of the busiest shard, as 5%"},
	{"jain", "jain", ">=", "Jain's index of fairness is at least this `part`, as 99%"},
	{"worst-share", "worst_share", ">=", "the worst process gets at least this `part` of its fair share, as 95%"},
}

func (p *program) planCommand() *cobra.Command {
	var f shared
	var o planFlags
	c := &cobra.Command{
		Use:   "plan",
		Short: "Find the lease policy that asks Redis the least and meets your targets",
		Long: `plan searches for the policy (policy.target, policy.ttl, and overcommit as far as allowed) that makes the fewest lease
calls and meets every target at the pessimistic end of its confidence interval. Without targets that is
--false-rejects 0.5%. Where the scenario's fallback is deny, the bound must hold as well.

It screens a grid, for accuracy is not monotone in the length of a lease; keeps the better ones again and again, with
more and longer replications; and confirms the winner at the scenario's full length on
seeds that the search has not seen. Then it tries it under stress: clocks twice as wrong, an outage of Redis in the
middle (for a tenth of what counts, at most 1s), half as many processes again under the same load. What fails there is
reported; with --stress-must-hold the choice depends on it. While Redis is away a fallback of deny rejects about that
part of the load, whatever the policy: away for 400ms of 4s, 10 % of what counts. So --false-rejects and --admitted
have that much more room in the outage.

Of policies within 1 % of the fewest calls it takes the scenario's own if that is one of them; else the one with the
least overcommit, and then the shortest TTL.

It prints the chosen policy with its margins, beside the scenario's own policy; what it does under stress; the
trade-offs next best, which show what other targets would cost; and the Go code of the configuration. Where no policy
meets the targets it prints the closest miss.

It takes as long as some 40 runs of the scenario, and gives the same answer on any machine.
A --threshold is about the chosen policy, on the fresh seeds.

Exit status: 0 a policy was found; 2 the command line or the scenario is wrong; 3 a --threshold does not hold;
4 no policy meets the targets; 130 interrupted, after a report of what the search had seen; 1 anything else.`,
		Example: `  leasesim plan
  leasesim plan -f fleet.yaml --false-rejects 0.5% --redis-calls 500 --confidence 99%
  leasesim plan -f fleet.yaml --admitted 99% --jain 99% --stress-must-hold=skew,processes --out html -o plan.html
  leasesim plan -f example:small-burst --false-rejects 0.1% --overcommit-max 5`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			q, err := o.question(c)
			if err != nil {
				return err
			}
			if q.Scenario, err = f.load(withoutRivals); err != nil {
				return err
			}
			return p.plan(c, &f, &o, q)
		},
	}
	f.add(c)
	flags := c.Flags()
	o.parts = make([]sim.Ratio, len(partTargets))
	for i, t := range partTargets {
		flags.TextVar(&o.parts[i], t.flag, sim.Ratio(0), t.help)
		flags.Lookup(t.flag).DefValue = ""
	}
	flags.Float64Var(&o.redisCalls, "redis-calls", 0, "at most so many lease calls per second of the whole fleet")
	flags.DurationVar(&o.waitP99, "wait-p99", 0, "99 % of the admitted wait at most so long")
	flags.TextVar(&o.confidence, "confidence", sim.Ratio(0.95), "of the intervals, a `part`")
	flags.Int64Var(&o.overcommitMax, "overcommit-max", 0, "policy.overcommit may be up to so many tokens, which weakens the bound by as many (default: the scenario's)")
	flags.StringSliceVar(&o.mustHold, "stress-must-hold", nil, "the targets must hold under stress too: all, or some of "+strings.Join(search.Stresses, ", "))
	flags.Lookup("stress-must-hold").NoOptDefVal = "all"
	return c
}

// question is what the flags ask, but for the scenario.
func (o *planFlags) question(c *cobra.Command) (q search.Question, err error) {
	changed := c.Flags().Changed
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
	all.addf(changed("redis-calls") && !(o.redisCalls > 0), "--redis-calls is %v, must be above 0", o.redisCalls)
	all.addf(o.waitP99 < 0, "--wait-p99 is %v, must be at least 0", o.waitP99)
	x := float64(o.confidence)
	all.addf(!(x >= 0.5 && x <= 0.9999), "--confidence is %v%%, must be 50%% to 99.99%%", 100*x)
	all.addf(o.overcommitMax < 0, "--overcommit-max is %d, must be at least 0", o.overcommitMax)
	q.OvercommitMax = o.overcommitMax
	if q.MustHold = o.mustHold; slices.Contains(o.mustHold, "all") {
		q.MustHold = search.Stresses
	}
	for _, name := range q.MustHold {
		all.addf(!slices.Contains(search.Stresses, name), "--stress-must-hold: %q must be all or some of %s", name, strings.Join(search.Stresses, ", "))
	}
	return q, errors.Join(all...)
}

// plan answers the question and shows the answer.
func (p *program) plan(c *cobra.Command, f *shared, o *planFlags, q search.Question) error {
	show, clear := phases(c.ErrOrStderr())
	lab := search.Lab{Run: p.single(float64(o.confidence)), Parallel: f.parallel, Progress: counted(show)}
	plan, err := lab.Plan(c.Context(), q)
	clear()
	infeasible, interrupted := errors.Is(err, search.ErrInfeasible), errors.Is(err, sim.ErrInterrupted)
	if err != nil && !infeasible && !(interrupted && len(plan.TradeOffs) > 0) {
		return err
	}
	if err := f.show(c, view.Plan(plan, f.text, p.commandLine(plan.Seed))); err != nil {
		return err
	}
	if err != nil {
		return fmt.Errorf("leasesim: %w", err)
	}
	return f.judge(sim.Report{Figures: plan.Chosen.Figures})
}

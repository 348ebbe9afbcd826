package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/cmd/leasesim/internal/live"
	"github.com/yuzhi-go/yuzhi/sim/search"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

// lab runs simulations side by side, and the replications of each, so that the last one has every core. The
// caller calls clear before it prints anything else.
func (f *shared) lab(confidence float64) (lab search.Lab, clear func()) {
	show, clear := phases(f.ErrOrStderr())
	lab.Run = func(ctx context.Context, s sim.Scenario) (sim.Report, error) {
		return f.program.simulate(sim.Runner{Parallel: f.parallel, Confidence: confidence}, ctx, s)
	}
	lab.Parallel = f.parallel
	if show != nil {
		lab.Progress = func(p search.Progress) { show(p.Phase, p.Done, p.Of) }
	}
	return lab, clear
}

func (p *program) sweepCommand() *cobra.Command {
	var vary []string
	var rivals bool
	f := p.simulating("sweep", func(f *shared) error { return f.sweep(vary, rivals) })
	f.Flags().BoolVar(&rivals, "rivals", false,
		"the scenario's rivals decide the same requests at every point (or, if it names none, all that can)")
	f.Flags().StringArrayVar(&vary, "vary", nil,
		"a field and its values, as in policy.target=10ms..1s:log:8; repeatable")
	return f.Command
}

// sweep runs the grid and shows it.
func (f *shared) sweep(vary []string, rivals bool) error {
	s, err := f.load(func(s *sim.Scenario) error {
		if !rivals {
			return withoutRivals(s)
		}
		return f.defaultRivals(s)
	})
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
			return fmt.Errorf("%w: --vary %s: all points have the same seeds and replications; use --%s",
				errUsage, a.Path, a.Path)
		}
		if ownLoads(&s) && workloadSet.MatchString(text) {
			return fmt.Errorf("%w: --vary: %s", errUsage, workloadUnread)
		}
		axes = append(axes, a)
	}
	lab, clear := f.lab(0)
	r, err := lab.Sweep(f.Context(), s, axes)
	clear()
	switch {
	case errors.Is(err, search.ErrAxis), errors.Is(err, search.ErrGrid):
		return fmt.Errorf("%w: --vary: %w", errUsage, err)
	case err != nil && !(errors.Is(err, sim.ErrInterrupted) && r.Finished > 0):
		return err
	}
	var errs []error
	if r.Invalid == len(r.Points) {
		errs = append(errs, fmt.Errorf("%w: no point is a valid scenario: at %s: %s",
			errUsage, r.Label(&r.Points[0]), r.Points[0].Invalid))
	}
	for i := range r.Points {
		if point := &r.Points[i]; point.Figures != nil {
			if err := f.judge(sim.Report{Figures: *point.Figures}); err != nil {
				errs = append(errs, fmt.Errorf("at %s: %w", r.Label(point), err))
			}
		}
	}
	return f.finish(view.Sweep(r, f.text, f.program.commandLine(r.Seed)), err, errors.Join(errs...))
}

// partTargets are the targets that are parts of one, with their flags.
var partTargets = []struct{ flag, figure, op, help string }{
	{"false-rejects", "false_reject_ratio", "<=", "at most this `part` is rejected that one central bucket " +
		"would have admitted (default 0.5% if there is no other target)"},
	{"admitted", "admitted_vs_central", ">=", "at least this `part` of what one central bucket would have is " +
		"admitted, as 99%"},
	{"redis-cpu", "redis_cpu", "<=", "at most this `part` of a core is busy, of the busiest shard, as 5%"},
	{"jain", "jain", ">=", "Jain's index of fairness is at least this `part`, as 99%"},
	{"worst-share", "worst_share", ">=", "the worst process gets at least this `part` of its share, as 95%"},
}

// planFlags are the flags of plan beside the shared ones.
type planFlags struct {
	parts         []sim.Ratio // one for each of partTargets
	redisCalls    float64
	waitP99       time.Duration
	confidence    sim.Ratio
	overcommitMax int64
	mustHold      []string
	timeLimit     time.Duration
}

func (p *program) planCommand() *cobra.Command {
	o := planFlags{parts: make([]sim.Ratio, len(partTargets))}
	f := p.simulating("plan", func(f *shared) error { return f.plan(o) })
	flags := f.Flags()
	for i, t := range partTargets {
		flags.TextVar(&o.parts[i], t.flag, sim.Ratio(0), t.help)
		flags.Lookup(t.flag).DefValue = ""
	}
	flags.Float64Var(&o.redisCalls, "redis-calls", 0, "max lease calls per second, whole fleet")
	flags.DurationVar(&o.waitP99, "wait-p99", 0, "max wait of 99 % of the admitted requests")
	flags.TextVar(&o.confidence, "confidence", sim.Ratio(0.95), "confidence of the intervals, a `part`")
	flags.Int64Var(&o.overcommitMax, "overcommit-max", 0, "max policy.overcommit in tokens, "+
		"which weakens the bound by as many (default: the scenario's)")
	flags.StringSliceVar(&o.mustHold, "stress-must-hold", nil,
		"the targets must hold under stress too: all, or some of "+strings.Join(search.Stresses, ", "))
	flags.DurationVar(&o.timeLimit, "time-limit", 0, "time limit of the plan, as 5m (default: none)")
	return f.Command
}

// question returns the question of the flags, without the scenario.
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
	all.addf(changed("redis-calls") && !(o.redisCalls > 0), "--redis-calls is %v, must be above 0", o.redisCalls)
	all.addf(o.waitP99 < 0, "--wait-p99 is %v, must be at least 0", o.waitP99)
	x := float64(o.confidence)
	all.addf(!(x >= 0.5 && x <= 0.9999), "--confidence is %v%%, must be 50%% to 99.99%%", 100*x)
	all.addf(o.overcommitMax < 0, "--overcommit-max is %d, must be at least 0", o.overcommitMax)
	all.addf(o.timeLimit < 0 || o.timeLimit == 0 && changed("time-limit"), "--time-limit is %v, must be above 0",
		o.timeLimit)
	q.OvercommitMax, q.TimeLimit = o.overcommitMax, o.timeLimit
	if q.MustHold = o.mustHold; slices.Contains(o.mustHold, "all") {
		q.MustHold = search.Stresses
	}
	return q, errors.Join(all...)
}

// plan answers the question and shows the answer.
func (f *shared) plan(o planFlags) error {
	q, err := o.question(f.Flags().Changed)
	if err != nil {
		return err
	}
	if q.Scenario, err = f.load(withoutRivals); err != nil {
		return err
	}
	if own := q.Scenario.Policy.Overcommit; f.Flags().Changed("overcommit-max") && o.overcommitMax < own {
		return fmt.Errorf("%w: --overcommit-max is %d, must be at least the scenario's policy.overcommit, %d",
			errUsage, o.overcommitMax, own)
	}
	most := q.Scenario
	most.Policy.Overcommit = max(most.Policy.Overcommit, o.overcommitMax)
	if err := most.Validate(); err != nil {
		return fmt.Errorf("%w: --overcommit-max %d: %w", errUsage, o.overcommitMax, err)
	}
	lab, clear := f.lab(float64(o.confidence))
	plan, err := lab.Plan(f.Context(), q)
	clear()
	var missed error
	switch interrupted := errors.Is(err, sim.ErrInterrupted); {
	case err == nil:
		missed = f.judge(sim.Report{Figures: plan.Chosen.Figures})
	case !errors.Is(err, search.ErrInfeasible) && !(interrupted && len(plan.TradeOffs) > 0):
		if interrupted && f.Context().Err() == nil {
			return fmt.Errorf("--time-limit %v is too short: %v", q.TimeLimit, err) // no interruption: status 1
		}
		return err
	}
	d := view.Plan(plan, f.text, f.program.commandLine(plan.Seed))
	if plan.Chosen != nil {
		d.Sections = append(d.Sections, proof(q.Scenario, plan.Chosen)...)
	}
	return f.finish(d, err, missed)
}

// A proof runs on a laptop: the processes, and the lease calls a second that the embedded Redis serves
// beside them, as it interprets the script anew for each.
const processesMost, callsMost = 32, 100

// A run asks for askedLeast tokens, or it shows nothing, and lasts proofMost at most.
const askedLeast, proofMost = 100.0, 5 * time.Minute

// loadOf is how many times its limit each key of s, which has one, is asked for in the mean: what
// the scenario says, or what the candidate's requests were where they are not those of a rate.
func loadOf(s sim.Scenario, c *search.Candidate) float64 {
	w := &s.Workload
	tokens := s.RateOf(w) * w.Cost.Mean()
	if !w.Actual.IsZero() {
		tokens = s.RateOf(w) * w.Actual.Mean()
	}
	ofGroup := slices.ContainsFunc(s.Groups, func(g sim.Group) bool { return g.Workload != nil })
	if ofGroup || slices.Contains([]string{sim.Closed, sim.Adversary, sim.Replay}, w.Kind) {
		tokens = c.Figures.Offered.Mean / (s.Duration - s.Warmup).Seconds()
	}
	load, _ := strconv.ParseFloat(fmt.Sprintf("%.3g", tokens/(float64(s.Keys.Count)*s.Limits[0].Rate())), 64)
	return load
}

// proof is the live command that shows a policy's bound with real processes, for one key and by
// requests of one token; none for several limits, divided keys, and limits that would take hours.
func proof(s sim.Scenario, c *search.Candidate) []view.Section {
	p := c.Policy
	if s = s.Defaults(); len(s.Limits) != 1 {
		return nil
	}
	all, limit := 0, s.Limits[0]
	for _, g := range s.Groups {
		all += g.Count
	}
	keys := float64(s.Keys.Count)
	load := min(loadOf(s, c), live.OfferedMost)
	share := fmt.Sprintf("They share one key, with the mean load of the %s. ", view.Number(keys))
	if keys > 1 && load*limit.Rate() < askedLeast/proofMost.Seconds() {
		load = 0
		share = fmt.Sprintf("They share one key, and ask for %v times its limit: the mean load of the %s is too "+
			"little to see. ", live.OfferedDefault, view.Number(keys))
	}
	least := math.Ceil(askedLeast / (cmp.Or(load, live.OfferedDefault) * limit.Rate()))
	byDefault := live.Options{Limit: limit.String()}.ThreeWindows()
	if least > proofMost.Seconds() || limit.Windowed() && 3*limit.Per > byDefault {
		return nil
	}
	lasts := max(byDefault, time.Duration(least)*time.Second)
	n := min(all, processesMost)
	if calls := c.Figures.CallsPerS.Mean / keys; calls > callsMost {
		n = max(2, min(n, int(callsMost*float64(all)/calls)))
	}
	words := []string{
		"leasesim", "live", "--processes", fmt.Sprint(n), "--limit", quoted(limit.String()), "\\\n ",
	}
	add := func(given bool, flag string, value any) {
		if given {
			words = append(words, flag, fmt.Sprint(value))
		}
	}
	add(!p.DefaultTarget, "--target", p.Target)
	// A TTL that is not set is that of live too, unless calls may take another time.
	add(!p.DefaultTTL || s.CallTimeout != lease.DefaultCallTimeout, "--ttl", p.TTL)
	add(load > 0, "--offered", load)
	add(p.Overcommit > 0, "--overcommit", p.Overcommit)
	add(p.CallsPerSecond > 0, "--calls-per-second", p.CallsPerSecond)
	add(lasts > byDefault, "--duration", lasts)
	text := "The chosen policy in as many real processes"
	if n < all {
		text = fmt.Sprintf("The chosen policy in %d real processes in the place of %d", n, all)
	}
	text += fmt.Sprintf(" for %v, and every admission audited. ", lasts)
	if keys > 1 {
		text += share
	}
	if s.Workload.Cost.Max > 1 && load > 0 {
		text += "Their requests take one token each, and together as many tokens as the scenario's. "
	}
	if n < all {
		text += "An embedded Redis beside them on one machine serves no more; with --redis host:port there may " +
			"be as many processes as the machine has room for, up to " + fmt.Sprint(live.ProcessesMost) + "."
	}
	return []view.Section{{
		Title: "Proof by real processes", Code: strings.Join(words, " ") + "\n",
		Text: []string{strings.TrimSpace(text)},
	}}
}

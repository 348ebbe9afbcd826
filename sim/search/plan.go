package search

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/random"
	"github.com/yuzhi-go/yuzhi/sim/report"
)

var (
	// ErrInfeasible is wrapped by the error of Lab.Plan if no tried policy meets the targets. Plan.Miss then
	// has the closest policy.
	ErrInfeasible = errors.New("search: no policy meets the targets")
	// ErrUndecided is wrapped by the error of Lab.Plan if the longest allowed runs give no verdict.
	ErrUndecided = errors.New("search: undecided, as the longest runs leave open whether the targets hold")
)

// Question describes a plan to make.
type Question struct {
	Scenario sim.Scenario
	// Targets are upper and lower bounds (<= and >=) of figures, at most one of each for a figure. They must
	// hold at the pessimistic end of each figure's interval. A nil Targets bounds false_reject_ratio to 0.5
	// %. If the fallback is deny, the bound of the limit is a further target.
	Targets []Threshold
	// OvercommitMax is the largest Policy.Overcommit to try, at least the scenario's own.
	OvercommitMax int64
	MustHold      []string // names of Stresses under which the targets must also hold
}

// round has the length and the number of replications of a phase's runs.
type round struct {
	name string
	part float64 // length of a run, as a fraction of the scenario's counted time
	reps int     // largest number of replications
}

var (
	gridRound    = round{"grid", 0.25, 1}
	refineRound  = round{"refine", 0.5, 2}
	confirmRound = round{"confirm", 1, math.MaxInt}
)

const (
	nearRounds = 4  // number of times that a plan confirms the neighbours of the best policy
	timesMost  = 32 // longest counted time, as a multiple of the first run's counted time
	openMost   = 4  // largest number of undecided policies with longer runs in one round
	// steadily is the fraction by which the calls of a run may differ from those of a run of half its length.
	steadily = 0.05
)

// All replications of a run together simulate at most requestsMost requests, or requestsTimes the requests of
// the given scenario if that is more. If the fleet does not settle within that number, the run has fewer
// replications, down to repsLeast. A fleet that does not settle in repsLeast replications gets no verdict.
const (
	requestsMost  = 2e7
	requestsTimes = 4
	repsLeast     = 3
)

// planning is the state of one call of Lab.Plan.
type planning struct {
	*work
	q         Question // the question with the scenario's defaults, and without rivals
	plan      Plan
	seen      []*trial // trials of the grid and of the refinement, one for each policy
	confirmed []*trial // trials on the confirmation's seeds, one for each policy, the scenario's own first
	exhausted bool     // screenShorter has run
}

// Plan finds the lease policy that makes the fewest lease calls and meets all targets. The error wraps
// ErrInfeasible if no policy meets the targets, ErrUndecided if the longest runs leave that open, and
// sim.ErrInterrupted if ctx ends.
//
// Longer leases make fewer calls, but accuracy is not monotone in their length: long leases strand tokens,
// and short leases deny requests during round trips. Plan therefore does not bisect. It tries a grid of
// policies in short runs, and then policies near the best ones. The best of many policies was lucky on its
// seeds, so Plan confirms the best policies and the trade-offs on seeds that the search has not used. A run
// counts from the time when its fleet has settled. Plan lengthens the runs of the best policy, and of
// policies that may be better, until twice the length gives the same verdict.
func (l Lab) Plan(ctx context.Context, q Question) (Plan, error) {
	errs := []error{q.Scenario.Validate()}
	for _, name := range q.MustHold {
		if !slices.Contains(Stresses, name) {
			errs = append(errs, fmt.Errorf("%w %q, must be one of %q", ErrStress, name, Stresses))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return Plan{}, err
	}
	plan := Plan{SchemaVersion: report.SchemaVersion, Asked: askedOf(q.Scenario), Targets: targetsOf(q)}
	plan.ConfirmSeed = random.SeedOf(plan.Seed, 1<<30) // no search has 2^30 replications
	q.Scenario, q.Targets = q.Scenario.Defaults(), plan.Targets
	q.Scenario.Policy, q.Scenario.Rivals = ownPolicy(q.Scenario), nil // rivals would slow the plan down
	p := &planning{work: l.begin(), q: q, plan: plan}
	err := p.search(ctx)
	if err == nil {
		err = p.confirm(ctx)
	}
	p.plan.Confidence, p.plan.Machine = p.confidence, p.machine
	return p.plan, err
}

func (p *planning) search(ctx context.Context) error {
	err := p.screen(ctx, gridRound, gridOf(p.q))
	if err == nil && !ranked(p.seen, expected)[0].meets(expected) {
		err = p.screenShorter(ctx)
	}
	if err == nil {
		err = p.screen(ctx, refineRound, around(ranked(p.seen, expected), promising(p.seen)))
	}
	return err
}

func (p *planning) screenShorter(ctx context.Context) error {
	p.exhausted = true
	return p.screen(ctx, gridRound, shorter(p.q))
}

// screen simulates policies. Their trials replace earlier trials of the same policies in p.seen.
func (p *planning) screen(ctx context.Context, r round, policies []lease.Policy) error {
	trials := p.trials(r, p.q.Scenario.Seed, 1, policies)
	if err := p.simulate(ctx, r.name, trials); err != nil {
		return err
	}
	again := policiesOf(trials)
	p.seen = append(trials, slices.DeleteFunc(p.seen, func(t *trial) bool {
		return slices.Contains(again, t.scenario.Policy)
	})...)
	return nil
}

// confirm chooses the best policy that meets the targets on the confirmation's seeds, also under the stresses
// of Question.MustHold. If no policy meets the targets, confirm tries shorter leases.
func (p *planning) confirm(ctx context.Context) error {
	policies := append([]lease.Policy{p.q.Scenario.Policy}, promising(p.seen)...)
	if err := p.try(ctx, 1, policies...); err != nil {
		return err
	}
	for broken := ""; ; {
		best, err := p.settle(ctx, broken == "")
		if err != nil {
			return err
		}
		if none := best == nil || !best.meets(pessimistic) || best.shaky(); none && !p.exhausted {
			if err := p.screenShorter(ctx); err != nil {
				return err
			}
			if err := p.try(ctx, 1, promising(p.seen)...); err != nil {
				return err
			}
			continue
		} else if none {
			return p.miss(best, broken)
		}
		stresses, err := p.stress(ctx, best)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(stresses, func(s Stress) bool { return s.Must && !s.Meets })
		if i < 0 {
			return p.choose(best, stresses)
		}
		broken, best.broken, best.unclear = stresses[i].Name, stresses[i].Name, stresses[i].Undecided
	}
}

// try simulates policies on the confirmation's seeds. times is the counted time, as a multiple of the
// scenario's. Of two runs of one policy, p.confirmed keeps the longer one.
func (p *planning) try(ctx context.Context, times int, policies ...lease.Policy) error {
	trials := p.trials(confirmRound, p.plan.ConfirmSeed, times, policies)
	if err := p.simulate(ctx, confirmRound.name, trials); err != nil {
		return err
	}
	for _, t := range trials {
		i := slices.IndexFunc(p.confirmed, func(o *trial) bool { return o.scenario.Policy == t.scenario.Policy })
		if i < 0 {
			p.confirmed = append(p.confirmed, t)
		} else if p.confirmed[i].times < t.times {
			t.shorter, t.broken = p.confirmed[i], p.confirmed[i].broken
			p.confirmed[i] = t
		}
	}
	return nil
}

// settle lengthens the runs of the best policy, and of policies that may be better, until the verdicts are
// clear. With near, settle also tries the neighbours of the best policy, and cheaper policies. settle returns
// the best trial that fails no stress, or nil if every trial fails a stress.
func (p *planning) settle(ctx context.Context, near bool) (best *trial, err error) {
	for n := 0; ; n++ {
		whole := slices.DeleteFunc(slices.Clone(p.confirmed), func(t *trial) bool { return t.broken != "" })
		if len(whole) == 0 {
			return nil, nil
		}
		best = ranked(whole, pessimistic)[0]
		longer := []*trial{best}
		for _, t := range ranked(whole, expected) {
			if t != best && t.mayReplace(best) && t.open() && len(longer) <= openMost {
				longer = append(longer, t)
			}
		}
		longer = slices.DeleteFunc(longer, func(t *trial) bool { return t.decided() || !p.canLengthen(t) })
		known := len(p.confirmed)
		for _, t := range longer {
			if err := p.try(ctx, 2*t.times, t.scenario.Policy); err != nil {
				return nil, err
			}
		}
		if near && n < nearRounds {
			if err := p.try(ctx, 1, neighbours(p.q, best)...); err != nil {
				return nil, err
			}
		}
		if near {
			if err := p.try(ctx, 1, p.cheaper(best)...); err != nil {
				return nil, err
			}
		}
		if len(longer) == 0 && len(p.confirmed) == known {
			return best, nil
		}
	}
}

// cheaper returns policies that met the targets in the search with fewer calls than best makes, and that are
// not confirmed yet: the best finalists of them.
func (p *planning) cheaper(best *trial) []lease.Policy {
	known := policiesOf(p.confirmed)
	left := slices.DeleteFunc(ranked(p.seen, expected), func(t *trial) bool {
		return !t.mayReplace(best) || !t.meets(expected) || slices.Contains(known, t.scenario.Policy)
	})
	return policiesOf(left[:min(finalists, len(left))])
}

// trial prepares a simulation of the scenario world with a policy. The run counts from the time when the
// fleet has settled. The counted time is times the counted time of round r, or times half of the settling
// time if that is longer. A scenario that is not stationary keeps its own length.
func (p *planning) trial(r round, world sim.Scenario, policy lease.Policy, seed uint64, times int) *trial {
	world.Policy = policy
	t := &trial{scenario: world, targets: p.q.Targets, times: times}
	s := &t.scenario
	s.Reps, s.Seed = min(s.Reps, r.reps), seed
	x := PolicyOf(*s)
	t.name = fmt.Sprintf("policy.target=%s policy.ttl=%s policy.overcommit=%d", x.Target, x.TTL, x.Overcommit)
	if policy != p.q.Scenario.Policy {
		t.changes = 1
	}
	if s.Stationary() {
		warmup := max(s.Warmup, wholeSeconds(s.Settling()))
		least := s.Settling() / 2
		counted := time.Duration(times) * max(time.Duration(r.part*float64(s.Duration-s.Warmup)), least)
		for _, x := range []struct {
			counted time.Duration
			reps    int
		}{{counted, s.Reps}, {least, s.Reps}, {least, min(s.Reps, repsLeast)}} {
			longer := *s
			longer.Warmup, longer.Duration, longer.Reps = warmup, warmup+wholeSeconds(x.counted), x.reps
			d := max(longer.Duration, longer.Enough())
			if t.unsettled = !p.affordable(longer, d); !t.unsettled {
				*s = lasting(longer, d)
				return t
			}
			t.times = 1
		}
	}
	return t
}

// wholeSeconds rounds up to whole seconds: an operator repeats a run of 120 s, not of 119.3 s.
func wholeSeconds(d time.Duration) time.Duration {
	if d <= time.Second {
		return d
	}
	return (d + time.Second - 1).Truncate(time.Second)
}

func (p *planning) affordable(s sim.Scenario, d time.Duration) bool {
	asked := float64(p.q.Scenario.Reps) * p.q.Scenario.Duration.Seconds()
	most := max(requestsMost/s.RequestsPerS(), requestsTimes*asked)
	return d <= sim.DurationMax && float64(s.Reps)*d.Seconds() <= most
}

func (p *planning) canLengthen(t *trial) bool {
	return 2*t.times <= timesMost && !t.unsettled &&
		p.trial(confirmRound, p.q.Scenario, t.scenario.Policy, 1, 2*t.times).times > t.times
}

func (p *planning) trials(r round, seed uint64, times int, policies []lease.Policy) (all []*trial) {
	for _, policy := range policies {
		all = append(all, p.trial(r, p.q.Scenario, policy, seed, times))
	}
	return all
}

func (p *planning) choose(t *trial, stresses []Stress) error {
	chosen, given := p.candidate(t), p.candidate(p.confirmed[0])
	p.plan.Verdict, p.plan.Chosen, p.plan.Given, p.plan.Code = Found, &chosen, &given, GoCode(t.scenario)
	p.plan.Stress = stresses
	if s := &t.scenario; s.Keys.Count <= 1 { // the number of processes that use one of many keys is unknown
		config := s.Policy.ConfigFor(s.Limits, 0, s.CallTimeout)
		status := lease.Status{Config: config, ActiveWeight: int64(processesOf(*s))}
		p.plan.BurstWanted = protocol.BurstWanted(&lease.Grant{Status: status}, 1)
	}
	p.plan.RequestsPerS = float64(t.report.Machine.Requests) / (float64(t.report.Reps) * t.report.DurationS)
	if load := t.scenario.Load(); !math.IsInf(load, 1) {
		p.plan.Load = load
	}
	p.list(t)
	return nil
}

// miss completes a plan that chooses no policy. stress is the last stress that a policy failed.
func (p *planning) miss(best *trial, stress string) error {
	unclear := slices.ContainsFunc(p.confirmed, func(t *trial) bool { return t.unclear })
	open := slices.ContainsFunc(p.confirmed, func(t *trial) bool {
		return t.broken == "" && t.scenario.Stationary() && (t == best && t.shaky() || t.open())
	})
	if stress != "" && !open {
		best = ranked(slices.DeleteFunc(slices.Clone(p.confirmed), func(t *trial) bool { return t.broken == "" }),
			pessimistic)[0]
		stress = best.broken
	} else {
		stress = ""
	}
	p.plan.Miss = &Miss{Closest: p.candidate(best), Stress: stress}
	p.list(nil)
	if p.plan.Verdict = Infeasible; open || unclear {
		p.plan.Verdict = Undecided
		if best.unsettled {
			p.plan.SettlesS = best.scenario.Settling().Seconds()
		}
		return fmt.Errorf("%w: %s", ErrUndecided, best.name)
	}
	if stress != "" {
		return fmt.Errorf("%w under stress (%s)", ErrInfeasible, stress)
	}
	margins := p.plan.Miss.Closest.Margins
	worst := slices.MinFunc(margins, func(a, b Margin) int { return cmp.Compare(a.Margin, b.Margin) })
	return fmt.Errorf("%w: the closest has %s of %s, must have %s", ErrInfeasible,
		worst.Figure, worst.value6(worst.Value), worst.Threshold)
}

// stress simulates the policy of the trial calm under each stress. While the verdict of a stress without a
// fault is open, stress lengthens its run.
func (p *planning) stress(ctx context.Context, calm *trial) (all []Stress, err error) {
	var trials []*trial
	for _, name := range Stresses {
		if t, description := p.harder(calm, name, 1); t != nil {
			all = append(all, Stress{Name: name, Description: description,
				Must: slices.Contains(p.q.MustHold, name), Load: loads[name]})
			trials = append(trials, t)
		}
	}
	for open := true; open; {
		if err := p.simulate(ctx, "stress", trials); err != nil {
			return nil, err
		}
		open = false
		for i, t := range trials {
			if times := 2 * t.times; times <= timesMost && t.scenario.Stationary() && t.open() && !t.unsettled {
				if longer, _ := p.harder(calm, all[i].Name, times); longer.times == times {
					trials[i], open = longer, true
				}
			}
		}
	}
	for i, t := range trials {
		if every := often[all[i].Name]; every > 0 {
			all[i].Adds = burden(t, &calm.report.Figures, every)
		}
		all[i].Grade = t.graded()
	}
	return all, nil
}

// harder prepares a simulation of calm's policy under a stress, for times the counted time, and describes the
// stress for users. harder returns nil if the scenario's load cannot be set.
func (p *planning) harder(calm *trial, stress string, times int) (t *trial, description string) {
	world := p.q.Scenario
	if load := loads[stress]; load > 0 {
		var ok bool
		if world, ok = loaded(world, load); !ok {
			return nil, ""
		}
	}
	t = p.trial(confirmRound, world, calm.scenario.Policy, p.plan.ConfirmSeed, times)
	if s := &t.scenario; often[stress] > 0 && s.Stationary() {
		// The cost of a fault does not grow with the run. Half of the counted time, or twice the settling
		// time if that is longer, is enough to show the cost.
		counted := max((p.q.Scenario.Duration-p.q.Scenario.Warmup)/2, 2*s.Settling())
		*s = lasting(*s, min(s.Warmup+counted, sim.DurationMax))
	}
	t.scenario, description = stressed(t.scenario, stress)
	return t, description
}

func (p *planning) list(chosen *trial) {
	for _, t := range tradeOffs(p.confirmed, chosen) {
		p.plan.TradeOffs = append(p.plan.TradeOffs, p.candidate(t))
	}
}

func (p *planning) candidate(t *trial) Candidate {
	s := t.scenario
	return Candidate{
		Policy:    PolicyOf(s),
		Seed:      t.report.Seed,
		Reps:      t.report.Reps,
		DurationS: s.Duration.Seconds(),
		WarmupS:   s.Warmup.Seconds(),
		Grade:     t.graded(),
	}
}

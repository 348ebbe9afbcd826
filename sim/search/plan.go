package search

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/random"
)

// phase says how long policies are simulated, and how often.
type phase struct {
	name string
	part float64 // of the scenario's duration
	reps int
	end  float64 // the part of a time limit that is over when the phase should be
}

// The phases of a plan, in their order. Two replications with paired differences tell luck from
// merit. All phases together simulate as much as some 40 runs of the scenario.
var (
	gridPhase    = phase{"grid", 0.2, 2, 0.25}
	refinePhase  = phase{"refine", 0.5, 3, 0.5}
	confirmPhase = phase{"confirm", 1, math.MaxInt, 0.8}
	stressPhase  = phase{"stress", 1, math.MaxInt, 0.95}
)

const (
	best         = 4  // this many of the best go on to the next phase (see promising)
	refined      = 3  // the grid is refined around this many of the best
	refineParts  = 12 // ranges of calls of which one policy each is refined
	confirmParts = 8  // ranges of calls of which one policy each is confirmed
	closeRounds  = 3  // times that policies between the confirmed ones are confirmed too (see cheaper)
)

// planning is a question on its way to a Plan.
type planning struct {
	*work
	q    Question // with its defaults, its own policy with the lengths in force, and without rivals
	plan Plan
	seen []*trial // by the search
	cut  error    // by the time limit, the first one
	pace float64  // seconds that a core simulates a second in; 0 without a time limit
}

// errLate is the cause of a context that a time limit has ended.
var errLate = errors.New("search: the time is over")

// Plan finds the lease policy that makes the fewest lease calls and meets all targets. When no
// policy does, the error wraps ErrInfeasible; when ctx ends, it wraps sim.ErrInterrupted, and the
// Plan has the trade-offs that the search had seen.
//
// A longer lease makes fewer calls, but accuracy is not monotone in its length: tokens strand in
// longer leases, while shorter ones deny during round trips. So nothing here bisects. A plan tries a
// grid of policies with short runs; refines the grid around the best with longer runs; confirms the
// best, and policies to trade them for, at full length, on seeds that the search has not seen (a
// winner of many is lucky on the seeds that it won on); and tries the winner under Stresses.
func (l Lab) Plan(ctx context.Context, q Question) (Plan, error) {
	if err := q.validate(); err != nil {
		return Plan{}, err
	}
	plan := Plan{SchemaVersion: PlanVersion, Asked: askedOf(q.Scenario), Targets: targetsOf(q)}
	plan.ConfirmSeed = random.SeedOf(plan.Seed, 1<<30) // of a replication that no search reaches
	q.Scenario, q.Targets = q.Scenario.Defaults(), plan.Targets
	q.Scenario.Policy, q.Scenario.Rivals = ownPolicy(q.Scenario), nil // rivals cost more than leases
	p := &planning{work: l.begin(), q: q, plan: plan}
	searching, whole := ctx, ctx
	if q.TimeLimit > 0 {
		var stop context.CancelFunc
		whole, stop = context.WithDeadlineCause(ctx, p.began.Add(q.TimeLimit), errLate)
		defer stop()
		searching, stop = context.WithDeadlineCause(ctx, p.began.Add(q.TimeLimit-q.TimeLimit/2), errLate)
		defer stop()
	}
	err := p.measure(whole)
	if err == nil {
		err = p.search(searching)
	}
	if err == nil {
		err = p.confirm(whole)
	}
	if errors.Is(err, sim.ErrInterrupted) {
		p.plan.Verdict = Interrupted
		p.list(p.seen, nil)
	}
	p.plan.Confidence, p.plan.Machine = p.confidence, p.machine
	return p.plan, err
}

// run simulates the trials of a phase and returns those that finished. When the time limit ends it,
// late is true and err nil.
func (p *planning) run(
	ctx context.Context, ph phase, trials []*trial,
) (finished []*trial, late bool, err error) {
	finished, err = p.simulate(ctx, ph.name, trials)
	if late = errors.Is(err, sim.ErrInterrupted) && errors.Is(context.Cause(ctx), errLate); late {
		p.plan.CutShort, p.cut = cmp.Or(p.plan.CutShort, ph.name), cmp.Or(p.cut, err)
		err = nil
	}
	return finished, late, err
}

// measure finds the pace of the simulation by the scenario's own policy, where there is a time limit.
func (p *planning) measure(ctx context.Context) error {
	if p.q.TimeLimit == 0 {
		return nil
	}
	t := p.trials(phase{name: "pace", reps: 1}, p.q.Scenario.Seed, []lease.Policy{p.q.Scenario.Policy})[0]
	_, err := p.simulate(ctx, "pace", []*trial{t})
	p.pace = time.Since(p.began).Seconds() / t.scenario.Duration.Seconds()
	return err
}

// hasTime reports whether more runs of a phase are worth it.
func (p *planning) hasTime(ph phase) bool {
	return p.q.TimeLimit == 0 || time.Since(p.began).Seconds() < (ph.end-0.1)*p.q.TimeLimit.Seconds()
}

// fit shortens the trials of a phase to what the time limit leaves for it: fewer replications at first, then
// shorter ones where the scenario is stationary.
func (p *planning) fit(ph phase, trials []*trial) {
	if p.pace == 0 {
		return
	}
	wanted := 0.0
	for _, t := range trials {
		wanted += float64(float64(t.scenario.Reps) * t.scenario.Duration.Seconds())
	}
	left := float64(ph.end*p.q.TimeLimit.Seconds()) - time.Since(p.began).Seconds()
	part := left * float64(p.Parallel) / (p.pace * wanted)
	if part >= 1 {
		return
	}
	for _, t := range trials {
		s := &t.scenario
		reps := min(s.Reps, max(repsLeast, int(float64(s.Reps)*part)))
		if shorter := part * float64(s.Reps) / float64(reps); s.Stationary() && shorter < 1 {
			counted := time.Duration(shorter * float64(s.Duration-s.Warmup))
			*s = lasting(*s, s.Warmup+max(counted, min(s.Duration-s.Warmup, countedLeast)))
		}
		s.Reps = reps
	}
}

// Under a time limit a policy has this many replications, each of which counts for this long, or as many and
// as long as the scenario asks for.
const (
	repsLeast    = 2
	countedLeast = time.Second
)

// search leaves in seen the policies of the grid and the refined ones, each as in its longest run.
func (p *planning) search(ctx context.Context) error {
	grid, late, err := p.run(ctx, gridPhase, p.trials(gridPhase, p.q.Scenario.Seed, gridOf(p.q)))
	grid = distinct(grid)
	if p.seen = grid; late || err != nil {
		return err
	}
	if len(grid) > 0 && ranked(grid, expected, nearly)[0].margin(expected) < -nearly {
		more, late, err := p.run(ctx, gridPhase, p.trials(gridPhase, p.q.Scenario.Seed, shorter(p.q)))
		grid = distinct(append(grid, more...))
		if p.seen = grid; late || err != nil {
			return err
		}
	}
	centers := ranked(grid, expected, 0)
	better := undominated(promising(grid, best, refineParts))
	policies := around(centers[:min(refined, len(centers))], policiesOf(better))
	finer, _, err := p.run(ctx, refinePhase, p.trials(refinePhase, p.q.Scenario.Seed, policies))
	finer, again := distinct(finer), policiesOf(finer)
	p.seen = append(finer, slices.DeleteFunc(grid, func(t *trial) bool {
		return slices.Contains(again, t.scenario.Policy)
	})...)
	return err
}

// confirm runs the best of the search, and policies to trade them for, beside the scenario's own
// policy. It chooses the best of those that meet the targets there too, and under the stresses that
// must hold. When the time limit ends it, it chooses among those that have finished.
func (p *planning) confirm(ctx context.Context) error {
	own := &trial{scenario: p.q.Scenario}
	fine := promising(p.seen, best, confirmParts)
	policies := policiesOf(append([]*trial{own}, undominated(fine)...))
	wanted := p.trials(confirmPhase, p.plan.ConfirmSeed, policies)
	trials, late, err := p.run(ctx, confirmPhase, wanted)
	if err != nil {
		return err
	}
	if wanted[0].report == nil {
		return p.cut
	}
	if !late && !slices.ContainsFunc(trials, func(t *trial) bool { return t.meets(pessimistic) }) {
		rest := slices.DeleteFunc(policiesOf(fine), func(x lease.Policy) bool {
			return slices.Contains(policies, x)
		})
		more, cut, err := p.run(ctx, confirmPhase, p.trials(confirmPhase, p.plan.ConfirmSeed, rest))
		if trials, late = append(trials, more...), cut; err != nil {
			return err
		}
	}
	for round := 0; round < closeRounds && !late && p.hasTime(confirmPhase); round++ {
		wanted := p.trials(confirmPhase, p.plan.ConfirmSeed, p.cheaper(trials))
		more, cut, err := p.run(ctx, confirmPhase, wanted)
		if trials, late = append(trials, more...), cut; err != nil {
			return err
		}
	}
	given := p.candidate(wanted[0])
	broken := ""
	for _, t := range ranked(trials, pessimistic, 0) {
		if !t.meets(pessimistic) {
			break
		}
		if t, err = p.leastOvercommit(ctx, t); err != nil {
			return err
		}
		stresses, err := p.stress(ctx, t)
		if err != nil {
			return err
		}
		if stresses == nil && len(p.q.MustHold) > 0 {
			return p.over("no stress that must hold has been tried")
		}
		i := slices.IndexFunc(stresses, func(s Stress) bool { return s.Must && !s.Meets })
		if i < 0 {
			p.plan.Given, p.plan.Stress = &given, stresses
			p.list(trials, t)
			return p.choose(ctx, t)
		}
		broken = stresses[i].Name
	}
	if late || len(p.seen) == 0 {
		return p.over("nothing that meets the targets is confirmed")
	}
	p.list(trials, nil)
	return p.infeasible(trials, broken)
}

// cheaper returns some policies that may meet the targets with fewer calls than any of the confirmed ones.
// Luck in the search may have had its best policies fail on the fresh seeds, with nothing confirmed near
// them: so it returns those that the search found to meet the targets, the most accurate of each range of
// calls, and the neighbours of the best of the confirmed ones.
func (p *planning) cheaper(confirmed []*trial) []lease.Policy {
	known, least := policiesOf(confirmed), ranked(confirmed, pessimistic, 0)[0]
	if !least.meets(pessimistic) {
		least = nil
	}
	var open []*trial
	for _, t := range p.seen {
		fewer := least == nil || t.calls() < least.calls()/(1+alike)
		if fewer && t.meets(expected) && !slices.Contains(known, t.scenario.Policy) {
			open = append(open, t)
		}
	}
	policies := policiesOf(spread(open, best))
	if least != nil {
		near := options{s: least.scenario, all: policies}
		for f := targetFine; f < targetStep; f *= targetFine {
			target := time.Duration(float64(targetOf(least)) * f)
			longer := withLengths(least.scenario, least.scenario.Policy, target, 0)
			if longer.Target > targetOf(least) && longer.Target <= longest(p.q.Scenario) {
				near.add(longer)
			}
		}
		policies = near.all
	}
	return slices.DeleteFunc(policies, func(x lease.Policy) bool { return slices.Contains(known, x) })
}

// leastOvercommit halves the interval between the scenario's overcommit and that of a confirmed trial, on the
// same seeds, for the least that meets the targets with about as few calls. When the time limit ends it, it
// returns the best until then.
func (p *planning) leastOvercommit(ctx context.Context, t *trial) (*trial, error) {
	low, calls := p.q.Scenario.Policy.Overcommit, t.calls()
	for high := t.scenario.Policy.Overcommit; high-low > high/20 && p.hasTime(confirmPhase); {
		policy := t.scenario.Policy
		policy.Overcommit = twoDigits(low + (high-low)/2)
		if policy.Overcommit <= low || policy.Overcommit >= high {
			break
		}
		tried := p.trials(confirmPhase, p.plan.ConfirmSeed, []lease.Policy{policy})
		if _, late, err := p.run(ctx, confirmPhase, tried); late || err != nil {
			return t, err
		}
		if less := tried[0]; less.meets(pessimistic) && less.calls() <= calls*(1+alike) {
			t, high = less, policy.Overcommit
		} else {
			low = policy.Overcommit
		}
	}
	return t, nil
}

func (p *planning) over(missing string) error {
	return fmt.Errorf("search: %w: the time is over, and %s", sim.ErrInterrupted, missing)
}

// choose writes down the policy of a confirmed trial, and the Redis that it needs if there is time.
func (p *planning) choose(ctx context.Context, t *trial) (err error) {
	chosen := p.candidate(t)
	p.plan.Verdict, p.plan.Chosen, p.plan.Code = Found, &chosen, GoCode(t.scenario)
	p.plan.RequestsPerS = float64(t.report.Machine.Requests) / (float64(t.report.Reps) * t.report.DurationS)
	p.plan.Load = loadOf(t)
	p.enough(t)
	p.plan.Needs, err = p.needsOf(ctx, t)
	if err == nil && p.q.Grow {
		p.plan.Grow, err = p.grow(ctx, t)
	}
	if errors.Is(err, sim.ErrInterrupted) {
		return nil
	}
	return err
}

// loadOf returns how many times what the limits give all keys a trial was asked for.
func loadOf(t *trial) float64 {
	rate, s := math.Inf(1), &t.scenario
	for _, l := range s.Limits {
		rate = min(rate, l.Rate())
	}
	return t.report.Offered.Mean / (s.Duration - s.Warmup).Seconds() / (rate * float64(s.Keys.Count))
}

// infeasible writes the closest miss down; stress names the one that it fails under if it meets the targets.
func (p *planning) infeasible(trials []*trial, stress string) error {
	closest := slices.MaxFunc(trials, func(a, b *trial) int {
		return cmp.Compare(a.margin(pessimistic), b.margin(pessimistic))
	})
	p.plan.Verdict, p.plan.Miss = Infeasible, &Miss{p.candidate(closest), stress}
	p.enough(closest)
	if stress != "" {
		return fmt.Errorf("%w under stress (%s)", ErrInfeasible, stress)
	}
	margins := p.plan.Miss.Closest.Margins
	worst := slices.MinFunc(margins, func(a, b Margin) int { return cmp.Compare(a.Margin, b.Margin) })
	return fmt.Errorf("%w: the closest has %s of %s, must have %s", ErrInfeasible,
		worst.Figure, worst.value6(worst.Value), worst.Threshold)
}

// enough notes when the scenario is too short for its fleet to settle with the policy of t.
func (p *planning) enough(t *trial) {
	s := p.q.Scenario
	s.Policy = t.scenario.Policy
	p.plan.EnoughS = s.Enough().Seconds()
}

// stress runs the policy of a confirmed trial in harder worlds. It returns nil where the time limit
// ended that.
func (p *planning) stress(ctx context.Context, calm *trial) ([]Stress, error) {
	all := make([]Stress, len(Stresses))
	same := slices.Repeat([]lease.Policy{calm.scenario.Policy}, len(Stresses))
	trials := p.trials(stressPhase, p.plan.ConfirmSeed, same)
	for i, name := range Stresses {
		all[i] = Stress{Name: name, Must: slices.Contains(p.q.MustHold, name)}
		// A fault's cost is a stock, not a share: half of the run shows it.
		if s := &trials[i].scenario; often[name].every > 0 && s.Stationary() {
			*s = lasting(*s, min(s.Duration, s.Warmup+max((s.Duration-s.Warmup)/2, 2*s.Settles())))
		}
		trials[i].scenario, all[i].Description = stressed(trials[i].scenario, name)
	}
	if _, late, err := p.run(ctx, stressPhase, trials); late || err != nil {
		return nil, err
	}
	for i, t := range trials {
		if o, once := often[Stresses[i]]; once {
			all[i].Adds = burden(t, &calm.report.Figures, o.every)
		}
		all[i].Grade = t.graded()
	}
	return all, nil
}

// trials prepares the simulation of policies. Half of a run has settled at least: before that,
// rejects grow with the length of the leases, but only once. A scenario in which things happen is
// never cut short, and no scenario is simulated longer or more often than it asks for.
func (p *planning) trials(ph phase, seed uint64, policies []lease.Policy) []*trial {
	settles := time.Duration(0)
	trials := make([]*trial, len(policies))
	for i, policy := range policies {
		t := &trial{scenario: p.q.Scenario, targets: p.q.Targets}
		t.scenario.Policy = policy
		settles = max(settles, t.scenario.Settles())
		x := PolicyOf(t.scenario)
		t.name = fmt.Sprintf("policy.target=%s policy.ttl=%s policy.overcommit=%d", x.Target, x.TTL, x.Overcommit)
		if policy != p.q.Scenario.Policy {
			t.changes = 1
		}
		trials[i] = t
	}
	for _, t := range trials {
		s := &t.scenario
		s.Reps, s.Seed = min(s.Reps, ph.reps), seed
		if s.Stationary() {
			counted := max(time.Duration(ph.part*float64(s.Duration)), 2*settles)
			*s = lasting(*s, min(s.Duration, s.Warmup+counted))
		}
	}
	p.fit(ph, trials)
	return trials
}

// list writes down the trade-offs among trials.
func (p *planning) list(trials []*trial, chosen *trial) {
	for _, t := range tradeOffs(trials, chosen) {
		p.plan.TradeOffs = append(p.plan.TradeOffs, p.candidate(t))
	}
}

func (p *planning) candidate(t *trial) Candidate {
	whole := p.q.Scenario
	whole.Policy = t.scenario.Policy
	return Candidate{
		Policy:       PolicyOf(t.scenario),
		ScenarioHash: whole.Hash(),
		Seed:         t.report.Seed,
		Reps:         t.report.Reps,
		DurationS:    t.report.DurationS,
		Grade:        t.graded(),
	}
}

// validate reports everything that is wrong with the question.
func (q Question) validate() error {
	errs := []error{validateTargets(q.Targets), q.Scenario.Validate()}
	for _, name := range q.MustHold {
		if !slices.Contains(Stresses, name) {
			errs = append(errs, fmt.Errorf("%w %q, must be one of %q", ErrStress, name, Stresses))
		}
	}
	return errors.Join(errs...)
}

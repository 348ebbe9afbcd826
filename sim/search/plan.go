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

// ErrInfeasible is wrapped by the error of a question that no policy answers; the Plan says how
// near one came.
var ErrInfeasible = errors.New("search: no policy meets the targets")

// Question is what to plan for.
type Question struct {
	Scenario sim.Scenario // valid; its policy is the one to compare with
	// Targets must hold at the pessimistic end of each figure's interval; each is AtMost or AtLeast.
	// nil means that one request in two hundred may be wrongly rejected. The promise is a target too,
	// where the policy makes it.
	Targets []Threshold
	// OvercommitMax is the most tokens by which the promise may be weakened, Policy.Overcommit. Less
	// than the scenario's own means that.
	OvercommitMax int64
	// MustHold are the Stresses under which the targets must hold too. None by default.
	MustHold []string
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

// effort is how much policies are simulated.
type effort struct {
	phase string
	part  float64 // of the scenario's duration
	reps  int
}

// The efforts of a plan. Three replications tell luck from merit, with paired differences. All
// together simulate as much as some 40 runs of the scenario.
var (
	efforts  = []effort{{"screen", 0.1, 3}, {"halve", 0.3, 4}, {"halve", 1, 5}}
	confirm  = effort{"confirm", 1, math.MaxInt}
	hardship = effort{"stress", 1, math.MaxInt}
)

const (
	// The first halving keeps so many of the best policies, and one more for every so many that were
	// screened; the second keeps half of that. Each adds as many others (see promising).
	survivors    = 12
	finalists    = 3 // are confirmed, and as many others
	tradeOffsMax = 8 // bounds the list of what else could be had
)

// planning is a question on its way to a Plan.
type planning struct {
	*work
	q    Question // with its defaults, its own policy with the lengths in force, and without rivals
	plan Plan
	seen []*trial // of the last effort that ended
}

// Plan finds the lease policy that makes the fewest lease calls and meets all targets. When none
// does, the error wraps ErrInfeasible; when ctx ends, it wraps sim.ErrInterrupted, and the Plan has
// the trade-offs that the search had seen.
//
// A longer lease makes fewer calls, but accuracy is not monotone in its length: tokens strand in
// longer leases, while shorter ones deny during round trips. So nothing here bisects. A plan
// screens a grid of policies with short runs; keeps the better ones, again and again, with longer
// runs; and confirms the best at full length, on seeds that the search has not seen (a winner of
// many is lucky on the seeds that it won on), and under Stresses.
func (l Lab) Plan(ctx context.Context, q Question) (Plan, error) {
	if err := q.validate(); err != nil {
		return Plan{}, err
	}
	plan := Plan{SchemaVersion: PlanVersion, Asked: askedOf(q.Scenario), Targets: targetsOf(q)}
	plan.ConfirmSeed = random.SeedOf(plan.Seed, 1<<30) // of a replication that no search reaches
	q.Scenario, q.Targets = q.Scenario.Defaults(), plan.Targets
	q.Scenario.Policy, q.Scenario.Rivals = ownPolicy(q.Scenario), nil // rivals cost more than leases
	p := &planning{work: l.begin(), q: q, plan: plan}
	err := p.search(ctx)
	if err == nil {
		err = p.confirm(ctx)
	}
	for _, t := range spaced(front(p.seen), tradeOffsMax) {
		p.plan.TradeOffs = append(p.plan.TradeOffs, p.candidate(t))
	}
	if errors.Is(err, sim.ErrInterrupted) {
		p.plan.Verdict = Interrupted
	}
	p.plan.Confidence, p.plan.Machine = p.confidence, p.machine
	return p.plan, err
}

// search leaves the best policies in seen, and with them those that nothing beats.
func (p *planning) search(ctx context.Context) error {
	policies := policiesFor(p.q)
	n := survivors + len(policies)/survivors
	for i, e := range efforts {
		if i > 0 {
			policies = policiesOf(promising(p.seen, expected, n/i), spaced(front(p.seen), tradeOffsMax))
		}
		trials, err := p.simulate(ctx, e.phase, p.trials(e, p.q.Scenario.Seed, policies))
		if i == 0 || err == nil {
			p.seen = trials
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// confirm runs the best of the search at full length on fresh seeds, beside the scenario's own. The
// best of those that meet the targets there too, and under the stresses that must hold, is chosen.
func (p *planning) confirm(ctx context.Context) error {
	policies := policiesOf([]*trial{{scenario: p.q.Scenario}}, promising(p.seen, pessimistic, finalists))
	trials, err := p.simulate(ctx, confirm.phase, p.trials(confirm, p.plan.ConfirmSeed, policies))
	if err != nil {
		return err
	}
	given := p.candidate(trials[0])
	broken := ""
	for _, t := range ranked(trials, pessimistic) {
		if !t.meets(pessimistic) {
			break
		}
		stresses, err := p.stress(ctx, t.scenario.Policy)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(stresses, func(s Stress) bool { return s.Must && !s.Meets })
		if i < 0 {
			chosen := p.candidate(t)
			p.plan.Verdict, p.plan.Chosen, p.plan.Given, p.plan.Stress = Found, &chosen, &given, stresses
			p.plan.Code = goCode(t.scenario)
			return nil
		}
		broken = stresses[i].Name
	}
	return p.infeasible(trials, broken)
}

// stress runs a policy in harder worlds.
func (p *planning) stress(ctx context.Context, policy lease.Policy) (all []Stress, err error) {
	trials := p.trials(hardship, p.plan.ConfirmSeed, slices.Repeat([]lease.Policy{policy}, len(Stresses)))
	for i, name := range Stresses {
		t, one := trials[i], Stress{Name: name, Must: slices.Contains(p.q.MustHold, name)}
		t.targets, one.Forgiven = forgiving(t.targets, t.scenario, name)
		t.scenario, one.Description = stressed(t.scenario, name)
		all = append(all, one)
	}
	if _, err := p.simulate(ctx, hardship.phase, trials); err != nil {
		return nil, err
	}
	for i, t := range trials {
		all[i].Grade = t.graded()
	}
	return all, nil
}

// infeasible writes the closest miss down; stress is what it fails under if it meets the targets.
func (p *planning) infeasible(trials []*trial, stress string) error {
	closest := slices.MaxFunc(trials, func(a, b *trial) int {
		return cmp.Compare(a.margin(pessimistic), b.margin(pessimistic))
	})
	p.plan.Verdict, p.plan.Miss = Infeasible, &Miss{p.candidate(closest), stress, closest.repsNeeded()}
	if stress != "" {
		return fmt.Errorf("%w under stress (%s)", ErrInfeasible, stress)
	}
	margins := p.plan.Miss.Closest.Margins
	worst := slices.MinFunc(margins, func(a, b Margin) int { return cmp.Compare(a.Margin, b.Margin) })
	return fmt.Errorf("%w: the closest has %s %.4g, must be %s %.4g",
		ErrInfeasible, worst.Figure, worst.Value, worst.Op, worst.Bound)
}

// trials prepares the simulation of policies. A run is no shorter than several leases. A scenario
// in which things happen is never cut short, and none is simulated longer or more often than it
// asks for.
func (p *planning) trials(e effort, seed uint64, policies []lease.Policy) []*trial {
	longest := time.Duration(0)
	for _, policy := range policies {
		longest = max(longest, policy.Target)
	}
	trials := make([]*trial, len(policies))
	for i, policy := range policies {
		s := p.q.Scenario
		s.Policy = policy
		s.Reps, s.Seed = min(s.Reps, e.reps), seed
		if stationary(s) {
			counted := max(time.Duration(e.part*float64(s.Duration)), 4*longest+time.Second)
			s.Duration = min(s.Duration, s.Warmup+counted)
		}
		trials[i] = &trial{name: fmt.Sprint(policyText(policy)), scenario: s, targets: p.q.Targets}
		if policy != p.q.Scenario.Policy {
			trials[i].changes = 1
		}
	}
	return trials
}

func (p *planning) candidate(t *trial) Candidate {
	whole := p.q.Scenario
	whole.Policy = t.scenario.Policy
	return Candidate{
		Policy:       policyText(t.scenario.Policy),
		ScenarioHash: whole.Hash(),
		Seed:         t.report.Seed,
		Reps:         t.report.Reps,
		DurationS:    t.report.DurationS,
		Grade:        t.graded(),
	}
}

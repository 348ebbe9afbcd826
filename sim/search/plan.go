package search

import (
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
	// Targets must hold at the pessimistic end of each figure's interval; each is AtMost or
	// AtLeast. nil means that one request in two hundred may be wrongly rejected. The promise is a
	// target too, where the policy makes it.
	Targets []Threshold
	// OvercommitMax is the most tokens by which the promise may be weakened, Policy.Overcommit.
	// Less than the scenario's own means that.
	OvercommitMax int64
	// MustHold are the Stresses under which the targets must hold too. None by default.
	MustHold []string
	// TimeLimit ends the search after half of it, and the confirmation at its end. What was found
	// until then is the answer, which depends on the machine. 0 means none.
	TimeLimit time.Duration
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

// The efforts of a plan. Two replications tell luck from merit, with paired differences. All
// together simulate as much as some 50 runs of the scenario.
var (
	efforts  = []effort{{"screen", 0.2, 2}, {"halve", 0.5, 3}, {"refine", 0.5, 4}}
	confirm  = effort{"confirm", 1, math.MaxInt}
	hardship = effort{"stress", 1, math.MaxInt}
)

const (
	// The first halving keeps so many of the best policies, and one more for every so many that
	// were screened; the second keeps half of that. Each adds as many others (see promising).
	survivors    = 12
	refined      = 3 // the best, around which the last effort looks closer
	finalists    = 4 // are confirmed, and as many others
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
// screens a grid of policies with short runs; keeps the better ones with longer runs; looks closer
// around the best; and confirms the best and what they could be traded for at full length, on seeds
// that the search has not seen (a winner of many is lucky on the seeds that it won on), and under
// Stresses.
func (l Lab) Plan(ctx context.Context, q Question) (Plan, error) {
	if err := q.validate(); err != nil {
		return Plan{}, err
	}
	plan := Plan{SchemaVersion: PlanVersion, Asked: askedOf(q.Scenario), Targets: targetsOf(q)}
	plan.ConfirmSeed = random.SeedOf(plan.Seed, 1<<30) // of a replication that no search reaches
	q.Scenario, q.Targets = q.Scenario.Defaults(), plan.Targets
	q.Scenario.Policy, q.Scenario.Rivals = ownPolicy(q.Scenario), nil // rivals cost more than leases
	p := &planning{work: l.begin(), q: q, plan: plan}
	err := p.answer(ctx)
	if errors.Is(err, sim.ErrInterrupted) {
		p.plan.Verdict = Interrupted
		p.tradeOffs(p.seen, nil)
	}
	p.plan.Confidence, p.plan.Machine = p.confidence, p.machine
	return p.plan, err
}

// answer searches and confirms, within the time limit.
func (p *planning) answer(ctx context.Context) error {
	whole, searching := ctx, ctx
	if limit := p.q.TimeLimit; limit > 0 {
		var done, enough context.CancelFunc
		p.until = time.Now().Add(limit)
		whole, done = context.WithTimeout(ctx, limit)
		defer done()
		searching, enough = context.WithTimeout(ctx, limit/2)
		defer enough()
	}
	err := p.search(searching)
	if errors.Is(err, sim.ErrInterrupted) && whole.Err() == nil && len(p.seen) > 0 {
		err = nil // half of the time is over
	}
	if err != nil {
		return err
	}
	return p.confirm(ctx, whole)
}

// tradeOffs writes down those of trials that are worth a look.
func (p *planning) tradeOffs(trials []*trial, chosen *trial) {
	for _, t := range spacedWith(worthwhile(front(trials), chosen), tradeOffsMax, chosen) {
		p.plan.TradeOffs = append(p.plan.TradeOffs, p.candidate(t))
	}
}

// search leaves the best policies in seen, and with them those that nothing beats.
func (p *planning) search(ctx context.Context) error {
	policies := policiesFor(p.q)
	n := survivors + len(policies)/survivors
	for i, e := range efforts {
		if i > 0 {
			policies = policiesOf(promising(p.seen, expected, n/i), spaced(front(p.seen), tradeOffsMax))
		}
		if i == len(efforts)-1 {
			for _, policy := range around(ranked(p.seen, expected)[:min(refined, len(p.seen))]) {
				if !slices.Contains(policies, policy) {
					policies = append(policies, policy)
				}
			}
		}
		p.expect(efforts[i+1:], policies, n/(i+1))
		trials, err := p.simulate(ctx, e.phase, p.trials(e, p.q.Scenario.Seed, policies))
		if i == 0 || err == nil {
			p.seen = trials
		}
		if err != nil {
			p.plan.CutShort = e.phase
			return err
		}
	}
	return nil
}

// expect says what lies ahead, about, of the search and after it: later efforts, the next of which
// looks at n policies and as many others, and the one after it at half as many.
func (p *planning) expect(later []effort, policies []lease.Policy, n int) {
	one := func(e effort) float64 { return effortOf(p.trials(e, 0, policies)[0]) }
	p.ahead = float64(float64(1+finalists+tradeOffsMax)*one(confirm)) + float64(float64(len(Stresses))*one(hardship))
	for i, e := range later {
		p.ahead += float64(float64(n/(i+1)+tradeOffsMax) * one(e))
	}
}

// trials prepares the simulation of policies. Half of a run has settled at least: before, what is
// rejected grows with the length of the leases, but only once. A scenario in which things happen is
// never cut short, and none is simulated longer or more often than it asks for.
func (p *planning) trials(e effort, seed uint64, policies []lease.Policy) []*trial {
	settles := time.Duration(0)
	for _, policy := range policies {
		s := p.q.Scenario
		s.Policy = policy
		settles = max(settles, s.Settles())
	}
	trials := make([]*trial, len(policies))
	for i, policy := range policies {
		s := p.q.Scenario
		s.Policy = policy
		s.Reps, s.Seed = min(s.Reps, e.reps), seed
		if s.Stationary() {
			counted := max(time.Duration(e.part*float64(s.Duration)), 2*settles)
			s = lasting(s, min(s.Duration, s.Warmup+counted))
		}
		trials[i] = &trial{name: policyOf(s).name(), scenario: s, targets: p.q.Targets}
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
		Policy:       policyOf(t.scenario),
		ScenarioHash: whole.Hash(),
		Seed:         t.report.Seed,
		Reps:         t.report.Reps,
		DurationS:    t.report.DurationS,
		Grade:        t.graded(),
	}
}

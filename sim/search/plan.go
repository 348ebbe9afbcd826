package search

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/random"
)

// ErrInfeasible is wrapped by the error of a question that no policy answers; the Plan says how
// near one came.
var ErrInfeasible = errors.New("search: no policy meets the targets")

// Question is what to plan for.
type Question struct {
	Scenario sim.Scenario // valid; its policy is the one to compare with
	Targets  []Target     // nil means DefaultTargets
	// OvercommitMax is the most tokens by which the promise may be weakened, Policy.Overcommit.
	// Less than the scenario's own means that.
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

// Planner finds the lease policy that makes the fewest lease calls and meets all targets. Run is
// required; every other zero field is a good default.
//
// A longer lease makes fewer calls, but accuracy is not monotone in its length: tokens strand in
// longer leases, while shorter ones deny during round trips. So nothing here bisects. A plan
// screens a grid of policies with short runs; keeps the better half, again and again, with longer
// runs; looks around the survivors; and confirms the winner at full length, on seeds that the
// search has not seen (a winner of many is lucky on the seeds that it won on), and under Stresses.
type Planner struct {
	Run      Run
	Parallel int // simulations at one time; 0 means GOMAXPROCS. It changes no figure
	// Progress is told what is being done, and how much of it; one call at a time; nil for nobody.
	Progress func(phase string, done, of int)
}

// Plan answers q. When no policy meets the targets, the error wraps ErrInfeasible; when ctx ends,
// it wraps sim.ErrInterrupted, and the Plan has the trade-offs that the search had seen.
func (p Planner) Plan(ctx context.Context, q Question) (Plan, error) {
	if len(q.Targets) == 0 {
		q.Targets = DefaultTargets()
	}
	if err := q.validate(); err != nil {
		return Plan{}, err
	}
	a := newAnswer(p, q)
	err := a.find(ctx)
	if err == nil {
		err = a.confirm(ctx)
	}
	if errors.Is(err, sim.ErrInterrupted) {
		a.plan.Verdict, a.plan.TradeOffs = Interrupted, a.tradeOffs()
		err = fmt.Errorf("%w, in phase %q", err, a.phase)
	}
	a.plan.Machine = a.lab.machine()
	return a.plan, err
}

// answer is a question on its way to a Plan.
type answer struct {
	planner Planner
	q       Question
	targets []Target // with the promise
	s       sim.Scenario
	space   space
	lab     *lab
	phase   string
	plan    Plan
	// seen are the trials of the latest, longest look at each choice that reached the end of the
	// search.
	seen []*trial
}

func newAnswer(p Planner, q Question) *answer {
	a := &answer{planner: p, q: q, s: q.Scenario.Defaults(), lab: newLab(p.Run, p.Parallel)}
	a.targets = withPromise(q.Targets, a.s.Policy)
	a.space = newSpace(a.s, q.OvercommitMax)
	a.plan = Plan{
		SchemaVersion: PlanVersion,
		Scenario:      a.s.Name,
		ScenarioHash:  a.s.Hash(),
		Seed:          a.s.Seed,
		ConfirmSeed:   random.SeedOf(a.s.Seed, 1<<30), // that of a replication which no search reaches
		Reps:          a.s.Reps,
		DurationS:     a.s.Duration.Seconds(),
		Targets:       a.targets,
	}
	return a
}

// trial is a choice and what a simulation of it showed.
type trial struct {
	choice
	report sim.Report
	// The least margins of all targets: at the mean, at the pessimistic end and at the optimistic
	// one.
	means, surely, hopes float64
}

func (t *trial) calls() float64 { return t.report.CallsPerS.Mean }

// simulate runs scenarios, each with the choice that it was made from, and grades what they show.
// When ctx ends it returns the trials that have finished, with the error.
func (a *answer) simulate(ctx context.Context, phase string, choices []choice, scenarios []sim.Scenario) ([]*trial, error) {
	if len(scenarios) == 0 {
		return nil, nil
	}
	a.phase = phase
	var progress func(done, of int)
	if tell := a.planner.Progress; tell != nil {
		progress = func(done, of int) { tell(phase, done, of) }
	}
	reports, err := a.lab.all(ctx, scenarios, func(i int) string { return fmt.Sprint(policyOf(choices[i])) }, progress)
	var trials []*trial
	for i, r := range reports {
		if r != nil {
			t := &trial{choice: choices[i], report: *r}
			t.grade(a.targets)
			a.plan.Confidence = r.Confidence
			trials = append(trials, t)
		}
	}
	return trials, err
}

func (a *answer) scenarios(choices []choice, e effort, seed uint64) []sim.Scenario {
	all := make([]sim.Scenario, len(choices))
	for i, c := range choices {
		all[i] = a.space.scenario(c)
		all[i].Duration, all[i].Reps, all[i].Seed = e.duration, e.reps, seed
	}
	return all
}

// find is the search: screen, halve, refine.
func (a *answer) find(ctx context.Context) error {
	trials, err := a.tryAt(ctx, "screen", a.space.screen(screenMax), 0)
	a.seen = trials
	if err != nil {
		return err
	}
	edge := spaced(front(trials, a.targets), survivorsMax)
	round := 0
	for len(trials) > survivorsMax || round < len(efforts)-1 {
		round++
		trials = keep(trials, max(survivorsMax, (len(trials)+1)/2))
		if trials, err = a.tryAt(ctx, "halve", choicesOf(trials), round); err != nil {
			return err
		}
	}
	a.seen = trials
	for step := range 2 {
		var near []choice
		for _, t := range trials[:min(finalists, len(trials))] {
			for _, c := range a.space.around(t.choice, step) {
				if !slices.Contains(near, c) && !a.hasSeen(c) {
					near = append(near, c)
				}
			}
		}
		if err := a.look(ctx, "refine", near, round); err != nil {
			return err
		}
		trials = keep(a.seen, survivorsMax)
	}
	edge = slices.DeleteFunc(edge, func(t *trial) bool { return a.hasSeen(t.choice) })
	return a.look(ctx, "trade-offs", choicesOf(edge), round)
}

func (a *answer) hasSeen(c choice) bool {
	return slices.ContainsFunc(a.seen, func(t *trial) bool { return t.choice == c })
}

// look tries more choices and adds them to what was seen.
func (a *answer) look(ctx context.Context, phase string, choices []choice, round int) error {
	more, err := a.tryAt(ctx, phase, choices, round)
	a.seen = append(a.seen, more...)
	return err
}

// tryAt simulates choices with the effort of a round, on the search's seed. What has run before
// with the same effort does not run again.
func (a *answer) tryAt(ctx context.Context, phase string, choices []choice, round int) ([]*trial, error) {
	longest := time.Duration(0)
	for _, c := range choices {
		longest = max(longest, c.target)
	}
	return a.simulate(ctx, phase, choices, a.scenarios(choices, effortOf(a.s, round, longest), a.s.Seed))
}

func choicesOf(trials []*trial) []choice {
	choices := make([]choice, len(trials))
	for i, t := range trials {
		choices[i] = t.choice
	}
	return choices
}

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
	// BurstMax is how large the limits' bursts may become; less than they are leaves them.
	BurstMax int64
	// MustHold are the Stresses under which the targets must hold too. None by default.
	MustHold []string
}

// Planner finds the lease policy that makes the fewest lease calls and meets all targets. Run is
// required; every other zero field is a good default.
//
// A longer lease makes fewer calls, but accuracy is not monotone in its length: tokens strand in
// longer leases, while shorter ones deny during round trips. So nothing here bisects. A plan screens
// a grid of policies with short runs; keeps the better half, again and again, with longer runs;
// looks around the survivors; and confirms the winner at full length, on seeds that the search has
// not seen (a winner of many is lucky on the seeds that it won on), and under Stresses.
type Planner struct {
	Run      Run
	Parallel int // simulations at one time; 0 means GOMAXPROCS. It changes no figure
	// Budget is about how many simulated requests the search may take, with its lease calls counted
	// as several each; 0 means DefaultBudget. The confirmation is set aside first, and never cut.
	Budget int64
	// Progress is told what is being done, and how much of it; one call at a time; nil for nobody.
	Progress func(phase string, done, of int)
}

// Plan answers q. When no policy meets the targets, the error wraps ErrInfeasible; when ctx ends, it
// wraps sim.ErrInterrupted, and the Plan has the trade-offs that the search had seen.
func (p Planner) Plan(ctx context.Context, q Question) (Plan, error) {
	if len(q.Targets) == 0 {
		q.Targets = DefaultTargets()
	}
	if err := validateTargets(q.Targets); err != nil {
		return Plan{}, err
	}
	for _, name := range q.MustHold {
		if !slices.Contains(Stresses, name) {
			return Plan{}, fmt.Errorf("%w: %q", ErrStress, name)
		}
	}
	if err := q.Scenario.Validate(); err != nil {
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
	load    load
	share   float64 // of the budget, in requests, for each round of the search
	phase   string
	plan    Plan
	// seen are the trials of the latest, longest look at each choice that reached the end of the
	// search.
	seen []*trial
}

func newAnswer(p Planner, q Question) *answer {
	a := &answer{planner: p, q: q, s: q.Scenario.Defaults(), lab: newLab(p.Run, p.Parallel)}
	a.targets = withPromise(q.Targets, a.s.Policy)
	a.space = newSpace(a.s, q.OvercommitMax, q.BurstMax)
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
	// least margins of all targets: at the mean, at the pessimistic end and at the optimistic one.
	means, surely, hopes float64
}

func (t *trial) calls() float64 { return t.report.CallsPerS.Mean }

// simulate runs scenarios, each with the choice that it was made from, and grades what they show.
// When ctx ends it returns the trials that have finished, with the error.
func (a *answer) simulate(ctx context.Context, phase string, choices []choice, scenarios []sim.Scenario) ([]*trial, error) {
	a.phase = phase
	p := Phase{Name: phase, Candidates: len(choices)}
	if len(scenarios) > 0 {
		p.Reps, p.DurationS = scenarios[0].Reps, scenarios[0].Duration.Seconds()
	}
	a.plan.Phases = append(a.plan.Phases, p)
	var progress func(done, of int)
	if tell := a.planner.Progress; tell != nil {
		progress = func(done, of int) { tell(phase, done, of) }
	}
	reports, err := a.lab.all(ctx, scenarios, func(i int) string { return fmt.Sprint(a.policy(choices[i])) }, progress)
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

// try simulates choices with an effort, on the search's seed.
func (a *answer) try(ctx context.Context, phase string, choices []choice, e effort) ([]*trial, error) {
	return a.simulate(ctx, phase, choices, a.scenarios(choices, e, a.s.Seed))
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
	given := a.space.given()
	probed, err := a.try(ctx, "probe", []choice{given}, probe(a.s))
	if err != nil {
		return err
	}
	a.load = loadOf(probed[0])
	choices := a.screen()
	e := a.effort(choices, a.share, repsScreen)
	trials, err := a.try(ctx, "screen", choices, e)
	a.seen = trials
	if err != nil {
		return err
	}
	edge := spaced(front(trials, a.targets), survivorsMax)
	for reps := 2 * repsScreen; len(trials) > survivorsMax; reps *= 2 {
		trials = keep(trials, max(survivorsMax, (len(trials)+1)/2))
		if e == full(a.s) {
			continue // they have been seen as long as they will be
		}
		e = a.effort(choicesOf(trials), a.share, reps)
		if trials, err = a.try(ctx, "halve", choicesOf(trials), e); err != nil {
			return err
		}
	}
	a.seen = trials
	for round := range 2 {
		var near []choice
		for _, t := range trials[:min(finalists, len(trials))] {
			for _, c := range a.space.around(t.choice, round) {
				if !slices.Contains(near, c) && !a.hasSeen(c) {
					near = append(near, c)
				}
			}
		}
		if err := a.look(ctx, "refine", near, e); err != nil {
			return err
		}
		trials = keep(a.seen, survivorsMax)
	}
	edge = slices.DeleteFunc(edge, func(t *trial) bool { return a.hasSeen(t.choice) })
	return a.look(ctx, "trade-offs", choicesOf(edge), e)
}

func (a *answer) hasSeen(c choice) bool {
	return slices.ContainsFunc(a.seen, func(t *trial) bool { return t.choice == c })
}

// look tries more choices and adds them to what was seen.
func (a *answer) look(ctx context.Context, phase string, choices []choice, e effort) error {
	more, err := a.try(ctx, phase, choices, e)
	a.seen = append(a.seen, more...)
	return err
}

// screen is what to begin with; it sets the share of the budget that each round has.
func (a *answer) screen() []choice {
	choices := a.space.screen(screenMax)
	rounds := 3 // two to refine in, and one for the trade-offs
	for n := len(choices); ; n = (n + 1) / 2 {
		rounds++
		if n <= survivorsMax {
			break
		}
	}
	a.share = a.searchBudget(choices) / float64(rounds)
	// Twice the share may go into a good beginning. Where even the least effort takes more, fewer
	// begin.
	e := a.effort(choices, 0, repsMin)
	if cost := a.perSecond(choices) * e.duration.Seconds() * float64(e.reps); cost > 2*a.share {
		choices = a.space.screen(max(screenMin, int(float64(len(choices))*2*a.share/cost)))
	}
	return choices
}

// searchBudget is what is left when the confirmation has been set aside, and a quarter of all if
// that is little.
func (a *answer) searchBudget(choices []choice) float64 {
	budget := float64(a.planner.Budget)
	if budget <= 0 {
		budget = DefaultBudget
	}
	runs := float64(finalists*confirmRounds + 1 + len(Stresses))
	once := a.perSecond(choices[:1]) * a.s.Duration.Seconds() * float64(a.s.Reps)
	return max(budget-float64(runs*once), float64(budget/4))
}

// perSecond is what a simulated second of all choices together takes, in requests.
func (a *answer) perSecond(choices []choice) float64 {
	sum := 0.0
	for _, c := range choices {
		calls := a.load.callsPerS(c)
		if i := slices.IndexFunc(a.seen, func(t *trial) bool { return t.choice == c }); i >= 0 {
			calls = a.seen[i].calls()
		}
		sum += a.load.requestsPerS + float64(callCost*calls)
	}
	return sum
}

func (a *answer) effort(choices []choice, requests float64, reps int) effort {
	longest := time.Duration(0)
	for _, c := range choices {
		longest = max(longest, c.target)
	}
	return within(a.s, longest, requests, a.perSecond(choices), reps)
}

func choicesOf(trials []*trial) []choice {
	choices := make([]choice, len(trials))
	for i, t := range trials {
		choices[i] = t.choice
	}
	return choices
}

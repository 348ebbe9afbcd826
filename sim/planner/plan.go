package planner

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/sweep"
)

// ErrInfeasible is wrapped by the error of a question that no policy answers; the Plan says how near one came.
var ErrInfeasible = errors.New("planner: no policy meets the targets")

// Question is what to plan for.
type Question struct {
	Scenario sim.Scenario // valid; its policy is the one to compare with
	Targets  []Target     // nil means DefaultTargets
	// OvercommitMax is the most tokens by which the promise may be weakened, Policy.Overcommit. Less than the scenario's
	// own means that.
	OvercommitMax int64
	// BurstMax is how large the limits' bursts may become; less than they are leaves them.
	BurstMax int64
	// MustHold are the stresses under which the targets must hold too. None by default. An outage of Redis costs a policy
	// that denies about the part of the time that it lasts, and that much is forgiven there.
	MustHold []string
}

// Planner answers questions. Run is required; every other zero field means a good default.
type Planner struct {
	Run      sweep.Run
	Parallel int // simulations at one time; 0 means GOMAXPROCS. It does not change the Plan
	// Budget is about how many simulated requests the search may take, with its calls counted as several each; 0 means
	// DefaultBudget. It is split by what runs are expected to take, so that the same question is answered in the same way
	// everywhere. What the confirmation takes is set aside first, and is never cut.
	Budget int64
	// Progress is told what is being done, and how much of that; one call at a time; nil for nobody.
	Progress func(phase string, done, of int)
}

// Plan answers q. When no policy meets the targets the error wraps ErrInfeasible; when ctx ends, it wraps
// sim.ErrInterrupted and says what was done, and the Plan has the trade-offs that the search had seen.
func (p Planner) Plan(ctx context.Context, q Question) (Plan, error) {
	if len(q.Targets) == 0 {
		q.Targets = DefaultTargets()
	}
	if err := validate(q.Targets); err != nil {
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
	s := newSearch(p, q)
	start := time.Now()
	err := s.answer(ctx)
	s.plan.Machine = sim.Machine{
		Elapsed:   time.Since(start),
		Requests:  s.lab.requests,
		Parallel:  p.Parallel,
		GoVersion: runtime.Version(),
		Platform:  runtime.GOOS + "/" + runtime.GOARCH,
	}
	s.plan.Machine.RequestsPerS = float64(s.lab.requests) / max(s.plan.Machine.Elapsed.Seconds(), 1e-9)
	return s.plan, err
}

// search is a question on its way to an answer.
type search struct {
	planner Planner
	q       Question
	targets []Target // with the promise
	s       sim.Scenario
	space   space
	lab     *lab
	load    load
	share   float64 // of the budget, for each round
	phase   string
	plan    Plan
	// seen are the trials of the latest, longest look at each choice that reached the end of the search.
	seen []*trial
}

func newSearch(p Planner, q Question) *search {
	s := &search{planner: p, q: q, s: q.Scenario.Defaults()}
	s.targets = withPromise(q.Targets, s.s.Policy)
	s.space = newSpace(s.s, q.OvercommitMax, q.BurstMax)
	s.lab = &lab{run: p.Run, parallel: p.Parallel, known: map[string]*sim.Report{}}
	if p.Progress != nil {
		s.lab.progress = func(done, of int) { p.Progress(s.phase, done, of) }
	}
	s.plan = Plan{
		SchemaVersion: SchemaVersion,
		Scenario:      s.s.Name,
		ScenarioHash:  s.s.Hash(),
		Seed:          s.s.Seed,
		ConfirmSeed:   freshSeed(s.s.Seed),
		Reps:          s.s.Reps,
		DurationS:     s.s.Duration.Seconds(),
		Targets:       s.targets,
	}
	return s
}

// answer searches and confirms.
func (s *search) answer(ctx context.Context) error {
	err := s.find(ctx)
	if err == nil {
		err = s.confirm(ctx)
	}
	if errors.Is(err, sim.ErrInterrupted) {
		s.plan.Verdict = Interrupted
		s.plan.TradeOffs = s.tradeOffs()
		return fmt.Errorf("%w, in phase %q", err, s.phase)
	}
	return err
}

// try simulates choices with an effort, on the search's seed.
func (s *search) try(ctx context.Context, phase string, choices []choice, e effort) ([]*trial, error) {
	s.phase = phase
	s.plan.Phases = append(s.plan.Phases, Phase{phase, len(choices), e.reps, e.duration.Seconds()})
	jobs := make([]job, len(choices))
	for i, c := range choices {
		jobs[i] = s.job(c, e, s.s.Seed)
	}
	reports, err := s.lab.all(ctx, jobs)
	var trials []*trial
	for i, r := range reports {
		if r != nil {
			trials = append(trials, s.trial(choices[i], r))
		}
	}
	return trials, err
}

func (s *search) job(c choice, e effort, seed uint64) job {
	one := s.space.scenario(c)
	one.Duration, one.Reps, one.Seed = e.duration, e.reps, seed
	return job{c, one}
}

func (s *search) trial(c choice, r *sim.Report) *trial {
	t := &trial{choice: c, report: *r}
	t.grade(s.targets)
	s.plan.Confidence = r.Confidence
	return t
}

// find is the search: screen, halve, refine.
func (s *search) find(ctx context.Context) error {
	given := s.space.given()
	probed, err := s.try(ctx, "probe", []choice{given}, probe(s.s))
	if err != nil {
		return err
	}
	s.load = loadOf(&probed[0].report)
	choices := s.screen()
	e := s.effort(choices, s.share, repsScreen)
	trials, err := s.try(ctx, "screen", choices, e)
	s.seen = trials
	if err != nil {
		return err
	}
	edge := spaced(front(trials, s.targets), survivorsMax)
	for reps := 2 * repsScreen; len(trials) > survivorsMax; reps *= 2 {
		trials = keep(trials, max(survivorsMax, (len(trials)+1)/2))
		if e == full(s.s) {
			continue // they have been seen as long as they will be
		}
		e = s.effort(choicesOf(trials), s.share, reps)
		if trials, err = s.try(ctx, "halve", choicesOf(trials), e); err != nil {
			return err
		}
	}
	s.seen = trials
	for round := range 2 {
		var near []choice
		for _, t := range trials[:min(finalists, len(trials))] {
			for _, c := range s.space.around(t.choice, round) {
				if !slices.Contains(near, c) && !slices.ContainsFunc(s.seen, func(o *trial) bool { return o.choice == c }) {
					near = append(near, c)
				}
			}
		}
		more, err := s.try(ctx, "refine", near, e)
		s.seen = append(s.seen, more...)
		if err != nil {
			return err
		}
		trials = keep(s.seen, survivorsMax)
	}
	edge = slices.DeleteFunc(edge, func(t *trial) bool {
		return slices.ContainsFunc(s.seen, func(o *trial) bool { return o.choice == t.choice })
	})
	more, err := s.try(ctx, "trade-offs", choicesOf(edge), e)
	s.seen = append(s.seen, more...)
	return err
}

// screen is what to begin with; it sets the share of the budget that each round has.
func (s *search) screen() []choice {
	choices := s.space.screen(screenMax)
	rounds := 3 // two to refine in, and one for the trade-offs
	for n := len(choices); ; n = (n + 1) / 2 {
		rounds++
		if n <= survivorsMax {
			break
		}
	}
	s.share = s.searchBudget(choices) / float64(rounds)
	// Twice the share may go into a good beginning. Where even the least effort takes more, fewer begin.
	e := s.effort(choices, 0, repsMin)
	if cost := s.perSecond(choices) * e.duration.Seconds() * float64(e.reps); cost > 2*s.share {
		choices = s.space.screen(max(screenMin, int(float64(len(choices))*2*s.share/cost)))
	}
	return choices
}

// searchBudget is what is left when the confirmation has been set aside, and a quarter of all if that is little.
func (s *search) searchBudget(choices []choice) float64 {
	budget := float64(s.planner.Budget)
	if budget <= 0 {
		budget = DefaultBudget
	}
	runs := float64(finalists*confirmRounds + 1 + len(Stresses) + adviceRuns)
	once := s.perSecond(choices[:1]) * s.s.Duration.Seconds() * float64(s.s.Reps)
	return max(budget-float64(runs*once), float64(budget/4))
}

// perSecond is what a simulated second of all choices together takes, in requests. What was simulated tells; what was
// not is estimated.
func (s *search) perSecond(choices []choice) float64 {
	sum := 0.0
	for _, c := range choices {
		low, high := callsEstimate(s.space.scenario(c), s.load)
		calls := (low + high) / 2
		if i := slices.IndexFunc(s.seen, func(t *trial) bool { return t.choice == c }); i >= 0 {
			calls = s.seen[i].calls()
		}
		sum += s.load.requestsPerS + float64(callCost*calls)
	}
	return sum
}

func (s *search) effort(choices []choice, requests float64, reps int) effort {
	longest := time.Duration(0)
	for _, c := range choices {
		longest = max(longest, c.target)
	}
	return within(s.s, longest, requests, s.perSecond(choices), reps)
}

func choicesOf(trials []*trial) []choice {
	choices := make([]choice, len(trials))
	for i, t := range trials {
		choices[i] = t.choice
	}
	return choices
}

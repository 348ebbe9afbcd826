package search

import (
	"context"
	"fmt"
	"math"
	"slices"
)

// tradeOffsMax bounds the list of what else could be had.
const tradeOffsMax = 8

// confirm runs the best of the search at full length on fresh seeds, until one meets the targets
// there too, and under the stresses that must hold.
func (a *answer) confirm(ctx context.Context) error {
	var failed []*trial
	failedStress := ""
	for turn := range slices.Chunk(candidates(a.seen), finalists) {
		choices := append(choicesOf(turn), a.space.given())
		trials, err := a.simulate(ctx, "confirm", choices, a.scenarios(choices, full(a.s), a.plan.ConfirmSeed))
		if err != nil {
			return err
		}
		given := trials[len(trials)-1]
		for _, t := range trials[:len(turn)] {
			if t.surely < 0 {
				failed = append(failed, t)
				continue
			}
			turns := []*trial{t}
			if given.surely >= 0 && given.calls() <= t.calls()*(1+alike) {
				turns = []*trial{given, t} // what runs already need not change for what nobody would notice
			}
			for _, t := range turns {
				stresses, broken, err := a.stress(ctx, t.choice)
				if err != nil {
					return err
				}
				if broken == "" {
					a.found(t, given, stresses)
					return nil
				}
				failed, failedStress = append(failed, t), broken
			}
		}
	}
	return a.infeasible(safest(failed), failedStress)
}

// stress runs c in harder worlds; broken is the first that must hold and does not.
func (a *answer) stress(ctx context.Context, c choice) (all []Stress, broken string, err error) {
	choices := slices.Repeat([]choice{c}, len(Stresses))
	scenarios := a.scenarios(choices, full(a.s), a.plan.ConfirmSeed)
	for i, name := range Stresses {
		scenarios[i] = stressed(scenarios[i], name)
	}
	trials, err := a.simulate(ctx, "stress", choices, scenarios)
	if err != nil {
		return nil, "", err
	}
	for i, name := range Stresses {
		part := forgiven(a.s, name)
		targets := forgiving(a.targets, part)
		t := trials[i]
		t.grade(targets)
		one := Stress{
			Name:        name,
			Description: underStress(a.s, name),
			Must:        slices.Contains(a.q.MustHold, name),
			Meets:       t.surely >= 0,
			Forgiven:    part,
			Margins:     margins(targets, &t.report.Figures),
			Figures:     t.report.Figures,
		}
		all = append(all, one)
		if one.Must && !one.Meets && broken == "" {
			broken = name
		}
	}
	return all, broken, nil
}

// found writes the answer down.
func (a *answer) found(t, given *trial, stresses []Stress) {
	chosen, own := a.candidate(t), a.candidate(given)
	a.plan.Verdict, a.plan.Chosen, a.plan.Given, a.plan.Stress = Found, &chosen, &own, stresses
	a.plan.TradeOffs = a.tradeOffs()
	a.plan.Code = goCode(a.space.scenario(t.choice))
}

// infeasible writes the closest miss down.
func (a *answer) infeasible(closest *trial, stress string) error {
	a.plan.Verdict, a.plan.TradeOffs = Infeasible, a.tradeOffs()
	m := &Miss{Closest: a.candidate(closest), RepsNeeded: a.repsNeeded(closest)}
	a.plan.Miss = m
	if stress != "" && closest.surely >= 0 {
		m.Stress = stress
		return fmt.Errorf("%w under stress (%s)", ErrInfeasible, stress)
	}
	worst := slices.MinFunc(m.Closest.Margins, func(a, b Margin) int {
		return int(math.Copysign(1, a.Margin-b.Margin))
	})
	word := "at most"
	if worst.Floor {
		word = "at least"
	}
	return fmt.Errorf("%w: the closest has %s %.4g, must be %s %.4g", ErrInfeasible, worst.Figure, worst.Value, word, worst.Bound)
}

// repsNeeded is how many replications would narrow t's intervals enough, if their means stay: an
// interval's width goes with the root of their number.
func (a *answer) repsNeeded(t *trial) int {
	if t.means < 0 || t.surely >= 0 {
		return 0
	}
	most := 0.0
	for _, x := range a.targets {
		mean, edge := x.value(&t.report.Figures, expected), x.value(&t.report.Figures, pessimistic)
		if ratio := (edge - mean) / (x.Bound - mean); ratio > 1 {
			most = max(most, float64(ratio*ratio))
		}
	}
	n := math.Ceil(float64(most * float64(t.report.Reps)))
	if !(n <= 10_000) { // as many as a scenario may have
		return 0
	}
	return int(n)
}

// tradeOffs are what else could be had, as the search saw it last.
func (a *answer) tradeOffs() (all []Candidate) {
	for _, t := range spaced(front(a.seen, a.targets), tradeOffsMax) {
		all = append(all, a.candidate(t))
	}
	return all
}

func (a *answer) candidate(t *trial) Candidate {
	return Candidate{
		Policy:       policyOf(t.choice),
		ScenarioHash: a.space.scenario(t.choice).Hash(),
		Seed:         t.report.Seed,
		Reps:         t.report.Reps,
		DurationS:    t.report.DurationS,
		Meets:        t.surely >= 0,
		Margins:      margins(a.targets, &t.report.Figures),
		Figures:      t.report.Figures,
	}
}

func policyOf(c choice) Policy {
	return Policy{c.target.String(), c.ttl.String(), c.overcommit}
}

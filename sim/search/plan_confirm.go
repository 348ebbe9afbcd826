package search

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
)

// confirm runs the best of the search, and what it could be traded for, at full length on fresh
// seeds, beside the scenario's own policy. The best of those that meet the targets there too, and
// under the stresses that must hold, is chosen. Where the time is over, it is the best of those
// that have been confirmed by then, the scenario's own among them.
func (p *planning) confirm(ctx, whole context.Context) error {
	policies := policiesOf([]*trial{{scenario: p.q.Scenario}}, promising(p.seen, pessimistic, finalists),
		spaced(worthwhile(front(p.seen), nil), tradeOffsMax), spaced(nearMisses(p.seen), finalists))
	wanted := p.trials(confirm, p.plan.ConfirmSeed, policies)
	p.ahead = float64(len(Stresses)) * effortOf(wanted[0])
	trials, err := p.simulate(whole, confirm.phase, wanted)
	late := errors.Is(err, sim.ErrInterrupted) && ctx.Err() == nil && wanted[0].report != nil
	if late {
		p.plan.CutShort = confirm.phase
	} else if err != nil {
		return err
	}
	given := p.candidate(wanted[0])
	broken := ""
	for _, t := range ranked(trials, pessimistic) {
		if !t.meets(pessimistic) {
			break
		}
		var stresses []Stress
		if !late {
			stresses, err = p.stress(whole, t)
			late = errors.Is(err, sim.ErrInterrupted) && ctx.Err() == nil
			if late && p.plan.CutShort == "" {
				p.plan.CutShort = hardship.phase
			} else if err != nil && !late {
				return err
			}
		}
		if late && len(p.q.MustHold) > 0 {
			return fmt.Errorf("search: %w: the time is over, and no stress that must hold has been tried", sim.ErrInterrupted)
		}
		i := slices.IndexFunc(stresses, func(s Stress) bool { return s.Must && !s.Meets })
		if i < 0 {
			chosen := p.candidate(t)
			p.plan.Verdict, p.plan.Chosen, p.plan.Given, p.plan.Stress = Found, &chosen, &given, stresses
			p.plan.Code = goCode(t.scenario)
			p.plan.RequestsPerS = float64(t.report.Machine.Requests) / (float64(t.report.Reps) * t.report.DurationS)
			p.tradeOffs(trials, t)
			p.enough(t)
			p.plan.Needs, p.plan.Relief, err = p.needsOf(whole, t)
			if errors.Is(err, sim.ErrInterrupted) {
				err = nil // the policy stands without
			}
			return err
		}
		broken = stresses[i].Name
	}
	if late {
		return fmt.Errorf("search: %w: the time is over, and nothing that meets the targets is confirmed", sim.ErrInterrupted)
	}
	p.tradeOffs(trials, nil)
	return p.infeasible(trials, broken)
}

// enough says so where the scenario is too short for its fleet to settle, with the policy of t:
// then what is rejected once, as at the start, counts as if it went on.
func (p *planning) enough(t *trial) {
	s := p.q.Scenario
	s.Policy = t.scenario.Policy
	p.plan.EnoughS = s.Enough().Seconds()
}

// stress runs the policy of a confirmed trial in harder worlds.
func (p *planning) stress(ctx context.Context, calm *trial) (all []Stress, err error) {
	trials := p.trials(hardship, p.plan.ConfirmSeed, slices.Repeat([]lease.Policy{calm.scenario.Policy}, len(Stresses)))
	for i, name := range Stresses {
		t, one := trials[i], Stress{Name: name, Must: slices.Contains(p.q.MustHold, name)}
		t.scenario, one.Description = stressed(t.scenario, name)
		all = append(all, one)
	}
	p.ahead = 0
	if _, err := p.simulate(ctx, hardship.phase, trials); err != nil {
		return nil, err
	}
	for i, t := range trials {
		if name := Stresses[i]; name == StressOutage || name == StressCrash || name == StressLostBucket {
			all[i].PerHour = burden(t, &calm.report.Figures)
		}
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
	p.enough(closest)
	if stress != "" {
		return fmt.Errorf("%w under stress (%s)", ErrInfeasible, stress)
	}
	margins := p.plan.Miss.Closest.Margins
	worst := slices.MinFunc(margins, func(a, b Margin) int { return cmp.Compare(a.Margin, b.Margin) })
	return fmt.Errorf("%w: the closest has %s of %s, and must have %s", ErrInfeasible,
		worst.Figure, worst.value6(worst.Value), worst.Threshold)
}

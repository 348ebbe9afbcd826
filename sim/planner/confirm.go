package planner

import (
	"context"
	"fmt"
	"slices"

	"github.com/yuzhi-go/yuzhi/sim"
)

// The phases that run at full length on the fresh seeds; phaseAdvice is the third.
const phaseConfirm, phaseStress = "confirm", "stress"

// confirm runs the best of the search at full length on fresh seeds, until one meets the targets there too.
func (s *search) confirm(ctx context.Context) error {
	queue := candidates(s.seen)
	var failed []*trial
	var given *trial
	stress := ""
	for range confirmRounds {
		turn := queue[:min(finalists, len(queue))]
		if queue = queue[len(turn):]; len(turn) == 0 {
			break
		}
		queue = lastTurn(queue)
		choices := append(choicesOf(turn), s.space.given())
		trials, err := s.fresh(ctx, phaseConfirm, choices)
		if err != nil {
			return err
		}
		given = trials[len(trials)-1]
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
				stresses, broken, err := s.stress(ctx, phaseStress, t.choice)
				if err != nil {
					return err
				}
				if broken == "" {
					return s.found(ctx, t, given, stresses)
				}
				failed, stress = append(failed, t), broken
			}
		}
	}
	return s.infeasible(ctx, failed, stress)
}

// lastTurn is whom to try when the first finalists have failed: some of the queue, and the one with the most room.
func lastTurn(queue []*trial) []*trial {
	if len(queue) <= finalists {
		return queue
	}
	safe := safest(queue)
	others := slices.DeleteFunc(slices.Clone(queue), func(t *trial) bool { return t == safe })
	return append(spaced(others, finalists-1), safe)
}

// fresh runs choices in full on seeds that the search has not seen.
func (s *search) fresh(ctx context.Context, phase string, choices []choice) ([]*trial, error) {
	s.phase = phase
	e := full(s.s)
	s.plan.Phases = append(s.plan.Phases, Phase{s.phase, len(choices), e.reps, e.duration.Seconds()})
	jobs := make([]job, len(choices))
	for i, c := range choices {
		jobs[i] = s.job(c, e, s.plan.ConfirmSeed)
	}
	reports, err := s.lab.all(ctx, jobs)
	if err != nil {
		return nil, err
	}
	trials := make([]*trial, len(choices))
	for i, r := range reports {
		trials[i] = s.trial(choices[i], r)
	}
	return trials, nil
}

// stress runs c in harder worlds; broken is the first that must hold and does not.
func (s *search) stress(ctx context.Context, phase string, c choice) (all []Stress, broken string, err error) {
	s.phase = phase
	e := full(s.s)
	s.plan.Phases = append(s.plan.Phases, Phase{s.phase, len(Stresses), e.reps, e.duration.Seconds()})
	jobs := make([]job, len(Stresses))
	for i, name := range Stresses {
		jobs[i] = s.job(c, e, s.plan.ConfirmSeed)
		jobs[i].s = stressed(jobs[i].s, name)
	}
	reports, err := s.lab.all(ctx, jobs)
	if err != nil {
		return nil, "", err
	}
	for i, name := range Stresses {
		t := s.trial(c, reports[i])
		part := forgiven(s.s, name)
		targets := forgiving(s.targets, part)
		t.grade(targets)
		one := Stress{
			Name:        name,
			Description: underStress(s.s, name),
			Must:        slices.Contains(s.q.MustHold, name),
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

// found writes the answer down. Nothing of it is written where the advice is interrupted.
func (s *search) found(ctx context.Context, t, given *trial, stresses []Stress) error {
	binding, err := s.binding(ctx, t)
	if err != nil {
		return err
	}
	s.plan.Verdict, s.plan.Binding = Found, binding
	chosen, own := s.candidate(t), s.candidate(given)
	own.Differences = differences(given, t)
	s.plan.Chosen, s.plan.Given, s.plan.Stress = &chosen, &own, stresses
	one := s.space.scenario(t.choice)
	s.plan.Estimates = Estimates(one, s.load.tokensPerS, s.load.members)
	if t.target < targetHigh && t.target == s.space.longest(t.overcommit, t.burst) {
		s.plan.TargetCap = t.target.String()
	}
	s.plan.TradeOffs = s.tradeOffs()
	s.plan.Code = Code(one, s.plan)
	s.plan.YAML = YAML(one, s.s)
	return nil
}

func (s *search) candidate(t *trial) Candidate {
	r := &t.report
	return Candidate{
		Policy:       s.policy(t.choice),
		ScenarioHash: s.space.scenario(t.choice).Hash(),
		Seed:         r.Seed,
		Reps:         r.Reps,
		DurationS:    r.DurationS,
		Meets:        t.surely >= 0,
		Margins:      margins(s.targets, &r.Figures),
		Figures:      r.Figures,
	}
}

func (s *search) policy(c choice) Policy {
	limits := s.space.scenario(c).Limits
	return Policy{c.target.String(), c.ttl.String(), c.overcommit, smallestBurst(limits)}
}

func margins(targets []Target, f *sim.Figures) []Margin {
	all := make([]Margin, len(targets))
	for i, t := range targets {
		m := t.margin(f, pessimistic)
		all[i] = Margin{Target: t, Value: t.value(f, pessimistic), Meets: m >= 0, Margin: m, Clamped: t.clamped(f)}
		if t.Figure == boundFigure && m >= 0 {
			all[i].Margin = 0 // infinite, which JSON does not have
		}
	}
	return all
}

// differences are a minus b, which ran alike.
func differences(a, b *trial) map[string]sim.Difference {
	all := make(map[string]sim.Difference)
	of := b.report.Figures.All()
	for i, named := range a.report.Figures.All() {
		all[named.Name] = named.Minus(*of[i].Figure, b.report.Confidence)
	}
	return all
}

// infeasible writes the closest miss down.
func (s *search) infeasible(ctx context.Context, failed []*trial, stress string) error {
	s.plan.Verdict = Infeasible
	closest := safest(failed)
	s.plan.TradeOffs = s.tradeOffs()
	miss, err := s.miss(ctx, closest, stress)
	if err != nil {
		return err
	}
	s.plan.Miss = miss
	if stress != "" && closest.surely >= 0 {
		return fmt.Errorf("%w under stress (%s)", ErrInfeasible, stress)
	}
	worst := miss.Missed[0]
	return fmt.Errorf("%w: the closest has %s %.4g, must be %s", ErrInfeasible, worst.Figure, worst.Value, worst.Target.bound())
}

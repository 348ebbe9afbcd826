package planner

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// levers tries what the question did not allow: more overcommit, and larger bursts. Of each it returns the least that
// makes the question feasible, on the fresh seeds too, if one does.
func (s *search) levers(ctx context.Context, near choice) (all []Lever, err error) {
	burst := max(near.burst, s.space.burst)
	for _, kind := range []string{"overcommit", "burst"} {
		var choices []choice
		for _, part := range []int64{1, 2, 4} {
			for _, scale := range []float64{1, 0.5, 2} {
				c := near
				c.target = time.Duration(twoDigits(float64(near.target) * scale))
				if kind == "burst" {
					c.burst = burst * part * 2
				} else if c.overcommit = (burst*part + 3) / 4; c.overcommit <= s.space.overcommitMax {
					continue
				}
				if c, ok := s.space.fit(c, s.space.multiple(near)); ok && !slices.Contains(choices, c) {
					choices = append(choices, c)
				}
			}
		}
		trials, err := s.try(ctx, "levers", choices, s.effort(choices, s.share, repsScreen))
		if err != nil {
			return nil, err
		}
		value := func(c choice) int64 {
			if kind == "burst" {
				return c.burst
			}
			return c.overcommit
		}
		trials = slices.DeleteFunc(trials, func(t *trial) bool { return t.surely < 0 })
		slices.SortStableFunc(trials, func(a, b *trial) int {
			return cmp.Or(cmp.Compare(value(a.choice), value(b.choice)), cmp.Compare(a.calls(), b.calls()))
		})
		for _, t := range trials {
			again, err := s.confirmed(ctx, t.choice)
			if err != nil {
				return nil, err
			}
			if again != nil {
				all = append(all, Lever{Name: kind, Value: value(t.choice), Candidate: s.candidate(again)})
				break
			}
		}
	}
	return all, nil
}

// confirmed is c on the fresh seeds, or nil where it misses a target there or under a stress that must hold.
func (s *search) confirmed(ctx context.Context, c choice) (*trial, error) {
	trials, err := s.fresh(ctx, phaseAdvice, []choice{c})
	if err != nil || trials[0].surely < 0 {
		return nil, err
	}
	if len(s.q.MustHold) > 0 {
		if _, broken, err := s.stress(ctx, phaseAdvice, c); err != nil || broken != "" {
			return nil, err
		}
	}
	return trials[0], nil
}

package search

import (
	"context"
	"math"

	"github.com/yuzhi-go/yuzhi/lease"
)

// The sizes that grow tries: at most growMost processes and growTimes of the scenario's, and between the last
// that holds and the first that fails, until these are growNear apart.
const growMost, growTimes, growNear = 10_000, 16, 1.07

// grow doubles the processes of a confirmed trial until a target fails, and halves the interval then. When
// the time limit ends it, the answer has the sizes seen until then; nil where there are none.
func (p *planning) grow(ctx context.Context, calm *trial) (*Grow, error) {
	now := processesOf(calm.scenario)
	g, holds, fails := &Grow{Holds: now}, 1.0, 0.0
	for p.hasTime(stressPhase) {
		times := 2 * holds
		if fails > 0 {
			times = math.Sqrt(holds * fails)
		}
		t := p.trials(stressPhase, p.plan.ConfirmSeed, []lease.Policy{calm.scenario.Policy})[0]
		t.scenario = grown(t.scenario, times)
		n := processesOf(t.scenario)
		if fails == 0 && (n > growMost || times > growTimes) || n == g.Holds || n == g.Fails ||
			fails > 0 && fails/holds < growNear {
			break
		}
		if _, late, err := p.run(ctx, stressPhase, []*trial{t}); err != nil {
			return g, err
		} else if late {
			break
		}
		if t.meets(pessimistic) {
			g.Holds, holds = n, times
			continue
		}
		g.Fails, fails, g.Miss = n, times, nil
		for _, m := range t.graded().Margins {
			if !m.Meets && (g.Miss == nil || m.Margin < g.Miss.Margin) {
				g.Miss = &m
			}
		}
	}
	if g.Holds == now && g.Fails == 0 {
		return nil, nil
	}
	return g, nil
}

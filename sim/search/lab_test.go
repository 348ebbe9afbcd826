package search

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim"
)

func TestALabRunsAsManyAtOneTimeAsItIsToldAndEachOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Given runs that wait for one another, and each of 20 scenarios twice,
		var trials []*trial
		for i := range 40 {
			trials = append(trials, &trial{scenario: fleet()})
			trials[i].scenario.Seed = uint64(i%20 + 1)
		}
		var running atomic.Int64
		gate, told := make(chan struct{}), 0
		w := Lab{func(_ context.Context, s sim.Scenario) (sim.Report, error) {
			running.Add(1)
			<-gate
			return sim.Report{Seed: s.Seed, Machine: sim.Machine{Requests: 10}}, nil
		}, 3, func(p Progress) {
			told++
			testkit.Check(t, p.Phase == "try" && p.Done == told && p.Of == 20, "%+v, want %d of 20", p, told)
		}}.begin()
		go func() {
			// when nothing goes on any more, then three have begun,
			synctest.Wait()
			testkit.Check(t, running.Load() == 3, "%d run at one time", running.Load())
			close(gate)
		}()
		// and in the end every scenario has its report and has run once, also when it is asked for again.
		for range 2 {
			finished, err := w.simulate(t.Context(), "try", trials)
			testkit.Check(t, err == nil && len(finished) == 40 && running.Load() == 20 && told == 20,
				"%v, %d finished after %d runs", err, len(finished), running.Load())
			for _, x := range finished {
				testkit.Check(t, x.report.Seed == x.scenario.Seed, "%+v", x)
			}
		}
		testkit.Check(t, w.machine.Requests == 200 && w.machine.Parallel == 3, "%+v", w.machine)
	})
}

// TestProgressSaysHowLongItTakes: where simulations take as long as what they simulate, a plan
// knows soon how long all its phases will take together.
func TestProgressSaysHowLongItTakes(t *testing.T) {
	for limit, within := range map[time.Duration]float64{0: 1.5, 20 * time.Second: 1.01} {
		synctest.Test(t, func(t *testing.T) {
			w := &world{f: rising(func(ms float64) float64 { return ms / 1e5 })}
			run := slow(w, func(s sim.Scenario) time.Duration { return s.Duration * time.Duration(s.Reps) / 100 })
			var ends []time.Time // that were foretold
			tell := func(p Progress) { ends = append(ends, time.Now().Add(p.Left)) }
			began := time.Now()
			_, err := Lab{run, 1, tell}.Plan(t.Context(), Question{Scenario: fleet(), TimeLimit: limit})
			took := time.Since(began)
			testkit.NoErr(t, err)
			for i, end := range ends {
				foretold := end.Sub(began)
				ratio := float64(foretold) / float64(took)
				testkit.Check(t, ratio < within && ratio > 1/within,
					"after %d of %d: %v in all were foretold, it took %v", i+1, len(ends), foretold, took)
			}
			last := ends[len(ends)-1]
			testkit.Check(t, last.Equal(time.Now()), "at the end %v are left", time.Until(last))
		})
	}
}

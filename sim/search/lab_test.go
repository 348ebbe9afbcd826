package search

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim"
)

// seeded are n trials that differ by their seeds, which begin with 1.
func seeded(n int) []*trial {
	all := make([]*trial, n)
	for i := range all {
		all[i] = &trial{name: fmt.Sprint("number ", i), scenario: fleet()}
		all[i].scenario.Seed = uint64(i + 1)
	}
	return all
}

func TestALabRunsAsManyAtOneTimeAsItIsToldAndEachOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Given runs that wait for one another, and each scenario twice,
		var running atomic.Int64
		gate := make(chan struct{})
		told := 0
		w := Lab{func(_ context.Context, s sim.Scenario) (sim.Report, error) {
			running.Add(1)
			<-gate
			return sim.Report{Seed: s.Seed, Machine: sim.Machine{Requests: 10}}, nil
		}, 3, func(p Progress) {
			told++
			testkit.Check(t, p.Phase == "try" && p.Done == told && p.Of == 20, "%+v, want %d of 20", p, told)
		}}.begin()
		ended := make(chan []*trial)
		go func() {
			finished, err := w.simulate(t.Context(), "try", append(seeded(20), seeded(20)...))
			testkit.Check(t, err == nil && len(finished) == 40, "%v, %d finished", err, len(finished))
			ended <- finished
		}()
		// when nothing goes on any more, then three have begun,
		synctest.Wait()
		testkit.Check(t, running.Load() == 3, "%d run at one time", running.Load())
		// and in the end every scenario has its report and has run once;
		close(gate)
		for i, x := range <-ended {
			testkit.Check(t, x.report.Seed == uint64(i%20+1), "report %d is %+v", i, x.report)
		}
		m := w.machine
		testkit.Check(t, running.Load() == 20 && told == 20 && m.Requests == 200 && m.Parallel == 3,
			"%d runs, progress %d, %+v", running.Load(), told, m)
		// nor do they run again.
		w.Progress = nil
		again, err := w.simulate(t.Context(), "again", seeded(21))
		testkit.Check(t, err == nil && running.Load() == 21 && again[0].report.Seed == 1,
			"%v after %d runs", err, running.Load())
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

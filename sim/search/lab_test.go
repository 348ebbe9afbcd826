package search

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

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
		}, 3, func(phase string, done, of int) {
			told++
			testkit.Check(t, phase == "try" && done == told && of == 20, "%s: %d of %d, want %d of 20",
				phase, done, of, told)
		}}.begin()
		go func() {
			// when nothing goes on any more, then three have begun,
			synctest.Wait()
			testkit.Check(t, running.Load() == 3, "%d run at one time", running.Load())
			close(gate)
		}()
		// and in the end every scenario has its report and has run once, also when it is asked for again.
		for range 2 {
			err := w.simulate(t.Context(), "try", trials)
			testkit.Check(t, err == nil && running.Load() == 20 && told == 20, "%v after %d runs", err, running.Load())
			for _, x := range trials {
				testkit.Check(t, x.report.Seed == x.scenario.Seed, "%+v", x)
			}
		}
		testkit.Check(t, w.machine.Requests == 200 && w.machine.Parallel == 3, "%+v", w.machine)
	})
}

package search

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/yuzhi-go/yuzhi/sim"
)

// seeded are n scenarios that differ by their seeds, which begin with 1.
func seeded(n int) []sim.Scenario {
	all := make([]sim.Scenario, n)
	for i := range all {
		all[i] = fleet()
		all[i].Seed = uint64(i + 1)
	}
	return all
}

func byNumber(i int) string { return fmt.Sprint("number ", i) }

func TestALabRunsAsManyAtOneTimeAsItIsToldAndEachOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Given runs that wait for one another, and each scenario twice,
		var running atomic.Int64
		gate := make(chan struct{})
		l := newLab(func(_ context.Context, s sim.Scenario) (sim.Report, error) {
			running.Add(1)
			<-gate
			return sim.Report{Seed: s.Seed, Machine: sim.Machine{Requests: 10}}, nil
		}, 3)
		told := 0
		ended := make(chan []*sim.Report)
		go func() {
			reports, err := l.all(t.Context(), append(seeded(20), seeded(20)...), byNumber, func(done, of int) {
				if told++; done != told || of != 20 {
					t.Errorf("progress is %d of %d, want %d of 20", done, of, told)
				}
			})
			if err != nil {
				t.Error(err)
			}
			ended <- reports
		}()
		// when nothing goes on any more, then three have begun,
		synctest.Wait()
		if n := running.Load(); n != 3 {
			t.Errorf("%d run at one time", n)
		}
		// and in the end every scenario has its report and has run once;
		close(gate)
		for i, r := range <-ended {
			if r == nil || r.Seed != uint64(i%20+1) {
				t.Errorf("report %d is %+v", i, r)
			}
		}
		if running.Load() != 20 || told != 20 || l.machine().Requests != 200 || l.machine().Parallel != 3 {
			t.Errorf("%d runs, progress %d, %+v", running.Load(), told, l.machine())
		}
		// nor do they run again.
		if again, err := l.all(t.Context(), seeded(21), byNumber, nil); err != nil || running.Load() != 21 || again[0].Seed != 1 {
			t.Errorf("%v after %d runs", err, running.Load())
		}
	})
}

func TestALabStartsNothingAfterAnErrorOrTheEndOfItsContext(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		err, want error
	}{{broken, broken}, {fmt.Errorf("%w: in the middle", sim.ErrInterrupted), sim.ErrInterrupted}} {
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		l := newLab(func(context.Context, sim.Scenario) (sim.Report, error) {
			if calls++; calls < 4 {
				return sim.Report{}, nil
			}
			if c.err != broken {
				cancel()
			}
			return sim.Report{}, c.err
		}, 1)
		reports, err := l.all(ctx, seeded(100), byNumber, nil)
		cancel()
		if !errors.Is(err, c.want) || calls != 4 {
			t.Errorf("%v after %d runs, want %v after 4", err, calls, c.want)
		}
		switch c.err {
		case broken: // an error names what failed
			if err.Error() != "search: number 3: broken" || reports != nil {
				t.Errorf("%v, %d reports", err, len(reports))
			}
		default: // an interruption keeps what has finished
			if err.Error() != "search: "+sim.ErrInterrupted.Error()+": 3 of 100 simulations are finished" || reports[2] == nil || reports[3] != nil {
				t.Errorf("%v, %v", err, reports)
			}
		}
	}
}

package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/rival"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

func TestRunReportsWhatValidateReports(t *testing.T) {
	s := scenario.Scenario{Duration: -time.Second, Limits: []lease.Limit{lease.PerSecond(1)}}
	want := s.Validate()
	_, err := Runner{}.Run(t.Context(), s)
	if err == nil || want == nil || err.Error() != want.Error() {
		t.Errorf("Run says\n%v\nwant\n%v", err, want)
	}
}

func TestWhateverEndsTheContextIsAnInterruption(t *testing.T) {
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	_, err := Runner{}.Run(ctx, scenario.Scenario{Limits: []lease.Limit{lease.PerSecond(1)}})
	if !errors.Is(err, ErrInterrupted) || !errors.Is(err, cause) {
		t.Errorf("the error is %v, want one that wraps %v and the cause", err, ErrInterrupted)
	}
}

func TestParallelBelowOneIsTheDefault(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r, err := Runner{Parallel: -1}.Run(ctx, scenario.Scenario{Duration: time.Second, Reps: 2,
		Limits: []lease.Limit{lease.PerSecond(10)}})
	if err != nil || r.Reps != 2 {
		t.Errorf("%d replications ended: %v", r.Reps, err)
	}
}

func TestTinyRuns(t *testing.T) {
	for _, kind := range scenario.WorkloadKinds {
		for _, warmup := range []time.Duration{0, time.Millisecond - 1} {
			// Given the shortest run that there can be,
			s := scenario.Scenario{
				Duration: time.Millisecond, Warmup: warmup, Reps: 1, Limits: []lease.Limit{lease.PerSecond(1e5)},
				Groups:   []scenario.Group{{Count: 3}},
				Workload: scenario.Workload{Kind: kind, Trace: regularly(100*time.Microsecond, time.Second)},
				Rivals:   rival.Names(),
				Redis: scenario.Redis{Faults: []scenario.RedisFault{
					{Kind: scenario.FaultFailover, At: time.Millisecond, For: time.Hour, Lost: time.Hour},
					{Kind: scenario.FaultOutage, At: 500 * time.Microsecond, For: 1},
				}},
			}
			// then its report is of numbers.
			if text := asJSON(t, reported(t, s, 1)); len(text) < 1000 {
				t.Errorf("%s: %s", kind, text)
			}
		}
	}
}

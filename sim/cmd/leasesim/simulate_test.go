package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
	scenfile "github.com/yuzhi-go/yuzhi/sim/scenario/file"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

func TestTheFlagsChangeTheScenario(t *testing.T) {
	// The file's values count, also its seed;
	line := "run -f " + fileOf(t, small)
	s := pretend(t, report(), nil, line).ends(0).ran[0]
	testkit.Check(t, s.Name == "small" && s.Seed == 5 && s.Reps == 2 && s.Duration == 2*time.Second &&
		s.Groups[0].Count == 3, "%+v", s)
	// and with flags, these count.
	e := pretend(t, report(), nil, line+" --parallel 1 --seed 7 --reps 3 --duration 4s "+
		"--set policy.target=50ms --set groups[0].count=9 --set reps=100").ends(0)
	s = e.ran[0]
	testkit.Check(t, s.Seed == 7 && s.Reps == 3 && s.Duration == 4*time.Second && s.Groups[0].Count == 9 &&
		s.Policy.Target == 50*time.Millisecond && e.runners[0].Parallel == 1, "%+v by %+v", s, e.runners)
	// Without a file it is the first example.
	e = pretend(t, report(), nil, "run").ends(0)
	want, err := scenfile.Load(defaultFile)
	testkit.Check(t, err == nil && e.ran[0].Hash() == want.Hash() && e.runners[0].Parallel == 0,
		"%v: %+v", err, e.ran)
}

func TestAThresholdThatDoesNotHoldIsStatus3AfterTheReport(t *testing.T) {
	// Given thresholds that hold,
	pretend(t, report(), nil,
		"run --threshold 'false_reject_ratio <= 3%' --threshold 'bound_exceeded_by.worst == 0'").
		ends(0).says().shows("Holds: bound_exceeded_by.worst == 0")
	// and others that do not, then the report is there, and which they are and by how much;
	e := pretend(t, report(), nil,
		"run --threshold 'false_reject_ratio < 2%' --threshold 'jain > 1' --threshold 'burnt == 0'").
		ends(exitExceeded).shows("Does not hold: false_reject_ratio < 2%", "2.0 ± 1.0 %")
	want := "leasesim: threshold does not hold: false_reject_ratio < 2%: false_reject_ratio is in [1%, 3%]\n" +
		"threshold does not hold: jain > 1: jain is 0\n"
	testkit.Check(t, e.stderr == want, "%q, want %q", e.stderr, want)
	// but an exceeded bound by itself is no failure.
	r := report()
	r.BoundExceededBy = sim.Figure{Mean: 3, Low: 3, High: 3, Worst: 3, WorstSeed: 12}
	pretend(t, r, nil,
		"run").ends(0).shows("The bound is exceeded: in the worst window the fleet admitted 3 tokens more")
}

func TestAnInterruptedRunShowsWhatIsDone(t *testing.T) {
	late := fmt.Errorf("%w after a while", sim.ErrInterrupted)
	// Given a run that ended after two of five replications, then these are shown,
	some := report()
	some.RepsAsked = 5
	pretend(t, some, late, "run --reps 5").ends(exitInterrupted).shows("Interrupted after 2 of 5 replications").
		says("the report covers the finished replications: interrupted")
	// and written;
	e := pretend(t, report(), late, "run --reps 5 --out json").ends(exitInterrupted)
	testkit.Check(t, json.Valid([]byte(e.stdout)), "%s", e.stdout)
	// thresholds do not change the status, for they are about the whole;
	pretend(t, report(), late, "run --reps 5 --threshold 'jain > 1'").ends(exitInterrupted)
	// and where none is done, nothing is shown.
	pretend(t, sim.Report{}, late, "run").ends(exitInterrupted).shows()
}

func TestCtrlCEndsARunAfterTheReplicationsThatAreDone(t *testing.T) {
	// Given a run of three replications, one at a time, that is interrupted as soon as the first is done,
	ctx, interrupt := context.WithCancel(t.Context())
	e := execute(ctx, t, func(r sim.Runner, s sim.Scenario) (sim.Report, error) {
		r.Progress = func(done float64) {
			if done >= 1.0/3 {
				interrupt()
			}
		}
		return r.Run(ctx, s)
	}, "run -f example:small-burst --duration 2s --reps 3 --parallel 1")
	// then its report is of the first.
	e.ends(exitInterrupted).shows("Interrupted after 1 of 3 replications", ", 1 replication of\n2 s")
}

func TestAFailedRunIsStatus1AndShowsNothing(t *testing.T) {
	e := pretend(t, report(), errors.New("sim: not conserved"), "run").ends(exitFailed).shows()
	testkit.Check(t, e.stderr == "leasesim: not conserved\n" && e.stdout == "", "%q, %q", e.stderr, e.stdout)
}

func TestThePageSaysHowToRepeatIt(t *testing.T) {
	file := fileOf(t, small)
	// The scenario file in it has what --set changed.
	pretend(t, report(), nil, "run -f "+file+" --set 'name=a b' --out html").ends(0).
		shows("leasesim run -f "+file+" --set &#39;name=a b&#39; --out html --seed 11", "name: a b")
}

func TestCompareRunsItsRivals(t *testing.T) {
	own := "compare -f " + fileOf(t, room)
	for line, want := range map[string][]string{
		own:                           {"fixed_window"}, // as the scenario names it
		own + " --rivals sliding_log": {"sliding_log"},
		"compare --rivals local_batches,fixed_window": {"local_batches", "fixed_window"},
	} {
		e := pretend(t, report(), nil, line).ends(0).shows(view.Own, "excess")
		testkit.Check(t, slices.Equal(e.ran[0].Rivals, want), "%s: %v, want %v", line, e.ran[0].Rivals, want)
	}
	// Without names, all run that can.
	all := pretend(t, report(), nil, "compare").ends(0).ran[0].Rivals
	known := slices.Contains(all, "central") && slices.Contains(all, "settle_afterwards")
	testkit.Check(t, known && len(all) >= 10, "%v", all)
	e := pretend(t, report(), nil, "compare --out json --threshold 'jain > 2'").ends(exitExceeded)
	testkit.Check(t, prints[sim.Report](e).Reps > 0, "%s", e.stdout)
}

// simulated is the report of a real simulation.
func simulated(t *testing.T, line string) sim.Report {
	t.Helper()
	return prints[sim.Report](leasesim(t, line+" --out json").ends(0))
}

func TestTheExamplesRun(t *testing.T) {
	examples := scenfile.Examples()
	testkit.Check(t, len(examples) >= 6, "there are %d examples", len(examples))
	reps := "" // as many as the example has
	whole := testkit.Long(t, "one replication of every other fleet", "all examples as they are")
	long := whole && !testkit.RaceEnabled
	if !long {
		reps = " --reps 1"
	}
	for i, e := range examples {
		s, err := scenfile.Load("example:" + e.Name)
		testkit.NoErr(t, err)
		if !long && s.Groups[0].Count >= 1000 || !whole && i%2 == 1 {
			continue // with the race detector a large fleet takes minutes
		}
		r := simulated(t, "run -f example:"+e.Name+reps)
		shown := r.Scenario == e.Name && r.Admitted.Mean > 0 && len(r.Series.Admitted) > 0 && len(r.Members) > 0
		testkit.Check(t, shown, "%s: %+v", e.Name, r)
		onlyLeases := s.Policy.Fallback == lease.FallbackDeny && s.Policy.ColdStart == lease.ColdStartDeny
		testkit.Check(t, !onlyLeases || r.BoundExceededBy.Worst == 0,
			"%s: the bound is exceeded by %v with seed %d",
			e.Name, r.BoundExceededBy.Worst, r.BoundExceededBy.WorstSeed)
		t.Logf("%s: %.2f %% of central, %.0f calls/s, bound exceeded by %v", e.Name, 100*r.AdmittedVsCentral.Mean,
			r.CallsPerS.Mean, r.BoundExceededBy.Worst)
	}
}

func TestTheWorstSeedShowsTheWorstValueAgain(t *testing.T) {
	const line = "run -f example:small-burst --set workload.kind=onoff --duration 2s"
	worst := simulated(t, line+" --reps 5").FalseRejectRatio
	again := simulated(t, fmt.Sprintf("%s --reps 1 --seed %d", line, worst.WorstSeed)).FalseRejectRatio
	testkit.Check(t, worst.Worst != 0 && again.Mean == worst.Worst,
		"seed %d gave %v and now gives %v", worst.WorstSeed, worst.Worst, again.Mean)
}

func TestAReportThatCannotBeMadeIsNotBegun(t *testing.T) {
	// Given a report that JSON cannot say, as it has an infinite figure,
	r := report()
	r.Burnt.Mean = math.Inf(1)
	// when it is written, then nothing is.
	e := pretend(t, r, nil, "run --out json").ends(exitFailed)
	testkit.Check(t, e.stdout == "", "%q", e.stdout)
}

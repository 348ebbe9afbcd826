package main

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
	scenfile "github.com/yuzhi-go/yuzhi/sim/scenario/file"
)

// simulated is the report that a command line prints as JSON.
func simulated(t *testing.T, line string) (r sim.Report) {
	t.Helper()
	status, stdout, stderr := leasesim(t, line+" --out json")
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || status != 0 {
		t.Fatalf("leasesim %s: status %d, %s: %v", line, status, stderr, err)
	}
	return r
}

func TestTheExamplesRun(t *testing.T) {
	examples := scenfile.Examples()
	if len(examples) < 6 {
		t.Errorf("there are %d examples", len(examples))
	}
	reps := testkit.PlainOrRace("", " --reps 1") // as many as the example has, unless that takes ten times as long
	for _, e := range examples {
		s, err := scenfile.Load("example:" + e.Name)
		testkit.NoErr(t, err)
		r := simulated(t, "run -f example:"+e.Name+reps)
		if r.Scenario != e.Name || r.Admitted.Mean == 0 || len(r.Series.Admitted) == 0 || len(r.Members) == 0 {
			t.Errorf("%s: %+v", e.Name, r)
		}
		// A server's clock that jumps ahead is more tokens by its own account.
		steps := slices.ContainsFunc(s.Redis.Faults, func(f sim.RedisFault) bool { return f.Kind == sim.FaultClockStep && f.By > 0 })
		onlyLeases := s.Policy.Fallback == lease.FallbackDeny && s.Policy.ColdStart == lease.ColdStartDeny && !s.Redis.ClientTime
		if onlyLeases && !steps && r.BoundExceededBy.Worst != 0 {
			t.Errorf("%s: the bound is exceeded by %v with seed %d", e.Name, r.BoundExceededBy.Worst, r.BoundExceededBy.WorstSeed)
		}
		t.Logf("%s: %.2f %% of central, %.0f calls/s, bound exceeded by %v", e.Name, 100*r.AdmittedVsCentral.Mean, r.CallsPerS.Mean, r.BoundExceededBy.Worst)
	}
}

func TestTheReportIsTheSameWhateverParallelIs(t *testing.T) {
	const line = "compare -f example:small-burst --reps 3 --duration 2s --seed 9 --rivals central,fixed_window,settle_afterwards"
	one, two := simulated(t, line+" --parallel 1"), simulated(t, line+" --parallel 2")
	one.Machine, two.Machine = sim.Machine{}, sim.Machine{}
	a, errA := json.Marshal(one)
	b, errB := json.Marshal(two)
	if errA != nil || errB != nil || !bytes.Equal(a, b) {
		t.Errorf("%v, %v\n%s\n%s", errA, errB, a, b)
	}
	if one.Seed != 9 || one.Reps != 3 || len(one.Rivals) != 3 || one.Rivals[1].Name != "fixed_window" {
		t.Errorf("%+v", one)
	}
}

func TestTheWorstSeedShowsTheWorstValueAgain(t *testing.T) {
	const line = "run -f example:small-burst --duration 2s"
	worst := simulated(t, line+" --reps 5").FalseRejectRatio
	again := simulated(t, line+" --reps 1 --seed "+strconv.FormatUint(worst.WorstSeed, 10)).FalseRejectRatio
	if worst.Worst == 0 || again.Mean != worst.Worst {
		t.Errorf("seed %d gave %v and now gives %v", worst.WorstSeed, worst.Worst, again.Mean)
	}
}

func TestCtrlCEndsARunAfterTheReplicationsThatAreDone(t *testing.T) {
	// Given a run of three replications, one at a time, that is interrupted as soon as the first is
	// done,
	ctx, interrupt := context.WithCancel(t.Context())
	p := program{
		args: strings.Fields("run -f example:small-burst --duration 2s --reps 3 --parallel 1"),
		simulate: func(r sim.Runner, ctx context.Context, s sim.Scenario) (sim.Report, error) {
			r.Progress = func(done float64) {
				if done >= 1.0/3 {
					interrupt()
				}
			}
			return r.Run(ctx, s)
		},
	}
	// when it ends,
	var stdout, stderr bytes.Buffer
	status := p.run(ctx, &stdout, &stderr)
	// then its report is of the first.
	if status != exitInterrupted || !strings.Contains(stdout.String(), "Interrupted after 1 of 3 replications") || !strings.Contains(stdout.String(), ", 1 replication of 2 s") {
		t.Errorf("status %d, %s\n%s", status, stderr.String(), stdout.String())
	}
}

func TestATraceIsReplayed(t *testing.T) {
	// Given a trace of five requests, of which the bucket has room for three,
	file := scenarioFile(t, "limits: [1/h burst 3]\nreps: 1\npolicy: {fallback: deny}\nnetwork: {round_trip: 1ms}\n")
	recorded := scenarioFile(t, "time_s\n0.1\n0.2\n0.3\n0.4\n0.5\n")
	// when it is replayed,
	r := simulated(t, "replay -f "+file+" --trace "+recorded)
	// then three are admitted.
	if r.Offered.Mean != 5 || r.Admitted.Mean != 3 || r.CentralAdmitted.Mean != 3 {
		t.Errorf("%v offered, %v admitted, %v by one central bucket", r.Offered.Mean, r.Admitted.Mean, r.CentralAdmitted.Mean)
	}
}

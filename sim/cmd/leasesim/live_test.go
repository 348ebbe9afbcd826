package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/cmd/leasesim/internal/live"
	scenfile "github.com/yuzhi-go/yuzhi/sim/scenario/file"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

func TestARedisThatIsNotThereIsStatus1(t *testing.T) {
	for _, line := range []string{"live --redis 127.0.0.1:1", "compare --live --redis 127.0.0.1:1"} {
		e := pretend(t, report(), nil, line).ends(exitFailed).says("127.0.0.1:1 does not answer").shows()
		testkit.Check(t, len(e.ran) == 0, "%s simulates", line)
	}
}

func TestAnExceededBoundIsStatus3(t *testing.T) {
	var out bytes.Buffer
	f := &shared{cmd: &cobra.Command{}, out: view.FormatTable}
	f.cmd.SetOut(&out)
	err := f.showFleet(&live.Report{BoundExceededBy: 1, Processes: make([]live.Process, 1), DurationMs: 1}, nil)
	testkit.Check(t, statusOf(err) == exitExceeded && strings.Contains(out.String(), "THE BOUND IS EXCEEDED by 1 token"),
		"%v\n%s", err, &out)
}

// TestFleetKeepsTheBound on an embedded and on a real Redis, under each shape of load, on a cluster,
// and while a process is killed and another stopped.
func TestFleetKeepsTheBound(t *testing.T) {
	addr := redistest.Start(t).Addr
	const fleet = "--set groups[0].count=3 --set 'limits=[5000/s burst 1000]' --duration 1s "
	long := testkit.Long(t, "a steady load on the embedded Redis", "all shapes of load")
	for i, load := range []string{"{kind: constant, load: 2}", "{kind: sync, load: 2}", "{kind: adversary}"} {
		t.Run(load, func(t *testing.T) {
			t.Parallel()
			line := fleet + "--set 'workload=" + load + "' "
			if i == 0 || long {
				checkFleet(t, line)
			}
			checkFleet(t, line+"--set policy.overcommit=100 --redis "+addr)
		})
	}
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, "--cluster-enabled", "yes", "--requirepass", "secret")
		admin := redis.NewClient(&redis.Options{Addr: server.Addr, Password: "secret"})
		defer admin.Close()
		testkit.NoErr(t, admin.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
		testkit.Eventually(t, "a cluster that is up", func() bool {
			return strings.Contains(admin.ClusterInfo(t.Context()).Val(), "cluster_state:ok")
		})
		checkFleet(t, fleet+"--redis redis+cluster://:secret@"+server.Addr)
	})
	t.Run("killed and stopped", func(t *testing.T) {
		testkit.RequireSignals(t)
		t.Parallel()
		// The report keeps the admissions of the killed process.
		checkFleet(t, fleet+"--duration 2s --set policy.strict_expiry=true --set 'groups[0].pauses={at: 300ms, for: "+
			"800ms}' --set 'groups[0].scale=[{at: 500ms, count: 2, kill: true}]' --redis "+addr,
			func(r live.Report) bool {
				p := r.Processes
				return p[0].Fate == "stopped" && p[2].Fate == "killed" && p[2].Admitted > 0
			})
	})
}

// TestWindowsAreKeptByAFleet whose processes ask for a whole window around its end, and one of which is
// killed.
func TestWindowsAreKeptByAFleet(t *testing.T) {
	addr, second := redistest.Start(t).Addr, time.Second
	if !testkit.Long(t, "windows of parts of a second", "windows of seconds") {
		second /= 5
	}
	// With --strict, as a machine that is busy for longer than a lease stops processes, too.
	line := fmt.Sprintf("--set 'limits=[1000 in %[1]v]' --set 'groups[0].scale=[{at: %[1]v, count: 3, kill: true}]' "+
		"--duration %[2]v", 3*second, 7*second)
	checkFleet(t, "--set policy.strict_expiry=true --set 'workload={kind: adversary}' --redis "+addr+" "+line,
		func(r live.Report) bool { return r.Central != nil })
}

// checkFleet runs a fleet and checks what must hold on any machine, however slow. It runs it again
// until some request was admitted and the report shows what the test is about: a machine that stops
// in the middle may keep one run from that.
func checkFleet(t *testing.T, line string, shows ...func(live.Report) bool) (r live.Report) {
	t.Helper()
	testkit.Eventually(t, "a run of leasesim live "+line+" that shows something", func() bool {
		r = prints[live.Report](leasesim(t, "live --out json "+line).ends(0))
		testkit.Must(t, r.BoundExceededBy == 0, "%s: %+v", line, r)
		var admitted, offered, trips int64
		for _, p := range r.Processes {
			admitted += p.Admitted
			offered += p.Offered
			trips += p.RoundTrips
			// One that is killed may have recorded an admission, and not yet counted the request.
			testkit.Check(t, p.Admitted <= p.Offered || p.Fate == "killed", "leasesim live %s: %+v", line, r)
		}
		testkit.Check(t, admitted == r.Admitted && offered == r.Offered && trips == r.RoundTrips,
			"leasesim live %s: the parts do not add up: %+v", line, r)
		t.Logf("leasesim live %s: admitted %d of %d, %d round trips, beside a central limiter %+v",
			line, r.Admitted, r.Offered, r.RoundTrips, r.Central)
		lacks := func(shows func(live.Report) bool) bool { return !shows(r) }
		return r.Admitted > 0 && r.RoundTrips > 0 && !slices.ContainsFunc(shows, lacks)
	})
	return r
}

func TestTheTableNamesEverything(t *testing.T) {
	for line, verdict := range map[string]string{
		"live --set 'limits=[100/s burst 50]' --duration 200ms":                              "The bound holds in every window",
		"live --set 'limits=[50 in 100ms]' --duration 300ms --set policy.strict_expiry=true": "The bound holds in every window",
	} {
		text := leasesim(t, line).shows("embedded", "admitted", "offered", "worst window", "round trips", "p50",
			"p99", "share").stdout
		// The verdict stands before all figures, a line fits a terminal, and no time has more digits than are
		// known.
		before, after, _ := strings.Cut(text, "figure ")
		testkit.Check(t, strings.Contains(before, verdict), "%s: no %q in\n%s", line, verdict, before)
		for row := range strings.SplitSeq(text, "\n") {
			testkit.Check(t, utf8.RuneCountInString(row) <= 80, "%s: a line of %d characters: %s", line,
				utf8.RuneCountInString(row), row)
		}
		testkit.Check(t, !regexp.MustCompile(`\.\d{3,}[µmn]?s`).MatchString(after),
			"%s: a time with four digits in\n%s", line, after)
	}
}

func TestAnInterruptedLiveRunReportsWhatWasUntilThen(t *testing.T) {
	t.Parallel()
	testkit.RequireSignals(t)
	for _, load := range []string{"{kind: constant, rate: 100/s}", "{kind: adversary}"} {
		runs := time.Second / 4
		testkit.Eventually(t, "an admission before the interrupt", func() bool {
			// Given a fleet with an hour of load, of which one process is stopped,
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			s, err := scenfile.Load(liveFile)
			testkit.NoErr(t, err)
			testkit.NoErr(t, scenfile.Set(&s, "duration=1h", "limits=[100/s burst 50]", "workload="+load, "groups[0].count=2",
				"groups[0].pauses={at: 1ms, for: 2m}", "policy.ttl=1m", "policy.target=50ms"))
			o, _, err := live.FromScenario(s, false)
			testkit.NoErr(t, err)
			// when it is interrupted while it asks,
			runs *= 2
			time.AfterFunc(runs, interrupt)
			r, err := live.Run(ctx, o)
			if r.Offered == 0 {
				return false // it was interrupted before
			}
			// then its processes end by themselves, and the report is of the time until then.
			shorter := r.DurationMs < time.Hour.Milliseconds()
			testkit.Check(t, errors.Is(err, context.Canceled) && shorter,
				"%s: %v, %+v", load, err, r)
			testkit.Check(t, r.BoundExceededBy == 0 && r.RoundTripNs.P50 > 0, "%s: %+v", load, r)
			return r.Admitted > 0
		})
	}
}

// rowNames are the figures that are compared, in their order.
var rowNames = []string{live.Offered, live.Admitted, live.Calls, live.Exceeded}

// compared runs a command line with --live until the real fleet shows something, and returns what it
// prints as JSON. Whether the two agree is for no test to say, as it depends on what else the machine
// does.
func compared(t *testing.T, line string, shows func(live.Report) bool) (b sideBySide) {
	t.Helper()
	testkit.Eventually(t, "a run of compare --live "+line+" that shows something", func() bool {
		b = comparedOnce(t, line)
		return shows(b.Real)
	})
	return b
}

func comparedOnce(t *testing.T, line string) sideBySide {
	t.Helper()
	e := leasesim(t, "compare --live --out json "+line)
	b := prints[sideBySide](e)
	var disagree []string
	for i, r := range b.Rows {
		if i >= len(rowNames) || r.Name != rowNames[i] || r.Agrees != (r.Real >= r.Low && r.Real <= r.High) {
			t.Errorf("row %d: %+v", i, r)
		}
		if !r.Agrees {
			disagree = append(disagree, r.Name)
		}
	}
	want, says := exitOK, ""
	if names := strings.Join(disagree, ", ") + "\n"; b.Busy != "" && len(disagree) > 0 {
		want, says = exitUndecided, "overloaded: "+names
	} else if len(disagree) > 0 {
		want, says = exitExceeded, "disagree: "+names
	}
	said := b.Agrees == (want == exitOK) && e.status == want && strings.HasSuffix(e.stderr, says)
	testkit.Check(t, said && len(b.Rows) == len(rowNames),
		"status %d, agrees %v, %q; %+v", e.status, b.Agrees, e.stderr, b.Rows)
	return b
}

func TestAScenarioIsRunByProcessesAndBySimulation(t *testing.T) {
	t.Parallel()
	file := fileOf(t, few)
	// Given a scenario, when it is run both ways on the embedded Redis,
	b := compared(t, "-f "+file+" --seed 9",
		func(r live.Report) bool { return r.Offered > 0 && r.RoundTripNs.P50 > 0 })
	// then both ran it,
	if len(b.Real.Processes) != 3 || b.Real.Limit != "2000/s burst 500" || b.Real.DurationMs != 500 ||
		b.Real.Shape != sim.Constant {
		t.Errorf("%+v", b.Real)
	}
	if s := b.Simulated; s.Scenario != "few" || s.Processes != 3 || s.Reps != 2 || s.Seed != 9 ||
		s.DurationS != 0.5 || len(s.Rivals) != 0 || s.Offered.Mean == 0 {
		t.Errorf("%+v", s)
	}
	// the real one on a Redis whose round trips were measured, and whose own time is not known.
	if b.Real.Redis != "embedded (miniredis)" || b.Real.RoundTripNs.P99 < b.Real.RoundTripNs.P50 ||
		b.Real.ServiceTimeNs != 0 {
		t.Errorf("%+v", b.Real)
	}
	testkit.Check(t, b.Real.BoundExceededBy == 0 && b.Simulated.BoundExceededBy.Worst == 0,
		"the bound is exceeded by %d and %v", b.Real.BoundExceededBy, b.Simulated.BoundExceededBy.Worst)
}

func TestBurstsAreComparedOnARealRedis(t *testing.T) {
	addr := redistest.Start(t).Addr
	sync := " --set workload.kind=sync --set workload.within=20ms"
	b := compared(t, "--redis "+addr+" -f "+fileOf(t, few)+sync,
		func(r live.Report) bool { return r.ServiceTimeNs > 0 })
	if b.Real.Redis != addr || b.Real.Shape != sim.Sync {
		t.Errorf("%+v", b.Real)
	}
	testkit.Check(t, b.Real.Offered == int64(b.Simulated.Offered.Mean), "%d and %v", b.Real.Offered, b.Simulated.Offered)
}

func TestAComparisonHasEveryRow(t *testing.T) {
	t.Parallel()
	leasesim(t, "compare --live -f "+fileOf(t, few)).shows("3 processes at 2000/s burst 500", "embedded", "agrees from",
		"offered ", "admitted ", "calls_per_s_and_process ", "bound_exceeded_by ")
}

func TestABusyMachineComparesNothing(t *testing.T) {
	t.Parallel()
	callTimeout := 100 * time.Millisecond
	for _, c := range []struct {
		name   string
		real   live.Report
		tooFew bool
		want   string
	}{
		{"idle", live.Report{RoundTripNs: live.Quantiles{P99: int64(callTimeout)}}, false, ""},
		{"a slow server", live.Report{RoundTripNs: live.Quantiles{P99: int64(275 * time.Millisecond)}}, false,
			"one round trip in a hundred took 275ms or longer, more than call_timeout"},
		{"late requests", live.Report{Overloaded: true, LagNs: live.Quantiles{P99: int64(30 * time.Millisecond)}}, false,
			"one request in a hundred was made 30ms late or later"},
		{"too few requests", live.Report{}, true, "one request in a hundred was made 0s late or later"},
	} {
		got := busy(c.real, callTimeout, c.tooFew)
		testkit.Check(t, got == c.want, "%s: %q, want %q", c.name, got, c.want)
	}
	testkit.Check(t, statusOf(errBusy) == exitUndecided, "status %d", statusOf(errBusy))
}

func TestADisagreementIsStatus3AndNamesTheFigures(t *testing.T) {
	t.Parallel()
	// Given a simulator whose fleet is asked for nothing, and a real one that is admitted something,
	var e execution
	line := "compare --live --threshold 'false_reject_ratio < 0.1%' -f " + fileOf(t, few)
	testkit.Eventually(t, "a fleet that is admitted something", func() bool {
		e = pretend(t, report(), nil, line)
		return strings.Contains(e.stderr, "offered, admitted,")
	})
	// then that is said, with the figures, after the table; and what threshold the simulation misses;
	text, status := "leasesim: the simulation and the real fleet disagree: offered, admitted,", exitExceeded
	if strings.Contains(e.stderr, "overloaded") { // as on a machine with other work
		text, status = "disagree, and this machine was overloaded: offered, admitted,", exitUndecided
	}
	e.ends(status).shows("DISAGREE").says(text, "false_reject_ratio < 0.1%")
	// and it was asked to simulate the scenario, on the network of the real fleet, without the
	// scenario's rivals.
	s := e.ran[0]
	asReal := s.Network.RoundTrip.Kind == sim.DistLognormal &&
		s.Redis.ServiceTime == sim.Constantly(16*time.Microsecond)
	testkit.Check(t, s.Name == "few" && asReal && s.Rivals == nil, "%+v", s)
}

func TestCtrlCEndsAComparison(t *testing.T) {
	t.Parallel()
	// Whether it comes during the real run
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	execute(ctx, t, nil, "compare --live").ends(exitInterrupted).says("no comparison").shows()
	execute(ctx, t, nil, "live").ends(exitInterrupted).says("interrupted").shows()
	// or during the simulation, nothing is compared with a half.
	half := fmt.Errorf("%w; 1 of 2 replications had ended", sim.ErrInterrupted)
	pretend(t, report(), half, "compare --live -f "+fileOf(t, few)).ends(exitInterrupted).says("no comparison").shows()
}

func TestTheVerdictSaysWhenTheMachineWasTooBusy(t *testing.T) {
	for _, c := range []struct {
		b    sideBySide
		want string
		busy bool
	}{
		{sideBySide{Agrees: true}, "The simulation and the real fleet agree.", false},
		{sideBySide{Rows: []live.Row{{Name: live.Calls}}}, "DISAGREE", false},
		{sideBySide{Busy: "requests were late"}, "DISAGREE", true},
	} {
		if got := c.b.document("", "").Verdicts[1].Text; !strings.Contains(got, c.want) ||
			strings.Contains(got, "idle machine") != c.busy {
			t.Errorf("%+v: %s", c.b, got)
		}
	}
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
	scenfile "github.com/yuzhi-go/yuzhi/sim/scenario/file"
	"github.com/yuzhi-go/yuzhi/sim/search"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

// asked is what a command asked of the simulator.
type asked struct {
	runner   sim.Runner
	scenario sim.Scenario
	times    int
}

// pretend executes a command line with a simulator that answers with r and err.
func pretend(t *testing.T, r sim.Report, err error, args ...string) (a asked, status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	p := program{args: args, simulate: func(runner sim.Runner, _ context.Context, s sim.Scenario) (sim.Report, error) {
		a = asked{runner, s, a.times + 1}
		return r, err
	}}
	status = p.run(t.Context(), &out, &errs)
	return a, status, out.String(), errs.String()
}

// report is a report of two replications in which false rejects are 1 % to 3 %.
func report() sim.Report {
	r := sim.Report{SchemaVersion: sim.SchemaVersion, Scenario: "pretended", ScenarioHash: "0123456789abcdef", Seed: 11, Reps: 2, Confidence: 0.95}
	r.FalseRejectRatio = sim.Figure{Mean: 0.02, Low: 0.01, High: 0.03, Worst: 0.04, WorstSeed: 12}
	return r
}

// scenarioFile writes a scenario file.
func scenarioFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fleet.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

const small = `
name: small
duration: 2s
seed: 5
reps: 2
limits: [100/s burst 50]
policy: {fallback: deny}
groups: [{name: web, count: 3}]
`

func TestTheFlagsChangeTheScenario(t *testing.T) {
	file := scenarioFile(t, small)
	// Given a scenario file alone, then what it says counts, also its seed;
	a, status, _, stderr := pretend(t, report(), nil, "run", "-f", file)
	s := a.scenario
	if status != 0 || s.Name != "small" || s.Seed != 5 || s.Reps != 2 || s.Duration != 2*time.Second || s.Groups[0].Count != 3 || a.runner.Parallel != 0 {
		t.Errorf("status %d, %s: %+v", status, stderr, a)
	}
	// and with flags, these count.
	a, status, _, stderr = pretend(t, report(), nil, "run", "-f", file, "--seed", "7", "--reps", "3", "--duration", "4s", "--parallel", "1",
		"--set", "policy.target=50ms", "--set", "groups[0].count=9", "--set", "reps=100")
	s = a.scenario
	if status != 0 || s.Seed != 7 || s.Reps != 3 || s.Duration != 4*time.Second || s.Groups[0].Count != 9 || s.Policy.Target != 50*time.Millisecond || a.runner.Parallel != 1 {
		t.Errorf("status %d, %s: %+v", status, stderr, a)
	}
	// Without a file it is the first example.
	a, status, _, stderr = pretend(t, report(), nil, "run")
	want, err := scenfile.Load(defaultFile)
	if err != nil {
		t.Fatal(err)
	}
	if status != 0 || a.scenario.Hash() != want.Hash() {
		t.Errorf("status %d, %s: %+v", status, stderr, a.scenario)
	}
}

func TestAThresholdThatDoesNotHoldIsStatus3AfterTheReport(t *testing.T) {
	// Given thresholds of which one holds,
	_, status, stdout, stderr := pretend(t, report(), nil, "run", "--threshold", "false_reject_ratio <= 3%", "--threshold", "bound_exceeded_by.worst == 0")
	if status != 0 || stderr != "" || !strings.Contains(stdout, "Holds: bound_exceeded_by.worst == 0") {
		t.Errorf("status %d, %s\n%s", status, stderr, stdout)
	}
	// and others that do not, then the report is there, and which they are and by how much;
	_, status, stdout, stderr = pretend(t, report(), nil, "run", "--threshold", "false_reject_ratio < 2%", "--threshold", "jain > 1", "--threshold", "burnt == 0")
	if status != exitExceeded || !strings.Contains(stdout, "Does not hold: false_reject_ratio < 2%") || !strings.Contains(stdout, "2.0 ± 1.0 %") {
		t.Errorf("status %d\n%s", status, stdout)
	}
	want := "search: threshold does not hold: false_reject_ratio < 2%: false_reject_ratio is in [0.01, 0.03]\n" +
		"search: threshold does not hold: jain > 1: jain is 0\n"
	if stderr != want {
		t.Errorf("%q, want %q", stderr, want)
	}
	// but an exceeded bound by itself is no failure.
	r := report()
	r.BoundExceededBy = sim.Figure{Mean: 3, Low: 3, High: 3, Worst: 3, WorstSeed: 12}
	if _, status, stdout, _ := pretend(t, r, nil, "run"); status != 0 || !strings.Contains(stdout, "The bound is exceeded: in the worst window the fleet admitted 3 tokens more") {
		t.Errorf("status %d\n%s", status, stdout)
	}
}

func TestAnInterruptedRunShowsWhatIsDone(t *testing.T) {
	interrupted := fmt.Errorf("%w after a while", sim.ErrInterrupted)
	file := filepath.Join(t.TempDir(), "report.json")
	// Given a run that ended after two of five replications, then these are shown,
	some := report()
	some.RepsAsked = 5
	_, status, stdout, stderr := pretend(t, some, interrupted, "run", "--reps", "5")
	if status != exitInterrupted || !strings.Contains(stdout, "Interrupted after 2 of 5 replications") || !strings.Contains(stderr, "the report is of the replications that had ended: sim: interrupted") {
		t.Errorf("status %d, %s\n%s", status, stderr, stdout)
	}
	// and written;
	if _, status, _, _ := pretend(t, report(), interrupted, "run", "--reps", "5", "--out", "json", "-o", file); status != exitInterrupted {
		t.Errorf("status %d", status)
	}
	if got, err := os.ReadFile(file); err != nil || !json.Valid(got) {
		t.Errorf("%v: %s", err, got)
	}
	// thresholds do not change the status, for they are about the whole;
	if _, status, _, _ := pretend(t, report(), interrupted, "run", "--reps", "5", "--threshold", "jain > 1"); status != exitInterrupted {
		t.Errorf("status %d", status)
	}
	// and where none is done, nothing is shown.
	if _, status, stdout, stderr := pretend(t, sim.Report{}, interrupted, "run"); status != exitInterrupted || stdout != "" || stderr == "" {
		t.Errorf("status %d, %q, %q", status, stdout, stderr)
	}
}

func TestAFailedRunIsStatus1AndShowsNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.txt")
	_, status, stdout, stderr := pretend(t, report(), errors.New("sim: not conserved"), "run", "-o", file)
	if status != exitFailed || stdout != "" || stderr != "sim: not conserved\n" {
		t.Errorf("status %d, %q, %q", status, stdout, stderr)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("there is a report")
	}
}

func TestEveryFormatSaysTheSeed(t *testing.T) {
	for format, want := range map[string]string{"table": "seed 11,", "json": `"seed": 11,`, "html": "<dt>seed</dt><dd>11</dd>"} {
		if _, status, stdout, _ := pretend(t, report(), nil, "run", "--out", format); status != 0 || !strings.Contains(stdout, want) {
			t.Errorf("%s: status %d, there is no %q", format, status, want)
		}
	}
}

func TestThePageSaysHowToRepeatIt(t *testing.T) {
	file := scenarioFile(t, small)
	_, _, page, _ := pretend(t, report(), nil, "run", "-f", file, "--set", "name=it's", "--out", "html")
	if want := "leasesim run -f " + file + ` --set &#39;name=it&#39;\&#39;&#39;s&#39; --out html --seed 11`; !strings.Contains(page, want) {
		t.Errorf("there is no %q", want)
	}
	// The scenario file in it has what --set changed.
	if !strings.Contains(page, "name: it&#39;s") {
		t.Error("the scenario file is not there")
	}
}

func TestTheCommandLineToRepeatHasTheSeed(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"run", "leasesim run --seed 3"},
		{"run --seed 3 --out csv", "leasesim run --seed 3 --out csv"},
		{"run --seed=3 --reps 2", "leasesim run --seed=3 --reps 2"},
		{"run --set limits=[1/s]", "leasesim run --set 'limits=[1/s]' --seed 3"},
	} {
		p := program{args: strings.Fields(c.args)}
		if got := p.commandLine(3); got != c.want {
			t.Errorf("%s: %q, want %q", c.args, got, c.want)
		}
	}
}

func TestCompareRunsAllRivalsThatCan(t *testing.T) {
	a, status, stdout, stderr := pretend(t, report(), nil, "compare")
	if status != 0 || !slices.Contains(a.scenario.Rivals, "central") || !slices.Contains(a.scenario.Rivals, "settle_afterwards") || len(a.scenario.Rivals) < 10 {
		t.Errorf("status %d, %s: %v", status, stderr, a.scenario.Rivals)
	}
	if !strings.Contains(stdout, view.Own) || !strings.Contains(stdout, "excess") {
		t.Error(stdout)
	}
	a, status, _, stderr = pretend(t, report(), nil, "compare", "--rivals", "local_batches:50,fixed_window", "--threshold", "rival.fixed_window.jain >= 0")
	// The pretended report is without rivals, so that no threshold on one holds.
	if want := []string{"local_batches:50", "fixed_window"}; status != exitExceeded || !slices.Equal(a.scenario.Rivals, want) {
		t.Errorf("status %d, %s: %v, want %v", status, stderr, a.scenario.Rivals, want)
	}
	if _, status, stdout, _ = pretend(t, report(), nil, "compare", "--out", "csv"); status != 0 || !strings.HasPrefix(stdout, "what,figure,mean,") {
		t.Errorf("status %d, %s", status, stdout)
	}
}

func TestReplayPutsTheTraceInThePlaceOfTheWorkloads(t *testing.T) {
	// Given a trace of 1.5 s and a fleet with workloads of its own,
	file := scenarioFile(t, "limits: [100/s]\nworkload: {kind: constant, verb: wait, deadline: 2s}\ngroups: [{name: a, workload: {kind: poisson, rate: 5/s}}]\n")
	recorded := filepath.Join(t.TempDir(), "trace.csv")
	if err := os.WriteFile(recorded, []byte("time_s,process,tokens\n0,0,1\n0.5,1,2\n1.5,0,3\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	// when it is replayed,
	a, status, stdout, stderr := pretend(t, report(), nil, "replay", "-f", file, "--trace", recorded)
	s, w := a.scenario, a.scenario.Workload
	// then the trace is the load, and as long as the run,
	if status != 0 || stdout == "" || w.Kind != sim.Replay || w.File != recorded || len(w.Trace.Requests) != 3 || w.TraceSum == "" || w.Repeated || s.Groups[0].Workload != nil {
		t.Errorf("status %d, %s: %+v", status, stderr, s)
	}
	if s.Duration != 1501*time.Millisecond {
		t.Errorf("the run lasts %v", s.Duration)
	}
	// asked for as before;
	if w.Verb != sim.VerbWait || w.Deadline != 2*time.Second {
		t.Errorf("%+v", w)
	}
	// and with a duration, that counts.
	for _, args := range [][]string{{"--duration", "5s"}, {"--set", "duration=5s"}} {
		a, _, _, stderr = pretend(t, report(), nil, append([]string{"replay", "-f", file, "--repeat", "--trace", recorded}, args...)...)
		if a.scenario.Duration != 5*time.Second || !a.scenario.Workload.Repeated {
			t.Errorf("%v: %s: %+v", args, stderr, a.scenario)
		}
	}
}

func TestEveryErrorHasItsStatus(t *testing.T) {
	for err, want := range map[error]int{
		errors.New("other"):                                                             exitFailed,
		fmt.Errorf("x: %w", errUsage):                                                   exitUsage,
		fmt.Errorf("x: %w", scenfile.ErrInvalid):                                        exitUsage,
		sim.Scenario{Limits: []lease.Limit{{}}}.Validate():                              exitUsage,
		fmt.Errorf("x: %w", sim.ErrInterrupted):                                         exitInterrupted,
		errors.Join(fmt.Errorf("x: %w", search.ErrInfeasible), errors.New("other")):     exitInfeasible,
		fmt.Errorf("x: %w", errExceeded):                                                exitExceeded,
		fmt.Errorf("x: %w", search.ErrNotMet):                                           exitExceeded,
		errors.Join(sim.ErrInterrupted, fmt.Errorf("by the way: %w", search.ErrNotMet)): exitInterrupted,
	} {
		if got := statusOf(err); got != want {
			t.Errorf("%v is status %d, want %d", err, got, want)
		}
	}
}

func TestAFileThatCannotBeReadIsWrongUsage(t *testing.T) {
	if _, status, _, stderr := pretend(t, report(), nil, "run", "-f", t.TempDir()); status != exitUsage || !strings.Contains(stderr, "--file") {
		t.Errorf("status %d, %s", status, stderr)
	}
}

func TestCompareTakesTheScenariosOwnRivals(t *testing.T) {
	// Given a scenario that names one rival, then that is compared,
	file := scenarioFile(t, room)
	ran, _, _, stderr := pretend(t, report(), nil, "compare", "-f", file)
	if len(ran.scenario.Rivals) != 1 || ran.scenario.Rivals[0] != "fixed_window" {
		t.Errorf("%q, %s", ran.scenario.Rivals, stderr)
	}
	// unless the command line names others, each once.
	if ran, _, _, _ := pretend(t, report(), nil, "compare", "-f", file, "--rivals", "sliding_log"); len(ran.scenario.Rivals) != 1 || ran.scenario.Rivals[0] != "sliding_log" {
		t.Errorf("%q", ran.scenario.Rivals)
	}
	if _, status, _, stderr := pretend(t, report(), nil, "compare", "--rivals", "sliding_log,sliding_log"); status != exitUsage || !strings.Contains(stderr, "sliding_log is there twice") {
		t.Errorf("status %d, %s", status, stderr)
	}
}

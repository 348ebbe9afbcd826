package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/cmd/leasesim/internal/live"
)

// few is a scenario that takes a moment.
const few = `
name: few
duration: 500ms
reps: 2
limits: [2000/s burst 500]
policy: {fallback: deny}
groups: [{count: 3}]
workload: {kind: constant, load: 2}
rivals: [fixed_window]
`

// rowNames are the figures that are compared, in their order.
var rowNames = []string{live.Offered, live.Admitted, live.AdmittedPart, live.Calls, live.Jain, live.Exceeded}

// compared runs a command line with --live and returns what it prints as JSON. Whether the two
// agree is for no test to say, as it depends on what else the machine does.
func compared(t *testing.T, line string) (status int, b sideBySide) {
	t.Helper()
	status, stdout, stderr := leasesim(t, "compare --live --out json "+line)
	if err := json.Unmarshal([]byte(stdout), &b); err != nil {
		t.Fatalf("leasesim compare --live %s: status %d, %s: %v", line, status, stderr, err)
	}
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
	if len(disagree) > 0 {
		want, says = exitExceeded, "disagree: "+strings.Join(disagree, ", ")+"\n"
	}
	if len(b.Rows) != len(rowNames) || b.Agrees != (want == exitOK) || status != want || !strings.HasSuffix(stderr, says) {
		t.Errorf("status %d, agrees %v, %q; %+v", status, b.Agrees, stderr, b.Rows)
	}
	return status, b
}

func TestAScenarioIsRunByProcessesAndBySimulation(t *testing.T) {
	file := scenarioFile(t, few)
	// Given a scenario, when it is run both ways on the embedded Redis,
	_, b := compared(t, "-f "+file+" --seed 9")
	// then both ran it,
	if len(b.Real.Processes) != 3 || b.Real.Rate != 2000 || b.Real.Burst != 500 || b.Real.DurationMs != 500 || b.Real.Shape != live.ShapeSteady || b.Real.Offered == 0 {
		t.Errorf("%+v", b.Real)
	}
	if s := b.Simulated; s.Scenario != "few" || s.Processes != 3 || s.Reps != 2 || s.Seed != 9 || s.DurationS != 0.5 || len(s.Rivals) != 0 || s.Offered.Mean == 0 {
		t.Errorf("%+v", s)
	}
	// the real one on a Redis whose round trips were measured, and whose own time is not known.
	if b.Redis != "embedded (miniredis)" || b.Real.RoundTripNs.P50 <= 0 || b.Real.RoundTripNs.P99 < b.Real.RoundTripNs.P50 || b.Real.ServiceTimeNs != 0 {
		t.Errorf("%s: %+v", b.Redis, b.Real)
	}
	if b.Real.BoundExceededBy != 0 || b.Simulated.BoundExceededBy.Worst != 0 {
		t.Errorf("the bound is exceeded by %d and %v", b.Real.BoundExceededBy, b.Simulated.BoundExceededBy.Worst)
	}
}

func TestBurstsAreComparedOnARealRedis(t *testing.T) {
	addr := redistest.Start(t).Addr
	_, b := compared(t, "--redis "+addr+" -f "+scenarioFile(t, few)+" --set workload.kind=sync --set workload.within=20ms")
	if !strings.HasPrefix(b.Redis, addr+" (") || b.Real.ServiceTimeNs <= 0 || b.Real.Shape != live.ShapeBursts {
		t.Errorf("%s: %+v", b.Redis, b.Real)
	}
	// The one burst of half a second is whole: a process asks 667 times, but for one of each of its
	// two workers.
	for i, p := range b.Real.Processes {
		if p.Offered > 667 {
			t.Errorf("process %d asked %d times", i, p.Offered)
		}
	}
}

func TestEveryFormatHasEveryRow(t *testing.T) {
	file := scenarioFile(t, few)
	_, table, _ := leasesim(t, "compare --live -f "+file)
	for _, want := range []string{"3 processes share 2000/s burst 500", "embedded", "tolerance",
		"offered ", "admitted ", "of burst + rate × duration ", "lease calls/s of a process ", "Jain's index ", "bound exceeded by "} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
	_, text, _ := leasesim(t, "compare --live --out csv -f "+file)
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil || len(rows) != 1+len(rowNames) || rows[0][0] != "figure" {
		t.Fatalf("%q: %v", text, err)
	}
	for i, name := range rowNames {
		if rows[1+i][0] != name {
			t.Errorf("row %d is %q", i, rows[1+i])
		}
	}
}

func TestADisagreementIsStatus3AndNamesTheFigures(t *testing.T) {
	// Given a simulator whose fleet is asked for nothing,
	a, status, stdout, stderr := pretend(t, report(), nil, "compare", "--live", "-f", scenarioFile(t, few))
	// then that is said, with the figures, after the table;
	if status != exitExceeded || !strings.Contains(stderr, "leasesim: the simulation and the real fleet disagree: offered, admitted,") || !strings.Contains(stdout, "DISAGREE") {
		t.Errorf("status %d, %s\n%s", status, stderr, stdout)
	}
	// and it was asked to simulate the scenario, on the network of the real fleet, without the
	// scenario's rivals.
	s := a.scenario
	if s.Name != "few" || s.Network.RoundTrip.Kind != sim.DistLognormal || s.Redis.ServiceTime != sim.Constantly(15*time.Microsecond) || s.Rivals != nil {
		t.Errorf("%+v", s)
	}
}

func TestARedisThatDoesNotAnswerIsNotCompared(t *testing.T) {
	a, status, stdout, stderr := pretend(t, report(), nil, "compare", "--live", "--redis", "127.0.0.1:1")
	if status != exitFailed || !strings.Contains(stderr, "127.0.0.1:1 does not answer") || stdout != "" || a.times != 0 {
		t.Errorf("status %d, %s%s", status, stderr, stdout)
	}
}

func TestCtrlCEndsAComparison(t *testing.T) {
	// Whether it comes during the real run
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	var stdout, stderr bytes.Buffer
	if status := run(ctx, []string{"compare", "--live"}, &stdout, &stderr); status != exitInterrupted || !strings.Contains(stderr.String(), "nothing is compared") || stdout.Len() > 0 {
		t.Errorf("status %d, %s%s", status, stderr.String(), stdout.String())
	}
	// or during the simulation, there is no report of a half.
	_, status, out, errs := pretend(t, report(), fmt.Errorf("%w; 1 of 2 replications had ended", sim.ErrInterrupted), "compare", "--live", "-f", scenarioFile(t, few))
	if status != exitInterrupted || !strings.Contains(errs, "nothing is compared") || out != "" {
		t.Errorf("status %d, %s%s", status, errs, out)
	}
}

func TestAThresholdIsOfTheSimulation(t *testing.T) {
	_, status, _, stderr := pretend(t, report(), nil, "compare", "--live", "-f", scenarioFile(t, few), "--threshold", "false_reject_ratio < 0.1%")
	if status != exitExceeded || !strings.Contains(stderr, "disagree") || !strings.Contains(stderr, "false_reject_ratio < 0.1%") {
		t.Errorf("status %d, %s", status, stderr)
	}
}

func TestTheVerdictSaysWhenTheMachineWasTooBusy(t *testing.T) {
	late := live.Row{Name: live.Offered, Real: 1, Low: 2}
	for _, c := range []struct {
		b    sideBySide
		want string
		busy bool
	}{
		{sideBySide{Agrees: true}, "The simulation and the real fleet agree.", false},
		{sideBySide{Rows: []live.Row{{Name: live.Jain}}}, "DISAGREE", false},
		{sideBySide{Rows: []live.Row{late}}, "DISAGREE", true},
	} {
		if got := c.b.document("", "").Verdicts[0].Text; !strings.Contains(got, c.want) || strings.Contains(got, "idle machine") != c.busy {
			t.Errorf("%+v: %s", c.b, got)
		}
	}
}

func TestTheTableOfAComparisonFitsATerminal(t *testing.T) {
	b := sideBySide{Fleet: strings.Repeat("256 processes ", 20), Redis: strings.Repeat("h", 60) + ":6379 (7.0.15)"}
	b.Real.RoundTripNs = live.Quantiles{P50: 123_456_789, P99: 9_123_456_789}
	b.Real.ServiceTimeNs = 123_456
	for _, name := range rowNames {
		x := 123_456_789.12
		if name == live.AdmittedPart || name == live.Jain {
			x = 0.123456789
		}
		b.Rows = append(b.Rows, live.Row{Name: name, Simulated: x, Real: x, Low: x, High: x, Tolerance: "-8.8 %, +5 %, ±1 a burst"})
	}
	var text bytes.Buffer
	if err := b.document("", "").Write(&text, "table"); err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(text.String(), "\n") {
		if n := utf8.RuneCountInString(line); n > 120 {
			t.Errorf("a line of %d characters: %s", n, line)
		}
	}
	if !strings.Contains(text.String(), "123.456µs of it in the server") {
		t.Error(text.String())
	}
}

func TestTheHelpOfCompareSaysWhatLiveTolerates(t *testing.T) {
	root := (&program{}).root()
	i := slices.IndexFunc(root.Commands(), func(c *cobra.Command) bool { return c.Name() == "compare" })
	if help := root.Commands()[i].Long; !strings.Contains(help, live.ToleranceHelp()) || !strings.Contains(help, liveFile) {
		t.Error(help)
	}
}

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/cmd/leasesim/internal/live"
)

// The processes of a fleet are this test binary, started again.
func TestMain(m *testing.M) {
	live.Child()
	flag.Parse()
	// Most parallel tests wait for processes and servers, so more of them run at once than there are
	// processors.
	_ = flag.Set("test.parallel", strconv.Itoa(max(8, runtime.GOMAXPROCS(0))))
	m.Run()
}

// execution is the outcome of a command line.
type execution struct {
	t              *testing.T
	line           string
	status         int
	stdout, stderr string
	// The scenarios that a made-up simulator was asked to run, and the runners.
	ran     []sim.Scenario
	runners []sim.Runner
}

// simulator makes up what is simulated.
type simulator func(runner sim.Runner, s sim.Scenario) (sim.Report, error)

// execute runs a command line, in which words in single quotes are one, on a made-up simulator; nil
// is the real one.
func execute(ctx context.Context, t *testing.T, made simulator, line string) execution {
	t.Helper()
	e := execution{t: t, line: "leasesim " + line}
	var out, errs bytes.Buffer
	var mu sync.Mutex
	p := program{args: splitWords(line), simulate: sim.Runner.Run}
	if made != nil {
		p.simulate = func(runner sim.Runner, _ context.Context, s sim.Scenario) (sim.Report, error) {
			mu.Lock()
			defer mu.Unlock()
			e.ran, e.runners = append(e.ran, s), append(e.runners, runner)
			return made(runner, s)
		}
	}
	e.status = p.run(ctx, &out, &errs)
	e.stdout, e.stderr = out.String(), errs.String()
	return e
}

// splitWords splits a command line as a shell does, where words in single quotes are all that it
// has.
func splitWords(line string) (words []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	return words
}

// leasesim runs a command line on the real simulator.
func leasesim(t *testing.T, line string) execution {
	t.Helper()
	return execute(t.Context(), t, nil, line)
}

// pretend runs a command line on a simulator that answers with r and err.
func pretend(t *testing.T, r sim.Report, err error, line string) execution {
	t.Helper()
	return execute(t.Context(), t, func(sim.Runner, sim.Scenario) (sim.Report, error) { return r, err }, line)
}

// figured is a simulator that makes up its figures from the scenario.
func figured(f func(s sim.Scenario) sim.Figures) simulator {
	return func(runner sim.Runner, s sim.Scenario) (sim.Report, error) {
		figures := f(s)
		s = s.Defaults()
		return sim.Report{Seed: s.Seed, Reps: s.Reps, DurationS: s.Duration.Seconds(),
			Confidence: runner.Confidence, Figures: figures}, nil
	}
}

// interrupted is a simulator in which Ctrl-C is pressed in the middle of the run after the first n.
func interrupted(n int, interrupt func()) simulator {
	return func(runner sim.Runner, s sim.Scenario) (sim.Report, error) {
		if n--; n < 0 {
			interrupt()
			return sim.Report{}, fmt.Errorf("%w: in the middle", sim.ErrInterrupted)
		}
		return figured(figures)(runner, s)
	}
}

// ends checks the exit status, and that what went wrong is said where something did.
func (e execution) ends(status int) execution {
	e.t.Helper()
	testkit.Check(e.t, e.status == status && (status == exitOK || e.stderr != ""),
		"%s: status %d, want %d, %s\n%s",
		e.line, e.status, status, e.stderr, e.stdout)
	return e
}

// shows checks that standard output has each of texts, and that it has anything where there are
// some.
func (e execution) shows(texts ...string) execution {
	e.t.Helper()
	return e.has(e.stdout, texts)
}

// says checks the same of standard error.
func (e execution) says(texts ...string) execution {
	e.t.Helper()
	return e.has(e.stderr, texts)
}

func (e execution) has(output string, texts []string) execution {
	e.t.Helper()
	for _, text := range texts {
		testkit.Check(e.t, strings.Contains(output, text), "%s: no %q in\n%s", e.line, text, output)
	}
	testkit.Check(e.t, len(texts) > 0 || output == "", "%s: unexpected\n%s", e.line, output)
	return e
}

// prints is the JSON on standard output.
func prints[T any](e execution) (data T) {
	e.t.Helper()
	err := json.Unmarshal([]byte(e.stdout), &data)
	testkit.Must(e.t, err == nil, "%s: status %d, %s, %v\n%s", e.line, e.status, e.stderr, err, e.stdout)
	return data
}

// fileOf writes a file.
func fileOf(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fleet.yaml")
	testkit.NoErr(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	testkit.NoErr(t, err)
	return string(b)
}

const (
	small = `
name: small
duration: 2s
seed: 5
reps: 2
limits: [100/s burst 50]
policy: {fallback: deny}
groups: [{name: web, count: 3}]
`
	// room is a scenario whose burst allows any target.
	room = `
name: room
duration: 2s
seed: 5
reps: 3
limits: [100/s burst 900]
policy: {fallback: deny}
groups: [{name: web, count: 3}]
rivals: [fixed_window]
`
	// few is a scenario that takes a moment.
	few = `
name: few
duration: 500ms
reps: 2
limits: [2000/s burst 500]
policy: {fallback: deny}
groups: [{count: 3}]
workload: {kind: constant, load: 2}
rivals: [fixed_window]
`
)

// report is a report of two replications in which false rejects are 1 % to 3 %.
func report() sim.Report {
	r := sim.Report{SchemaVersion: 1, Scenario: "pretended", ScenarioHash: "0123456789abcdef",
		Seed: 11, Reps: 2, Confidence: 0.95}
	r.FalseRejectRatio = sim.Figure{Mean: 0.02, Low: 0.01, High: 0.03, Worst: 0.04, WorstSeed: 12}
	return r
}

// figures are those of a scenario in which calls are one over the target, and false rejects rise
// with it.
func figures(s sim.Scenario) (f sim.Figures) {
	exactly := func(x float64) sim.Figure {
		f := sim.Figure{Mean: x, Low: x, High: x, Worst: x}
		for range s.Defaults().Reps {
			f.Values = append(f.Values, x)
		}
		return f
	}
	tau := cmp.Or(s.Policy.Target, 100*time.Millisecond).Seconds()
	f.FalseRejectRatio, f.CallsPerS, f.AdmittedVsCentral = exactly(tau/10), exactly(1/tau), exactly(1)
	return f
}

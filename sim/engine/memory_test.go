package engine

import (
	"flag"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim/rival"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

var hugeRequests = flag.Int("sim.requests", 0, "how many requests TestAThousandProcesses simulates; "+
	"100000000 is the promise, and takes a minute; 0: as many as a short or a long run has")

// heap returns the bytes in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// grown runs s and returns the heap in use after a fifth of its time, when there have been a fifth
// of the requests, and at its end.
func grown(t *testing.T, s scenario.Scenario) (early, late int64) {
	t.Helper()
	run := newRun(t, s)
	for run.goesOn() {
		run.step()
		if early == 0 && run.time.now >= int64(s.Duration/5) {
			early = heap()
		}
	}
	late = heap()
	testkit.NoErr(t, run.books.balance(run.fleet.entries.all))
	return early, late
}

func TestMemoryDoesNotGrowWithTheRequests(t *testing.T) {
	if testkit.RaceEnabled {
		t.Skip("what is in use then is the race detector's, too; .ci/run runs it without")
	}
	seconds := testkit.ShortOrLong(t, 20, 200, "seconds")
	const restarting = "groups: [{count: 20, restarts: {every: 200ms, for: 1ms}}]"
	for what, text := range map[string]string{
		"overload": "limits: [10000/s], policy: {fallback: deny}, groups: [{count: 20}], workload: {load: 2}",
		"waits with far deadlines": `limits: [4000/s burst 20], policy: {fallback: deny},
			workload: {verb: wait, deadline: 1h, load: 0.95}`,
		"long leases": `limits: [10000/s], groups: [{count: 20}], policy: {ttl: 1h, target: 10ms},
			workload: {load: 0.5}`,
		"a patient network": "limits: [2000/s], groups: [{count: 20}], call_timeout: 1m, policy: {target: 10ms}",
		"restarts":          "limits: [2000/s], " + restarting,
		"keys that come and go": `limits: [10/s], keys: {count: 300}, redis: {shards: 4}, groups: [{count: 5}],
			workload: {rate: 10000/s}`,
		"rivals": "limits: [8000/s burst 800], groups: [{count: 5}], rivals: [" +
			strings.Join(rival.Names(), ", ") + "]",
	} {
		// Given a scenario of growing length,
		s := scene(t, "duration: %ds, %s", seconds, text)
		// when there have been five times as many requests, then it needs as much memory as before.
		early, late := grown(t, s)
		t.Logf("%s: %d kB in use, then %d kB", what, early/1000, late/1000)
		testkit.Check(t, late <= early+early/4+200_000,
			"%s: %d bytes are in use, and after five times as many requests %d", what, early, late)
	}
}

func TestAThousandProcesses(t *testing.T) {
	// Given a fleet of a thousand at nine tenths of 200,000 requests a second, for as many requests
	// as were asked for,
	const rate = 200_000
	requests := *hugeRequests
	if requests == 0 {
		requests = testkit.ShortOrLong(t, 500_000, 2_000_000, "requests") / testkit.Slowdown
	}
	s := scene(t, `duration: %v, reps: 1, limits: [%d/s burst %d], policy: {fallback: deny},
		groups: [{count: 1000, skew: 0.3}], workload: {load: 0.9}`,
		time.Duration(float64(requests)/(0.9*rate)*1e9), rate, rate/2)
	most := int64(0)
	before := heap()
	r, err := Runner{Progress: func(float64) { most = max(most, heap()-before) }}.Run(t.Context(), s)
	testkit.NoErr(t, err)
	t.Logf("%d requests, %.0f/s on this machine, at most %d kB in use; %.4f of one central bucket, %.0f calls/s",
		r.Machine.Requests, r.Machine.RequestsPerS, most/1000, r.AdmittedVsCentral.Mean, r.CallsPerS.Mean)
	// then the bound holds, and no process takes more than 20 kB.
	if r.Processes != 1000 || r.BoundExceededBy.Worst != 0 || r.AdmittedVsCentral.Mean < 0.995 {
		t.Errorf("%d processes admit %v of one central bucket and exceed the bound by %v", r.Processes,
			r.AdmittedVsCentral.Mean, r.BoundExceededBy.Worst)
	}
	testkit.Check(t, most <= 20_000_000, "%d bytes are in use", most)
}

// TestAProcessAndAKeyAreSmall: -v prints what docs/figures.md says of a process on one key, of a key at rest
// in a process, and of one that is asked all the time.
func TestAProcessAndAKeyAreSmall(t *testing.T) {
	if testkit.RaceEnabled {
		t.Skip("what is in use then is the race detector's, too; .ci/run runs it without")
	}
	used := func(format string, n int) int64 {
		before := heap()
		run := newRun(t, scene(t, format, n))
		for run.goesOn() {
			run.step()
		}
		used := heap() - before
		testkit.NoErr(t, run.books.balance(run.fleet.entries.all))
		return used
	}
	for _, c := range []struct {
		what, scenario string
		few, many      int
		most           int64
	}{
		{"a process",
			"duration: 2s, limits: [100000/s burst 100000], policy: {fallback: deny}, groups: [{count: %d}]",
			100, 2000, 12_000},
		{"a key, asked twice in ten seconds", "duration: 10s, limits: [10/s], groups: [{count: 4}], " +
			"keys: {count: %d}, workload: {load: 0.02}", 2000, 20_000, 2000},
		{"a key, asked ten times a second", "duration: 2s, limits: [20/s], groups: [{count: 1}], " +
			"keys: {count: %d}, workload: {load: 0.5}", 100, 2000, 6000},
	} {
		more := testkit.ShortOrLong(t, (c.many-c.few)/4, c.many-c.few, "more")
		each := (used(c.scenario, c.few+more) - used(c.scenario, c.few)) / int64(more)
		t.Logf("%s: %d bytes", c.what, each)
		testkit.Check(t, each <= c.most, "%s has %d bytes, want %d at most", c.what, each, c.most)
	}
}

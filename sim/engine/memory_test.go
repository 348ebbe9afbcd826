package engine

import (
	"flag"
	"runtime"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/rival"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

var hugeRequests = flag.Int64("sim.requests", 2_000_000/testkit.Slowdown,
	"how many requests TestAThousandProcesses simulates; 100000000 is the promise, and takes a minute")

// heap is the bytes that are in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// grown runs s and returns the heap in use after a tenth of its time, when there have been a tenth
// of the requests, and at its end.
func grown(t *testing.T, s scenario.Scenario) (early, late int64) {
	t.Helper()
	run := newRun(t, s)
	for run.goesOn() {
		run.step()
		if early == 0 && run.time.now >= int64(s.Duration/10) {
			early = heap()
		}
	}
	late = heap()
	if err := run.books.balance(run.fleet.entries.all); err != nil {
		t.Fatal(err)
	}
	return early, late
}

func TestMemoryDoesNotGrowWithTheRequests(t *testing.T) {
	restarting := []scenario.Group{{Count: 20, Restarts: scenario.Stops{Every: 200 * time.Millisecond,
		For: scenario.Constantly(time.Millisecond)}}}
	for what, s := range map[string]scenario.Scenario{
		"overload": {Limits: limits(lease.PerSecond(10_000)), Policy: deny, Groups: alike(20),
			Workload: scenario.Workload{Load: 2}},
		"waits with far deadlines": {Limits: limits(lease.PerSecond(4000).WithBurst(20)), Policy: deny,
			Workload: scenario.Workload{Verb: scenario.VerbWait, Deadline: time.Hour, Load: 0.95}},
		"long leases": {Limits: limits(lease.PerSecond(10_000)), Groups: alike(20),
			Policy:   lease.Policy{TTL: time.Hour, Target: 10 * time.Millisecond},
			Workload: scenario.Workload{Load: 0.5}},
		"a patient network": {Limits: limits(lease.PerSecond(2000)), Groups: alike(20), CallTimeout: time.Minute,
			Policy: lease.Policy{Target: 10 * time.Millisecond}},
		"restarts": {Limits: limits(lease.PerSecond(2000)), Groups: restarting},
		"closed loops": {Limits: limits(lease.PerSecond(1000)), Groups: restarting,
			Workload: scenario.Workload{Kind: scenario.Closed, Think: scenario.Constantly(10 * time.Second)}},
		"keys that come and go": {Limits: limits(lease.PerSecond(10)), Keys: scenario.Keys{Count: 300},
			Redis: scenario.Redis{Shards: 4}, Groups: alike(5), Workload: scenario.Workload{Rate: 10_000}},
		"rivals": {Limits: limits(lease.PerSecond(8000).WithBurst(800)), Groups: alike(5), Rivals: rival.Names()},
	} {
		// Given a scenario that goes on and on,
		s.Duration = 200 * time.Second / testkit.Slowdown
		// when there have been ten times as many requests, then it needs as much memory as before.
		early, late := grown(t, s)
		t.Logf("%s: %d kB in use, then %d kB", what, early/1000, late/1000)
		if late > early+early/4+200_000 {
			t.Errorf("%s: %d bytes are in use, and after ten times as many requests %d", what, early, late)
		}
	}
}

func TestAThousandProcesses(t *testing.T) {
	// Given a fleet of a thousand at nine tenths of 200,000 requests a second, for as many requests
	// as were asked for,
	const rate = 200_000
	s := scenario.Scenario{
		Duration: time.Duration(float64(*hugeRequests) / (0.9 * rate) * 1e9), Reps: 1,
		Limits: limits(lease.PerSecond(rate).WithBurst(rate / 2)), Policy: deny,
		Groups: []scenario.Group{{Count: 1000, Skew: 0.3}}, Workload: scenario.Workload{Load: 0.9},
	}
	most := int64(0)
	before := heap()
	r, err := Runner{Progress: func(float64) { most = max(most, heap()-before) }}.Run(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d requests, %.0f/s on this machine, at most %d kB in use; %.4f of one central bucket, %.0f calls/s",
		r.Machine.Requests, r.Machine.RequestsPerS, most/1000, r.AdmittedVsCentral.Mean, r.CallsPerS.Mean)
	// then the bound holds, and no process takes more than 20 kB.
	if r.Processes != 1000 || r.BoundExceededBy.Worst != 0 || r.AdmittedVsCentral.Mean < 0.995 {
		t.Errorf("%d processes admit %v of one central bucket and exceed the bound by %v", r.Processes,
			r.AdmittedVsCentral.Mean, r.BoundExceededBy.Worst)
	}
	if most > 20_000_000 {
		t.Errorf("%d bytes are in use", most)
	}
}

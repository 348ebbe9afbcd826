package engine

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/sim/report"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// newRun is a replication of s that has not begun; its seed is that of s.
func newRun(t *testing.T, s scenario.Scenario) *replication {
	t.Helper()
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	s = s.Defaults()
	run, err := newReplication(&s, s.Seed)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// simulate runs one replication of s to its end. Each see is told of every call that a bucket
// answers.
func simulate(t *testing.T, s scenario.Scenario, see ...func(*replication, *call)) *replication {
	t.Helper()
	run := newRun(t, s)
	book := run.redis.answered
	run.redis.answered = func(c *call, stored bool) {
		for _, f := range see {
			f(run, c)
		}
		book(c, stored)
	}
	if err := run.run(t.Context(), func(float64) {}); err != nil {
		t.Fatal(err)
	}
	return run
}

// figure is one of the figures of a replication, by its key.
func figure(run *replication, name string) float64 {
	o := run.outcome()
	for _, n := range o.Figures.All() {
		if n.Name == name {
			return n.Mean
		}
	}
	panic("there is no figure " + name)
}

// regularly is a trace of requests for one token, one in every gap from the beginning to the end.
func regularly(gap, end time.Duration) *scenario.Trace {
	t := &scenario.Trace{}
	for at := time.Duration(0); at < end; at += gap {
		t.Requests = append(t.Requests, scenario.TraceRequest{At: at, Cost: 1})
	}
	return t
}

// asJSON is a report as others get it, without what depends on the machine.
func asJSON(t *testing.T, r report.Report) []byte {
	t.Helper()
	r.Machine = report.Machine{}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// reported is what a Runner says about s.
func reported(t *testing.T, s scenario.Scenario, parallel int) report.Report {
	t.Helper()
	r, err := Runner{Parallel: parallel}.Run(t.Context(), s)
	if err != nil {
		t.Fatalf("%v\n%+v", err, s)
	}
	return r
}

// replay is a workload of n recorded requests.
func replay(n int, of func(i int) scenario.TraceRequest) scenario.Workload {
	t := &scenario.Trace{}
	for i := range n {
		t.Requests = append(t.Requests, of(i))
	}
	return scenario.Workload{Kind: scenario.Replay, Trace: t}
}

// drifting is a clock that is wrong by so many parts per million.
func drifting(ppm float64) *scenario.Clock {
	return &scenario.Clock{Drift: scenario.DriftDist{Dist: uniform(ppm, ppm)}}
}

func uniform(low, high float64) scenario.Dist {
	return scenario.Dist{Kind: scenario.DistUniform, P: low, Q: high}
}

package engine

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim/report"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
	"github.com/yuzhi-go/yuzhi/sim/scenario/file"
)

// scene parses the scenario in a text: the inside of a YAML flow mapping; see package file.
func scene(t *testing.T, format string, args ...any) scenario.Scenario {
	t.Helper()
	s, err := file.Parse("scene", fmt.Appendf(nil, "{"+format+"}", args...))
	testkit.NoErr(t, err)
	return s
}

// begin sets up a replication of s, with the seed of s.
func begin(s scenario.Scenario) (*replication, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	s = s.Defaults()
	return newReplication(&s, s.Seed)
}

func newRun(t *testing.T, s scenario.Scenario) *replication {
	t.Helper()
	run, err := begin(s)
	testkit.NoErr(t, err)
	return run
}

// simulate runs one replication of s to its end. Every call that a bucket answers is passed to each see.
func simulate(t *testing.T, s scenario.Scenario, see ...func(*replication, *call)) *replication {
	t.Helper()
	return toTheEnd(t, newRun(t, s), see...)
}

// connected is newRun with enough open connections for every process.
func connected(t *testing.T, s scenario.Scenario) *replication {
	t.Helper()
	run := newRun(t, s)
	for _, p := range run.fleet.processes {
		for shard := range run.redis.shards {
			run.network.linkTo(p, int32(shard)).pool = connections{idle: 1000, opened: true}
		}
	}
	return run
}

func toTheEnd(t *testing.T, run *replication, see ...func(*replication, *call)) *replication {
	t.Helper()
	for run.goesOn() {
		e := run.time.heap[0]
		served := e.kind == evServed && !run.time.obsolete(e)
		run.step()
		if !served {
			continue
		}
		calls := run.network.batches.all[e.id].calls
		for i := range calls {
			for _, f := range see {
				if calls[i].err == nil {
					f(run, &calls[i])
				}
			}
		}
	}
	testkit.NoErr(t, run.finish())
	return run
}

// figures returns the figures of a replication.
func figures(run *replication) report.Figures { return run.outcome().Figures }

// reported returns a Runner's report on s.
func reported(t *testing.T, s scenario.Scenario, parallel int) *report.Report {
	t.Helper()
	r, err := Runner{Parallel: parallel}.Run(t.Context(), s)
	testkit.Must(t, err == nil, "%v\n%+v", err, s)
	return &r
}

// asJSON encodes a report, without the fields that depend on the machine.
func asJSON(t *testing.T, r *report.Report) string {
	t.Helper()
	same := *r
	same.Machine = report.Machine{}
	text, err := json.Marshal(same)
	testkit.NoErr(t, err)
	return string(text)
}

// replay returns a workload of n recorded requests.
func replay(n int, of func(i int) scenario.TraceRequest) scenario.Workload {
	t := &scenario.Trace{}
	for i := range n {
		t.Requests = append(t.Requests, of(i))
	}
	return scenario.Workload{Kind: scenario.Replay, Trace: t}
}

// regularly returns a workload of one-token requests, one in every gap until end.
func regularly(gap, end time.Duration) scenario.Workload {
	return replay(int((end+gap-1)/gap), func(i int) scenario.TraceRequest {
		return scenario.TraceRequest{At: time.Duration(i) * gap, Cost: 1}
	})
}

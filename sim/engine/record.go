package engine

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/sim/random"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// Requests returns the requests that a process of s makes in its first replication, or the requests of all
// processes if process is negative. s must be valid. Requests that wait in line end a Deadline before the end
// of the run, so that the run answers every request. The error wraps scenario.ErrInvalidScenario if requests
// depend on the answers to other requests, or if groups use different verbs.
func Requests(s scenario.Scenario, process int) (iter.Seq[scenario.TraceRequest], error) {
	s = s.Defaults()
	w, end := asked(s.Groups[0].Workload, &s), s.Duration
	for _, g := range s.Groups {
		its := *cmp.Or(g.Workload, &s.Workload)
		if asked(g.Workload, &s) != w || slices.Contains([]string{scenario.Closed, scenario.Adversary}, its.Kind) {
			return nil, fmt.Errorf("%w: workload.kind is %s, must be one whose requests do not depend on answers, "+
				"with one verb for all groups", scenario.ErrInvalidScenario, its.Kind)
		}
	}
	if w.Verb == scenario.VerbWait && s.Workload.Kind != scenario.Replay {
		end -= w.Deadline
	}
	if _, err := newReplication(&s, random.SeedOf(s.Seed, 0)); err != nil {
		return nil, err
	}
	return func(yield func(scenario.TraceRequest) bool) {
		r, _ := newReplication(&s, random.SeedOf(s.Seed, 0))
		for r.goesOn() && r.time.heap[0].at < int64(end) {
			e := r.time.heap[0]
			if e.kind != evArrival || r.time.obsolete(e) || process >= 0 && int(e.id) != process {
				r.time.pop()
				continue
			}
			r.time.now = e.at
			key, n := r.demand.next(r.fleet.processes[e.id])
			if !yield(scenario.TraceRequest{At: time.Duration(e.at), Process: int(e.id), Key: int(key), Cost: n}) {
				return
			}
		}
	}, nil
}

// Record returns s with a replay of Requests as its workload, so that programs can play equal requests.
func Record(s scenario.Scenario) (scenario.Scenario, error) {
	s = s.Defaults()
	requests, err := Requests(s, -1)
	if err != nil {
		return s, err
	}
	w := asked(s.Groups[0].Workload, &s)
	w.Kind, w.Trace = scenario.Replay, &scenario.Trace{Keys: s.Keys.Count, Requests: slices.Collect(requests)}
	for i := range s.Groups {
		w.Trace.Processes += s.Groups[i].Count
		s.Groups[i].Skew, s.Groups[i].Workload = 0, nil // the trace has the groups' workloads
	}
	s.Workload = w.Defaults(s.Duration)
	return s, nil
}

// asked returns the fields of a group's workload that say how the group makes requests, without their times.
// own is nil for a group that uses the workload of s.
func asked(own *scenario.Workload, s *scenario.Scenario) scenario.Workload {
	w := cmp.Or(own, &s.Workload)
	return scenario.Workload{Verb: w.Verb, Deadline: w.Deadline, Patience: w.Patience, Actual: w.Actual,
		Hold: w.Hold, Cancelled: w.Cancelled}
}

package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/sim/random"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// Record returns s, which must be valid, with its workload drawn: a replay of the requests of its first
// replication, so that other programs can play the same ones. Requests that wait in line stop a Deadline
// before the end of the run, so that each is answered in it. Record returns s unchanged if its requests
// depend on the answers, or if groups use different verbs.
func Record(s scenario.Scenario) (scenario.Scenario, error) {
	s = s.Defaults()
	w, end := asked(s.Groups[0].Workload, &s), s.Duration
	for _, g := range s.Groups {
		its := *cmp.Or(g.Workload, &s.Workload)
		if asked(g.Workload, &s) != w || slices.Contains(
			[]string{scenario.Replay, scenario.Closed, scenario.Adversary}, its.Kind) {
			return s, nil
		}
	}
	if w.Verb == scenario.VerbWait {
		end -= w.Deadline
	}
	r, err := newReplication(&s, random.SeedOf(s.Seed, 0))
	if err != nil {
		return s, err
	}
	trace := &scenario.Trace{Processes: len(r.fleet.processes), Keys: s.Keys.Count}
	for r.goesOn() && r.time.heap[0].at < int64(end) {
		e := r.time.heap[0]
		if e.kind != evArrival || r.time.obsolete(e) {
			r.time.pop()
			continue
		}
		r.time.now = e.at
		key, n := r.demand.next(r.fleet.processes[e.id])
		trace.Requests = append(trace.Requests, scenario.TraceRequest{
			At: time.Duration(e.at), Process: int(e.id), Key: int(key), Cost: n,
		})
	}
	w.Kind, w.Trace = scenario.Replay, trace
	s.Workload = w.Defaults(s.Duration)
	s.Groups = slices.Clone(s.Groups)
	for i := range s.Groups {
		s.Groups[i].Skew, s.Groups[i].Workload = 0, nil // the trace has them
	}
	return s, nil
}

// asked returns the fields of a group's workload that say how requests are made, not when. own is nil for a
// group that uses the workload of s.
func asked(own *scenario.Workload, s *scenario.Scenario) scenario.Workload {
	w := cmp.Or(own, &s.Workload)
	return scenario.Workload{Verb: w.Verb, Deadline: w.Deadline, Patience: w.Patience, Actual: w.Actual,
		Hold: w.Hold, Cancelled: w.Cancelled}
}

package live

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/stamps"
	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/audit"
)

// ShapeReplay names the load in which each process plays its part of a trace. The admission of request
// i is in slot i of the record, so that the parent knows its key and cost.
const ShapeReplay = "replay"

// tracePath returns the file of requests that belongs to a file of admissions.
func tracePath(path string) string { return path + "-trace" }

// parts are the trace's requests by process, as the simulator divides them.
func (o Options) parts() [][]sim.TraceRequest {
	parts := make([][]sim.TraceRequest, o.Processes)
	for _, q := range o.Trace {
		if q.At < o.Duration {
			i := q.Process % o.Processes
			parts[i] = append(parts[i], sim.TraceRequest{At: q.At, Key: q.Key % o.Keys, Cost: q.Cost})
		}
	}
	return parts
}

// writeTrace leaves a process its part.
func writeTrace(path string, part []sim.TraceRequest) error {
	text, err := json.Marshal(part)
	if err != nil {
		return err
	}
	return os.WriteFile(tracePath(path), text, 0o600)
}

// play makes each request of the process's part of the trace when it is due.
func (c *child) play() error {
	text, err := os.ReadFile(tracePath(c.Path))
	var part []sim.TraceRequest
	if err == nil {
		err = json.Unmarshal(text, &part)
	}
	if err != nil {
		return err
	}
	keys := make([]*hybrid.Key, c.Options.Keys)
	for _, q := range part {
		if keys[q.Key] == nil {
			keys[q.Key] = c.limiter.Key(c.Options.Key + "-" + strconv.Itoa(q.Key))
		}
	}
	var wg sync.WaitGroup
	began := time.Now().Truncate(period).Add(period) // the same moment in every process, see align
	for i, q := range part {
		due := began.Add(q.At)
		time.Sleep(time.Until(due))
		if c.ended.Load() {
			break
		}
		c.took.observe(lags, time.Since(due))
		wg.Go(func() {
			before, asked := stamps.Now(), stopwatch()
			if c.asks(keys[q.Key], q.Cost) {
				c.file.Put(i, before, stamps.After())
			}
			c.file.Offered().Add(q.Cost)
			c.took.observe(decisions, stopwatch()-asked)
		})
	}
	wg.Wait()
	// The simulated processes go on calling until the end, too.
	for end := began.Add(c.Options.Duration); c.before(time.Now(), end); {
		time.Sleep(min(time.Until(end), 10*time.Millisecond))
	}
	return nil
}

// asks makes a request for n tokens, and reports whether it was admitted.
func (c *child) asks(key *hybrid.Key, n int64) bool {
	if c.Options.Deadline == 0 {
		return key.AllowN(n)
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.Options.Deadline)
	defer cancel()
	return key.WaitN(ctx, n) == nil
}

// played adds the admissions of a process to byKey, and returns their tokens.
func played(f *stamps.File, part []sim.TraceRequest, byKey map[int][]audit.Span) (admitted int64) {
	for i, q := range part {
		if s, ok := f.At(i); ok {
			s.N = q.Cost
			byKey[q.Key] = append(byKey[q.Key], s)
			admitted += q.Cost
		}
	}
	return admitted
}

// replays takes what a scenario says of a recorded load, and of what happens meanwhile.
func (o *Options) replays(s sim.Scenario) {
	if s.Workload.Verb == sim.VerbWait {
		o.Deadline = s.Workload.Deadline
	}
	if all := s.Redis.Faults; len(all) == 1 && all[0].Kind == sim.FaultHang && all[0].At > 0 {
		o.HangAfter, o.HangFor = all[0].At, all[0].For
	}
	o.Shape, o.Trace, o.Keys, o.Processes = ShapeReplay, s.Workload.Trace.Requests, s.Keys.Count, 0
	for _, g := range s.Groups {
		o.Processes += g.Count
		o.Weights = append(o.Weights, slices.Repeat([]int64{g.Weight}, g.Count)...)
	}
	if stop := s.Groups[0].Pauses; stop.Every == 0 && stop.For.Kind == "" {
		o.StopAfter, o.StopFor = stop.At, time.Duration(stop.For.P)
	}
	last := s.Groups[len(s.Groups)-1]
	if all := last.Scale; len(all) == 1 && all[0].Kill && all[0].Count == last.Count-1 {
		o.KillAfter = all[0].At
	}
}

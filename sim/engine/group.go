package engine

import (
	"fmt"
	"slices"

	"github.com/yuzhi-go/yuzhi/sim/arrival"
	"github.com/yuzhi-go/yuzhi/sim/random"
	"github.com/yuzhi-go/yuzhi/sim/report"
	"github.com/yuzhi-go/yuzhi/sim/rival"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// The entities that have a random stream of their own; see random.New. A process is named by its group's place and its
// rank there, so that one process or group more changes nothing for the others.
const (
	streamProcess uint64 = iota + 1
	streamArrivals
	streamPauses
	streamClock
	streamNetwork
	streamRedis
	streamRestarts
	streamHolders
)

// group is some processes that are alike, and the load that they share.
type group struct {
	scenario.Group
	place   int // in Scenario.Groups
	load    *scenario.Workload
	rate    float64 // requests per second of all its processes
	members []*process
	count   int // that are meant to run

	recording *arrival.Recording // replay: load's trace, which belongs to all groups that share load
	first     int                // replay: the trace's number of the first member
}

// newWorld sets up one replication. s has its defaults and is valid.
func newWorld(s *scenario.Scenario, seed uint64) (*world, error) {
	w := &world{s: s, seed: seed, strict: s.Policy.StrictExpiry}
	w.config = s.Policy.ConfigFor(s.Limits, 1, s.CallTimeout)
	w.replicas = make(map[*scenario.RedisFault][][]*bucket)
	w.netStream = random.New(seed, streamNetwork)
	w.redisStream = random.New(seed, streamRedis)
	w.weights = arrival.KeyWeights(s.Keys)
	w.audit = newAuditor(s.Limits, s.Policy.Overcommit, s.Keys.Count)
	for range s.Redis.Shards {
		w.shards = append(w.shards, &shard{buckets: make([]*bucket, s.Keys.Count/s.Redis.Shards+1)})
	}
	central, err := rival.NewCentral(s.Limits)
	if err != nil {
		return nil, err
	}
	w.central = slices.Repeat([]rival.Central{central}, s.Keys.Count)
	w.found()
	w.record()
	w.tally = report.NewTally(len(w.processes), s.Keys.Count)
	if err := w.invite(); err != nil {
		return nil, err
	}
	w.waits = newWaits(s)
	w.foresee()
	for _, g := range w.groups { // after foresee: what the scenario has happen at an instant comes before its requests
		g.rebalance()
	}
	return w, nil
}

// found makes the groups and their processes, and starts those that run from the beginning.
func (w *world) found() {
	s := w.s
	shares := 0.0
	for i := range s.Groups {
		if s.Groups[i].Workload == nil {
			shares += s.Groups[i].Share
		}
	}
	for i := range s.Groups {
		g := &group{Group: s.Groups[i], place: i, load: &s.Workload}
		part := 0.0
		if shares > 0 {
			part = g.Share / shares
		}
		if g.Workload != nil {
			g.load, part = g.Workload, 1
		}
		g.rate = float64(part * s.RateOf(g.load))
		w.groups = append(w.groups, g)
		most := g.Count
		for _, next := range g.Scale {
			most = max(most, next.Count)
			w.steps = append(w.steps, step{g, next})
		}
		clocks := s.Clock
		if g.Clock != nil {
			clocks = *g.Clock
		}
		for rank := range most {
			w.recruit(g, rank, clocks)
		}
		g.count = g.Count
	}
	for _, g := range w.groups {
		for _, p := range g.members[:g.count] {
			p.start()
		}
	}
}

// record makes the traces ready that groups replay, those that share one between them.
func (w *world) record() {
	sizes := map[*scenario.Workload]int{}
	for _, g := range w.groups {
		g.first = sizes[g.load]
		sizes[g.load] += len(g.members)
	}
	recordings := map[*scenario.Workload]*arrival.Recording{}
	for _, g := range w.groups {
		if g.load.Kind != scenario.Replay {
			continue
		}
		if recordings[g.load] == nil {
			recordings[g.load] = arrival.NewRecording(g.load.Trace, sizes[g.load], g.load.Repeated)
		}
		g.recording = recordings[g.load]
	}
}

// recruit makes one process.
func (w *world) recruit(g *group, rank int, clocks scenario.Clock) {
	p := &process{w: w, index: int32(len(w.processes)), group: g, rank: rank, adversary: g.load.Kind == scenario.Adversary}
	own := func(kind uint64) random.Stream { return random.New(w.seed, kind, uint64(g.place), uint64(rank)) }
	p.stream, p.arrivals = own(streamProcess), own(streamArrivals)
	p.pauses, p.restarts, p.holders = own(streamPauses), own(streamRestarts), own(streamHolders)
	r := own(streamClock)
	p.offset, p.drift = clocks.Draw(&r)
	p.policy = w.s.Policy
	p.policy.Weight = g.Weight
	p.config = w.config
	w.processes = append(w.processes, p)
	g.members = append(g.members, p)
}

// rebalance divides the group's load between those of its processes that are meant to run.
func (g *group) rebalance() {
	shares := arrival.Shares(g.count, g.Skew)
	for i, p := range g.members[:g.count] {
		p.rate = float64(g.rate * shares[i])
		if p.running {
			p.offer()
		}
	}
}

// invite makes the rivals. They number those processes first that run at the start.
func (w *world) invite() error {
	var fleet []*process
	for _, g := range w.groups {
		fleet = append(fleet, g.members[:g.Count]...)
	}
	starting := len(fleet)
	for _, g := range w.groups {
		fleet = append(fleet, g.members[g.Count:]...)
	}
	weights := make([]int64, len(fleet))
	for i, p := range fleet {
		p.number = i
		weights[i] = p.group.Weight
	}
	for _, name := range w.s.Rivals {
		a, err := rival.New(name, rival.Fleet{
			Processes: starting, Weights: weights, Limits: w.s.Limits, Keys: w.s.Keys.Count,
			Local: func(p int, now int64) int64 { return fleet[p].wallAt(now*1000) - serverStart },
		})
		if err != nil {
			return fmt.Errorf("%w: rivals: %w", scenario.ErrInvalidScenario, err)
		}
		w.rivals = append(w.rivals, &contender{Algorithm: a, name: name, audit: newAuditor(w.s.Limits, 0, w.s.Keys.Count), tally: report.NewTally(len(w.processes), w.s.Keys.Count)})
	}
	return nil
}

// foresee makes the events that the scenario names.
func (w *world) foresee() {
	for i := range w.steps {
		w.at(int64(w.steps[i].At), evScale, int32(i))
	}
	for i := range w.s.Redis.Faults {
		f := &w.s.Redis.Faults[i]
		if f.Kind == scenario.FaultFailover {
			w.at(max(0, int64(f.At-f.Lost)), evSnapshot, int32(i))
		}
		w.at(int64(f.At), evRedisBegin, int32(i))
		if f.Kind != scenario.FaultClockStep {
			w.at(int64(f.At+f.For), evRedisEnd, int32(i))
		}
	}
	for _, p := range w.processes {
		p.plan(evPause)
		p.plan(evKill)
	}
	if w.s.Warmup > 0 {
		w.at(int64(w.s.Warmup), evWarm, 0)
	}
	w.series.start(w)
}

// plan makes the event of the next of p's misfortunes of one kind.
func (p *process) plan(kind eventKind) {
	every, stream := p.group.Pauses.Every, &p.pauses
	if kind == evKill {
		every, stream = p.group.Restarts.Every, &p.restarts
	}
	if every > 0 {
		p.w.at(p.w.now+int64(stream.Exp()*float64(every)), kind, p.index)
	}
}

// change is what happens to a process from outside, or to a group.
func (w *world) change(e event) {
	if e.kind == evScale {
		w.scale(&w.steps[e.who])
		return
	}
	p := w.processes[e.who]
	switch e.kind {
	case evPause:
		p.pause()
	case evResume:
		if p.pausedUntil == w.now {
			p.pausedUntil = 0
		}
		p.plan(evPause)
	case evKill:
		if p.running {
			p.kill()
			w.at(w.now+p.group.Restarts.For.Sample(&p.restarts), evStart, p.index)
		} else {
			p.plan(evKill)
		}
	case evStart:
		if p.rank < p.group.count {
			p.start()
			p.offer()
		}
		p.plan(evKill)
	}
}

// pause stops p for a while; its requests wait.
func (p *process) pause() {
	if !p.running || p.pausedUntil > 0 {
		p.plan(evPause)
		return
	}
	p.pausedUntil = p.w.now + max(1, p.group.Pauses.For.Sample(&p.pauses))
	p.w.at(p.pausedUntil, evResume, p.index)
}

// resumed is when a paused process's timers and sockets are served: after the requests that came first. A process
// that goes on after a stop does serve some before its timers run.
func (p *process) resumed() int64 { return p.pausedUntil + 1000 }

// scale starts and ends processes.
func (w *world) scale(s *step) {
	g := s.group
	g.count = s.Count
	for i, p := range g.members {
		switch {
		case i < s.Count:
			p.start()
		case s.Kill:
			p.kill()
		default:
			p.leave()
		}
	}
	g.rebalance()
}

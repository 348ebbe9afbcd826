package engine

import (
	"fmt"
	"time"

	"github.com/yuzhi-go/yuzhi/sim/random"
	"github.com/yuzhi-go/yuzhi/sim/report"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// replication is one run of a scenario: its events, the series of points in time, and its figures at the end.
// One goroutine runs a replication.
type replication struct {
	s        *scenario.Scenario
	seed     uint64
	time     agenda
	demand   demand
	fleet    fleet
	network  network
	redis    redis
	books    books
	recorder report.Recorder
	acts     []func() // the scenario's events, each of which runs once
}

// newReplication sets up a replication of s, which must be valid and have its defaults.
func newReplication(s *scenario.Scenario, seed uint64) (*replication, error) {
	r := &replication{s: s, seed: seed, recorder: report.NewRecorder(s.Duration)}
	r.network = network{
		time: &r.time, s: &s.Network, timeout: s.CallTimeout, stream: random.New(seed, streamNetwork),
	}
	r.redis = newRedis(&r.time, s, random.New(seed, streamRedis), &r.network, &r.books)
	r.network.redis = &r.redis
	r.fleet = fleet{time: &r.time, s: s, network: &r.network, books: &r.books, demand: &r.demand}
	r.fleet.assemble(seed)
	r.demand = demand{time: &r.time, s: s, seed: seed, fleet: &r.fleet, books: &r.books}
	r.demand.prepare(&r.fleet)
	var err error
	if r.books, err = newBooks(&r.time, s, &r.fleet, seed); err != nil {
		return nil, err
	}
	for _, g := range r.fleet.groups {
		for _, p := range g.members[:g.count] {
			r.fleet.start(p)
		}
	}
	r.foresee()
	for _, g := range r.fleet.groups { // after foresee: in one instant, faults come before requests
		r.demand.divide(g)
	}
	return r, nil
}

func (r *replication) foresee() {
	add := func(at time.Duration, act func()) {
		r.time.at(int64(at), evAct, int32(len(r.acts)))
		r.acts = append(r.acts, act)
	}
	for _, g := range r.fleet.groups {
		for _, step := range g.Scale {
			add(step.At, func() {
				r.fleet.scale(g, step)
				r.demand.divide(g)
			})
		}
	}
	for i := range r.s.Redis.Faults {
		f := &r.s.Redis.Faults[i]
		if f.Kind == scenario.FaultFailover {
			add(max(0, f.At-f.Lost), func() { r.redis.snapshot(f) })
		}
		add(f.At, func() { r.redis.fault(f, 1) })
		add(f.At+f.For, func() { r.redis.fault(f, -1) })
	}
	for _, p := range r.fleet.processes {
		r.fleet.plan(p, evPause)
		r.fleet.plan(p, evKill)
	}
	if r.s.Warmup > 0 {
		add(r.s.Warmup, r.warm)
	}
	var turns []turn
	turns, r.books.faults = phasesOf(r.s)
	for _, t := range turns {
		add(t.at, func() { r.books.turn(t.to) })
	}
	r.time.at(r.recorder.Step, evSample, 0)
}

func (r *replication) goesOn() bool {
	return len(r.time.heap) > 0 && r.time.heap[0].at < int64(r.s.Duration)
}

// part returns the fraction of the run that is over.
func (r *replication) part() float64 { return float64(r.time.now) / float64(r.s.Duration) }

// requests calls yield for each request before end: those of one process, or of all if process is negative.
// No request is decided.
func (r *replication) requests(process int, end int64, yield func(scenario.TraceRequest) bool) {
	for r.goesOn() && r.time.heap[0].at < end {
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
}

func (r *replication) finish() error {
	r.time.now = int64(r.s.Duration)
	r.books.advance()
	r.books.audit.End()
	if err := r.books.balance(r.fleet.entries.all); err != nil {
		return fmt.Errorf("seed %d: %w", r.seed, err)
	}
	return nil
}

func (r *replication) step() {
	e := r.time.heap[0]
	r.time.now = e.at
	switch p := r.concerned(e); {
	case r.time.obsolete(e):
		r.time.pop()
	case p != nil && p.pausedUntil > 0:
		r.time.pop()
		r.time.at(p.sees(e.kind), e.kind, e.id)
	case e.kind == evArrival && p.state == running:
		key, n := r.demand.next(p)
		r.demand.ask(p, key, n)
	default:
		r.time.pop()
		r.time.cancel(e.kind, e.id)
		r.handle(e)
	}
	if len(r.time.heap) >= r.time.sweepAt {
		r.time.sweep()
	}
}

// concerned returns the process that handles e, or nil if no process does. A paused process handles e later.
func (r *replication) concerned(e event) *process {
	switch e.kind {
	case evArrival:
		return r.fleet.processes[e.id]
	case evDraws, evLook:
		return r.fleet.processes[int(e.id)/len(r.redis.shards)]
	case evPoll:
		return r.fleet.entries.all[e.id].p
	case evWaitEnd:
		return r.fleet.waiters.all[e.id].request.p
	case evShaken, evReply:
		if b := r.network.batches.all[e.id]; b.p.life == b.life {
			return b.p
		}
	}
	return nil
}

// handle handles an event that is no arrival.
func (r *replication) handle(e event) {
	switch e.kind {
	case evPoll:
		r.fleet.entries.all[e.id].ask()
	case evSpend:
		r.fleet.entries.all[e.id].spend()
	case evWaitEnd:
		r.fleet.waiters.all[e.id].end()
	case evSettle:
		r.demand.settle(r.demand.reservations.all[e.id])

	case evDraws, evLook:
		if l := r.concerned(e).links[int(e.id)%len(r.redis.shards)]; l != nil && e.kind == evDraws {
			r.network.depart(l)
		} else if l != nil {
			r.network.look(l)
		}
	case evFlush:
		r.network.flush(r.network.batches.all[e.id])
	case evShaken:
		r.network.shaken(r.network.batches.all[e.id])
	case evRequest:
		if b := r.network.batches.all[e.id]; r.network.cut(b.p, e.at) {
			r.network.end(b)
		} else {
			r.redis.arrive(b)
		}
	case evServed:
		r.redis.serve(r.network.batches.all[e.id])
	case evReply:
		r.network.replied(r.network.batches.all[e.id])

	case evPause:
		r.fleet.pause(r.fleet.processes[e.id])
	case evResume:
		r.fleet.resume(r.fleet.processes[e.id])
	case evKill:
		r.fleet.fail(r.fleet.processes[e.id])
	case evStart:
		p := r.fleet.processes[e.id]
		if p.rank < p.group.count {
			r.fleet.start(p)
			r.demand.begin(p)
		}
		r.fleet.plan(p, evKill)

	case evAct:
		r.acts[e.id]()
	case evSample:
		r.sample()
	}
}

func (r *replication) counts() report.Counts {
	return report.Counts{
		Offered: r.books.offered, Admitted: r.books.tally.Admitted,
		Central: r.books.centralServed(), RoundTrips: r.network.trips,
	}
}

// warm ends the warm-up: all counts start again.
func (r *replication) warm() {
	r.recorder.Warm(r.counts())
	r.books.warm(r.fleet.entries.all)
	r.network.calls, r.network.trips = 0, 0
	for _, p := range r.fleet.processes {
		p.calls = 0
	}
	r.redis.warm()
}

func (r *replication) sample() {
	levels := report.Levels{Held: r.fleet.held(), Running: r.fleet.running}
	if b := *r.redis.place(0); b != nil {
		levels.Level, levels.Ledger = b.Level(), b.Ledger()
	}
	r.recorder.Add(r.counts(), levels)
	r.books.compare((*report.Accuracy).Point)
	r.books.spans.Point(r.time.now, r.books.count)
	if next := r.time.now + r.recorder.Step; next < int64(r.s.Duration) {
		r.time.at(next, evSample, 0)
	}
}

func (r *replication) outcome() report.Outcome {
	b, seconds := &r.books, (r.s.Duration - r.s.Warmup).Seconds()
	b.spans.End(int64(r.s.Duration), b.count())
	b.turn(report.Settled)
	shares := b.spans.Shares(0)
	own, settled := b.score.figures(r.s, b.faults, b.centralAdmitted, shares)
	o := report.Outcome{Seed: r.seed, Requests: b.requests, Most: r.fleet.most, Settled: settled,
		Series: r.recorder.Series}
	o.Figures = report.Figures{
		Offered: figure(b.offered), CentralAdmitted: figure(b.centralServed()),
		Admitted: own.Admitted, AdmittedVsCentral: own.AdmittedVsCentral, BoundExceededBy: figure(b.audit.ExceededBy()),
		FalseRejectRatio: own.FalseRejectRatio, StartStock: own.StartStock, FaultStock: own.FaultStock,
		SwappedRatio: own.SwappedRatio, RoundTripsPerS: figure(float64(r.network.trips) / seconds),
		Jain: own.Jain, WorstShare: own.WorstShare,
		CallsPerS: figure(float64(r.network.calls) / seconds),
		RedisCPU:  figure(float64(r.redis.cpu()) / 1e9 / seconds),
		Stranded:  figure(r.recorder.Stranded()), Burnt: figure(b.burnt(r.fleet.entries.all) - b.burntBefore),
		Degraded: figure(b.degraded), Shadowed: figure(b.shadowed),
		Charged: figure(b.charged), Refunded: figure(b.refunded),
		WaitMsP50: figure(b.waits.Quantile(50)), WaitMsP99: figure(b.waits.Quantile(99)),
		WaitMsMax: figure(b.waits.Quantile(100)), DeniedWaitMsP99: figure(b.denials.Quantile(99)),
	}
	for k, c := range b.rivals {
		its, _ := c.score.figures(r.s, b.faults, b.centralAdmitted, b.spans.Shares(1+k))
		its.BoundExceededBy, its.RoundTripsPerS = figure(c.audit.ExceededBy()), figure(float64(c.trips())/seconds)
		if c.remote != nil {
			its.Remote = true
			its.RedisCPU = figure(float64(c.remote.cpu()) / 1e9 / seconds)
			its.WaitMsP50, its.WaitMsP99 = figure(c.remote.waits.Quantile(50)), figure(c.remote.waits.Quantile(99))
		}
		o.Rivals = append(o.Rivals, its)
	}
	if len(b.classes) > 1 {
		for _, c := range b.classes {
			o.Classes = append(o.Classes, report.ClassReport{
				Headroom: c.headroom, Groups: c.groups, Offered: figure(c.offered), Admitted: figure(c.admitted),
				AdmittedRatio: figure(report.Part(c.admitted, c.offered, 1)), Shadowed: figure(c.shadowed),
			})
		}
	}
	for i, p := range r.fleet.processes {
		o.Members = append(o.Members, report.Member{
			Group: p.group.Name, Offered: b.offeredBy[i], Admitted: b.tally.ByProcess[i],
			Share: shares[i], Calls: p.calls,
		})
	}
	return o
}

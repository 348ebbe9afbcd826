package engine

import (
	"context"
	"fmt"

	"github.com/yuzhi-go/yuzhi/sim/random"
	"github.com/yuzhi-go/yuzhi/sim/report"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// The entities that have a random stream of their own; see random.New. A process is named by its
// group's place and its rank there, so that one process or group more changes nothing for the
// others.
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

// replication is one run of a scenario: its parts, and how they meet. Each part has its own data
// and makes events; handle brings each event to the parts that it concerns. One goroutine runs it.
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

	// undecided is the tokens of requests that still wait at the end, or on their way to them. The
	// auditor counts them.
	undecided int64
}

// newReplication sets one up. s has its defaults and is valid.
func newReplication(s *scenario.Scenario, seed uint64) (*replication, error) {
	r := &replication{s: s, seed: seed, recorder: report.NewRecorder(s.Duration)}
	r.network = network{time: &r.time, s: &s.Network, timeout: s.CallTimeout}
	r.network.stream = random.New(seed, streamNetwork)
	r.redis = newRedis(&r.time, s, random.New(seed, streamRedis), &r.network)
	r.redis.answered = r.books.executed
	r.fleet = fleet{time: &r.time, s: s, network: &r.network, books: &r.books, askers: &r.demand}
	r.fleet.assemble(seed)
	r.network.ports = make([]port, len(r.fleet.processes))
	r.demand = demand{time: &r.time, s: s, seed: seed, fleet: &r.fleet, books: &r.books}
	r.demand.prepare(&r.fleet)
	var err error
	if r.books, err = newBooks(&r.time, s, &r.fleet); err != nil {
		return nil, err
	}
	for _, g := range r.fleet.groups {
		for _, p := range g.members[:g.count] {
			r.fleet.start(p)
		}
	}
	r.foresee()
	for _, g := range r.fleet.groups { // after foresee: faults come before the requests of their instant
		r.demand.divide(g)
	}
	return r, nil
}

// foresee makes the events that the scenario names.
func (r *replication) foresee() {
	for i := range r.fleet.steps {
		r.time.at(int64(r.fleet.steps[i].At), evScale, int32(i))
	}
	for i := range r.s.Redis.Faults {
		f := &r.s.Redis.Faults[i]
		if f.Kind == scenario.FaultFailover {
			r.time.at(max(0, int64(f.At-f.Lost)), evSnapshot, int32(i))
		}
		r.time.at(int64(f.At), evRedisBegin, int32(i))
		if f.Kind != scenario.FaultClockStep {
			r.time.at(int64(f.At+f.For), evRedisEnd, int32(i))
		}
	}
	for _, p := range r.fleet.processes {
		r.fleet.plan(p, evPause)
		r.fleet.plan(p, evKill)
	}
	if r.s.Warmup > 0 {
		r.time.at(int64(r.s.Warmup), evWarm, 0)
	}
	r.time.at(r.recorder.Step, evSample, 0)
}

// interruptedEvery is how many events pass between two looks at the context and two reports of
// progress.
const interruptedEvery = 1 << 16

// run simulates until the end. progress is told the part of the time that has passed.
func (r *replication) run(ctx context.Context, progress func(float64)) error {
	for n := 0; r.goesOn(); n++ {
		r.step()
		if n%interruptedEvery == 0 {
			if ctx.Err() != nil {
				return interrupted(ctx)
			}
			if progress != nil {
				progress(float64(r.time.now) / float64(r.s.Duration))
			}
		}
	}
	return r.finish()
}

// goesOn reports whether anything is still to happen.
func (r *replication) goesOn() bool {
	return len(r.time.heap) > 0 && r.time.heap[0].at < int64(r.s.Duration)
}

// finish closes the books.
func (r *replication) finish() error {
	r.time.now = int64(r.s.Duration)
	r.undecided = r.books.audit.End()
	if err := r.books.balance(r.fleet.entries); err != nil {
		return fmt.Errorf("seed %d: %w", r.seed, err)
	}
	return nil
}

// step goes to the next event.
func (r *replication) step() {
	e := r.time.heap[0]
	r.time.now = e.at
	if e.kind == evArrival {
		r.demand.arrive()
	} else {
		r.time.pop()
		r.handle(e)
	}
	if len(r.time.heap) >= r.time.sweepAt {
		r.time.sweep(r.obsolete)
	}
}

// handle is every event but arrivals.
func (r *replication) handle(e event) {
	switch e.kind {
	case evPoll:
		r.fleet.entries[e.who].polled(e)
	case evSpend:
		r.fleet.entries[e.who].spend(e)
	case evWaitEnd:
		r.fleet.waiters[e.who].ended(e)
	case evUser:
		r.demand.step(e)

	case evFlush:
		b := r.network.batches[e.who]
		r.network.flush(b)
		r.network.done(b)
	case evRequest:
		b := r.network.batches[e.who]
		if !r.network.cut(b.p) {
			r.redis.arrive(b)
		}
		r.network.done(b)
	case evServed:
		b := r.network.batches[e.who]
		r.redis.serve(b)
		r.network.done(b)
	case evReply:
		b := r.network.batches[e.who]
		if r.network.asleep(b) {
			r.time.at(b.p.resumed(), evReply, e.who)
			return
		}
		calls := r.network.answered(b)
		for i := range calls {
			if c := &calls[i]; c.entry.alive {
				c.entry.receive(c)
			}
		}
		r.network.done(b)
	case evOverdue:
		calls := r.network.overdue(e)
		for i := range calls {
			calls[i].entry.overdue(calls[i].number)
		}
	case evGone:
		r.network.gone(e)

	case evPause:
		r.fleet.pause(r.fleet.processes[e.who])
	case evResume:
		r.fleet.resume(r.fleet.processes[e.who])
	case evKill:
		r.fleet.fail(r.fleet.processes[e.who])
	case evStart:
		p := r.fleet.processes[e.who]
		if p.rank < p.group.count {
			r.fleet.start(p)
			r.demand.begin(p)
		}
		r.fleet.plan(p, evKill)
	case evScale:
		s := &r.fleet.steps[e.who]
		r.fleet.scale(s)
		r.demand.divide(s.group)

	case evRedisBegin:
		r.redis.begin(&r.s.Redis.Faults[e.who])
	case evRedisEnd:
		r.redis.end(&r.s.Redis.Faults[e.who])
	case evSnapshot:
		r.redis.snapshot(&r.s.Redis.Faults[e.who])

	case evSample:
		r.sample()
	case evWarm:
		r.warm()
	}
}

// obsolete reports whether nobody waits for e any more.
func (r *replication) obsolete(e event) bool {
	switch e.kind {
	case evArrival:
		return r.demand.stale(e)
	case evUser:
		return r.demand.users[e.who].next != e.seq
	case evPoll:
		return !r.fleet.entries[e.who].alive || r.fleet.entries[e.who].pollSeq != e.seq
	case evSpend:
		return !r.fleet.entries[e.who].alive || r.fleet.entries[e.who].spendSeq != e.seq
	case evWaitEnd:
		return r.fleet.waiters[e.who].endSeq != e.seq
	case evOverdue:
		return r.network.batches[e.who].overdueSeq != e.seq
	case evGone:
		return r.network.batches[e.who].goneSeq != e.seq
	}
	return false
}

func (r *replication) counts() report.Counts {
	return report.Counts{
		Offered: r.books.offered, Admitted: r.books.tally.Admitted,
		Central: r.books.centralAdmitted, RoundTrips: r.network.trips,
	}
}

// warm ends the warm-up: counting starts anew.
func (r *replication) warm() {
	r.recorder.Warm(r.counts())
	r.books.burntBefore = r.books.burnt(r.fleet.entries)
	r.books.warm()
	r.network.warm()
	r.redis.warm()
}

// sample takes a point of the series.
func (r *replication) sample() {
	levels := report.Levels{Held: r.fleet.held(), Running: r.fleet.running}
	if b := *r.redis.place(0); b != nil {
		levels.Level, levels.Ledger = b.Level(), b.Ledger()
	}
	r.recorder.Add(r.counts(), levels)
	if next := r.time.now + r.recorder.Step; next < int64(r.s.Duration) {
		r.time.at(next, evSample, 0)
	}
}

// outcome sums the replication up.
func (r *replication) outcome() report.Outcome {
	b, seconds := &r.books, (r.s.Duration - r.s.Warmup).Seconds()
	weights := make([]int64, len(r.fleet.processes))
	for i, p := range r.fleet.processes {
		weights[i] = p.group.Weight
	}
	fair := report.FairnessOf(b.offeredBy, b.tally.ByProcess, weights)
	o := report.Outcome{Seed: r.seed, Requests: b.requests, Most: r.fleet.most, Series: r.recorder.Series}
	set := func(f *report.Figure, x float64) { f.Mean = x }
	f := &o.Figures
	set(&f.Offered, float64(b.offered))
	set(&f.Admitted, float64(b.tally.Admitted))
	set(&f.CentralAdmitted, float64(b.centralAdmitted))
	set(&f.AdmittedVsCentral, report.Part(b.tally.Admitted, b.centralAdmitted, 1))
	set(&f.BoundExceededBy, float64(b.audit.ExceededBy()))
	set(&f.FalseRejectRatio, report.Part(b.tally.FalseRejects, b.centralAdmitted, 0))
	set(&f.SwappedRatio, report.Part(b.tally.Swapped, b.centralAdmitted, 0))
	set(&f.CallsPerS, float64(r.network.calls())/seconds)
	set(&f.RoundTripsPerS, float64(r.network.trips)/seconds)
	set(&f.RedisCPU, float64(r.redis.cpu())/1e9/seconds)
	set(&f.Jain, fair.Jain)
	set(&f.WorstShare, fair.Worst)
	set(&f.Stranded, r.recorder.Stranded())
	set(&f.Burnt, float64(b.burnt(r.fleet.entries)-b.burntBefore))
	set(&f.Degraded, float64(b.degraded))
	set(&f.WaitMsP50, b.waits.Quantile(50))
	set(&f.WaitMsP99, b.waits.Quantile(99))
	set(&f.WaitMsMax, b.waits.Quantile(100))
	for _, c := range b.rivals {
		fair := report.FairnessOf(b.offeredBy, c.tally.ByProcess, weights)
		x := report.RivalReport{}
		set(&x.Admitted, float64(c.tally.Admitted))
		set(&x.AdmittedVsCentral, report.Part(c.tally.Admitted, b.centralAdmitted, 1))
		set(&x.BoundExceededBy, float64(c.audit.ExceededBy()))
		set(&x.FalseRejectRatio, report.Part(c.tally.FalseRejects, b.centralAdmitted, 0))
		set(&x.SwappedRatio, report.Part(c.tally.Swapped, b.centralAdmitted, 0))
		set(&x.RoundTripsPerS, float64(c.RoundTrips()-c.tripsWarm)/seconds)
		set(&x.Jain, fair.Jain)
		set(&x.WorstShare, fair.Worst)
		o.Rivals = append(o.Rivals, x)
	}
	for i, p := range r.fleet.processes {
		o.Members = append(o.Members, report.Member{
			Group: p.group.Name, Offered: b.offeredBy[i], Admitted: b.tally.ByProcess[i],
			Share: fair.Shares[i], Calls: r.network.ports[i].calls,
		})
	}
	return o
}

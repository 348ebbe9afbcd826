package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/random"
	"github.com/yuzhi-go/yuzhi/sim/report"
	"github.com/yuzhi-go/yuzhi/sim/rival"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// ErrNotConserved is wrapped by the error of a run whose books do not balance: a mistake in this program or in lease.
var ErrNotConserved = errors.New("sim: tokens lost or forged")

// world is one replication: everything that is simulated, and its time. One goroutine runs it.
type world struct {
	s      *scenario.Scenario
	seed   uint64
	config lease.Config
	strict bool

	now     int64
	queue   eventQueue
	sweepAt int            // sweep when there are so many events
	watch   func(*call)    // sees every call that a bucket answers, for tests
	upgrade func(*process) // changes what a process runs that starts, for tests

	groups    []*group
	processes []*process
	shards    []*shard
	replicas  map[*scenario.RedisFault][][]*bucket // what the replica of each shard has that a failover promotes
	steps     []step
	weights   *random.Weights // of keys

	entries     []*entry
	freeEntries []int32
	batches     []*batch
	freeBatches []*batch
	waiters     []*waiter
	freeWaiters []int32
	users       []user

	netStream, redisStream random.Stream
	callNumber             int64
	running, runningMost   int

	central []rival.Central // of each key
	audit   auditor
	tally   report.Tally
	rivals  []*contender

	requests int64 // ever
	counts
	undecided int64 // tokens of requests that still wait at the end, or on their way to them: the auditor counts them
	books     books
	series    recorder
	waits     *hdrhistogram.Histogram // microseconds; those who did not wait are not in it
}

// counts is what is counted since the warm-up.
type counts struct {
	offered, centralAdmitted int64
	calls, roundTrips        int64
	degraded                 int64
	waited                   int64 // admitted requests in the histogram of waits
	served                   int64 // admitted requests
	held, samples            int64 // tokens in the pools, summed over the samples
	burntBefore              int64 // burnt in the warm-up
}

// step is one step of a group's autoscaling.
type step struct {
	group *group
	scenario.Step
}

// contender is a rival with its books.
type contender struct {
	rival.Algorithm
	name      string
	audit     auditor
	tally     report.Tally
	tripsWarm int64
}

// at makes an event and returns its number.
func (w *world) at(t int64, kind eventKind, who int32) uint64 {
	return w.queue.push(t, kind, who)
}

// interruptedEvery is how many events pass between two looks at the context and two reports of progress.
const interruptedEvery = 1 << 16

// run simulates until the end. progress is told the part of the time that has passed.
func (w *world) run(ctx context.Context, progress func(float64)) error {
	end := int64(w.s.Duration)
	for n := 0; len(w.queue.heap) > 0 && w.queue.heap[0].at < end; n++ {
		w.advance()
		if n%interruptedEvery == 0 {
			if ctx.Err() != nil {
				return fmt.Errorf("%w: %w", ErrInterrupted, context.Cause(ctx))
			}
			if progress != nil {
				progress(float64(w.now) / float64(end))
			}
		}
	}
	w.now = end
	w.undecided = w.audit.end()
	return w.balance()
}

// advance goes to the next event.
func (w *world) advance() {
	e := w.queue.heap[0]
	w.now = e.at
	if e.kind == evArrival {
		w.arrival(e)
	} else {
		w.queue.pop()
		w.handle(e)
	}
	if len(w.queue.heap) >= w.sweepAt {
		w.sweep()
	}
}

// arrival takes one request off a process's stream, and asks it.
func (w *world) arrival(e event) {
	p := w.processes[e.who]
	if p.arrival != e.seq {
		w.queue.pop()
		return
	}
	if p.pausedUntil > 0 {
		w.queue.pop()
		p.arrival = w.at(p.pausedUntil, evArrival, p.index)
		return
	}
	key, n := p.draw()
	p.arrivalAt = p.requests.Next(p.arrivalAt)
	if p.arrivalAt >= int64(w.s.Duration) {
		w.queue.pop()
		p.arrival = 0
	} else {
		w.queue.replace(max(p.arrivalAt, w.now), evArrival, p.index)
		p.arrival = w.queue.seq
	}
	w.offer(p, key, n, -1)
}

// handle is every event but arrivals.
func (w *world) handle(e event) {
	switch e.kind {
	case evPoll:
		x := w.entries[e.who]
		switch {
		case !x.alive || x.pollSeq != e.seq:
		case x.p.pausedUntil > 0:
			x.pollAt = x.p.resumed()
			x.pollSeq = w.at(x.pollAt, evPoll, e.who)
		default:
			x.ask()
		}
	case evWaitEnd:
		x := w.waiters[e.who]
		switch {
		case x.endSeq != e.seq:
		case x.e.p.pausedUntil > 0:
			x.endSeq = w.at(x.e.p.resumed(), evWaitEnd, e.who)
		default:
			x.e.waitEnded(x)
		}
	case evFlush, evRequest, evServed, evReply:
		b := w.batches[e.who]
		if e.kind == evReply && b.asleep() {
			w.at(b.p.resumed(), e.kind, e.who)
			return
		}
		w.travel(e.kind, b)
		w.done(b)
	case evOverdue, evGone:
		w.late(e)
	case evSpend:
		if x := w.entries[e.who]; x.alive && x.spendSeq == e.seq && x.p.pausedUntil == 0 && x.p.local() < x.holder.Deadline() {
			w.drain(x)
		}
	case evUser:
		w.think(e)
	case evPause, evResume, evKill, evStart, evScale:
		w.change(e)
	case evRedisBegin:
		w.begin(&w.s.Redis.Faults[e.who])
	case evRedisEnd:
		w.end(&w.s.Redis.Faults[e.who])
	case evSnapshot:
		w.snapshot(&w.s.Redis.Faults[e.who])
	case evSample:
		w.sample()
	case evWarm:
		w.warm()
	}
}

// travel is the next stage of a batch's journey.
func (w *world) travel(stage eventKind, b *batch) {
	switch stage {
	case evFlush:
		w.flush(b)
	case evRequest:
		if !w.cut(b.p) {
			w.arrive(b)
		}
	case evServed:
		w.serve(b)
	case evReply:
		if !w.cut(b.p) {
			w.answered(b)
		}
	}
}

// cut reports whether a partition separates p from Redis now.
func (w *world) cut(p *process) bool {
	for i := range w.s.Network.Partitions {
		x := &w.s.Network.Partitions[i]
		if w.now < int64(x.At) || w.now >= int64(x.At+x.For) || x.Group != "" && x.Group != p.group.Name {
			continue
		}
		if x.Part == 0 || float64(p.rank) < float64(x.Part)*float64(len(p.group.members)) {
			return true
		}
	}
	return false
}

// warm ends the warm-up: counting starts anew.
func (w *world) warm() {
	was := w.recorded()
	w.counts = counts{burntBefore: w.burnt()}
	w.tally.Reset()
	for _, c := range w.rivals {
		c.tally.Reset()
		c.tripsWarm = c.RoundTrips()
	}
	for _, s := range w.shards {
		s.busy = s.left(w)
	}
	for _, p := range w.processes {
		p.offered, p.calls = 0, 0
	}
	w.waits.Reset()
	w.series.restart(was)
}

func (w *world) newEntry() *entry {
	if n := len(w.freeEntries); n > 0 {
		id := w.freeEntries[n-1]
		w.freeEntries = w.freeEntries[:n-1]
		e := &entry{w: w, id: id, alive: true}
		w.entries[id] = e
		return e
	}
	e := &entry{w: w, id: int32(len(w.entries)), alive: true}
	w.entries = append(w.entries, e)
	return e
}

// retire takes an entry that has ended off the books.
func (w *world) retire(e *entry) {
	w.books.close(e)
	e.alive = false
	delete(e.p.entries, e.key)
	if e.p.single == e {
		e.p.single = nil
	}
	w.freeEntries = append(w.freeEntries, e.id)
}

func (w *world) newWaiter() *waiter {
	if n := len(w.freeWaiters); n > 0 {
		id := w.freeWaiters[n-1]
		w.freeWaiters = w.freeWaiters[:n-1]
		return w.waiters[id]
	}
	x := &waiter{id: int32(len(w.waiters))}
	w.waiters = append(w.waiters, x)
	return x
}

func (w *world) freeWaiter(x *waiter) {
	*x = waiter{id: x.id, audited: x.audited[:0]}
	w.freeWaiters = append(w.freeWaiters, x.id)
}

// sortedValues lists a map's entries in the order of their numbers, because a map has none.
func sortedValues(m map[int32]*entry) []int32 {
	ids := make([]int32, 0, len(m))
	for _, e := range m {
		ids = append(ids, e.id)
	}
	slices.Sort(ids)
	return ids
}

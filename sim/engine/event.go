package engine

import "slices"

// event is something that happens at a time. Events of one time happen in the order in which they were made, but those at its
// end after all others, so that a run is the same on every machine. It holds no pointer: the queue is the engine's
// busiest memory.
type event struct {
	at   int64  // nanoseconds since the start
	seq  uint64 // the order of making, from 1, and atEnd
	kind eventKind
	who  int32 // what it is about, by the kind
}

func (e event) before(o event) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

// eventKind says what an event is and what its who numbers.
type eventKind uint8

const (
	evArrival    eventKind = iota // a request of process who
	evPoll                        // entry who may have a call due
	evFlush                       // batch who is sent, at the end of the instant
	evRequest                     // batch who reaches Redis
	evServed                      // batch who has been executed
	evReply                       // batch who is answered
	evOverdue                     // batch who has taken too long
	evGone                        // nobody listens for batch who any more
	evWaitEnd                     // waiter who has waited long enough
	evSpend                       // adversary's entry who, whose lease is about to end
	evUser                        // the next step of closed-loop user who
	evPause                       // process who stops
	evResume                      // process who goes on
	evKill                        // process who is killed
	evStart                       // process who starts
	evScale                       // step who of the schedule
	evRedisBegin                  // fault who of Redis begins
	evRedisEnd                    // and ends
	evSnapshot                    // what the replica of fault who has
	evSample                      // a point of the series
	evWarm                        // the warm-up ends
)

// eventQueue is a heap with four children to a node, which is flatter, and kinder to the cache, than two.
type eventQueue struct {
	heap []event
	seq  uint64
}

// atEnd has an event happen at the end of its instant.
const atEnd = 1 << 63

// push makes an event and returns its number.
func (q *eventQueue) push(at int64, kind eventKind, who int32) uint64 {
	q.seq++
	e := event{at, q.seq, kind, who}
	if kind == evFlush {
		e.seq |= atEnd
	}
	q.heap = append(q.heap, event{})
	q.up(len(q.heap)-1, e)
	return e.seq
}

func (q *eventQueue) up(i int, e event) {
	for i > 0 {
		parent := (i - 1) / 4
		if !e.before(q.heap[parent]) {
			break
		}
		q.heap[i] = q.heap[parent]
		i = parent
	}
	q.heap[i] = e
}

// replace puts another event in place of the first one: the commonest step, an arrival that begets the next.
func (q *eventQueue) replace(at int64, kind eventKind, who int32) {
	q.seq++
	q.down(0, event{at, q.seq, kind, who})
}

// pop removes the first event.
func (q *eventQueue) pop() {
	last := len(q.heap) - 1
	e := q.heap[last]
	q.heap = q.heap[:last]
	if last > 0 {
		q.down(0, e)
	}
}

// drop removes events. The order of those that stay does not depend on how they lie in the heap.
func (q *eventQueue) drop(obsolete func(event) bool) {
	q.heap = slices.DeleteFunc(q.heap, obsolete)
	for i := (len(q.heap) - 2) / 4; i >= 0 && len(q.heap) > 1; i-- {
		q.down(i, q.heap[i])
	}
}

// down puts e at i and lets it sink.
func (q *eventQueue) down(i int, e event) {
	h := q.heap
	n := len(h)
	for {
		first := 4*i + 1
		if first >= n {
			break
		}
		least := first
		for c := first + 1; c < min(first+4, n); c++ {
			if h[c].before(h[least]) {
				least = c
			}
		}
		if !h[least].before(e) {
			break
		}
		h[i] = h[least]
		i = least
	}
	h[i] = e
}

// sweep drops the events that nobody waits for any more, such as the ends of waits that have ended. Otherwise there would
// be as many as a lease or a deadline has requests.
func (w *world) sweep() {
	w.queue.drop(w.obsolete)
	w.sweepAt = 2*len(w.queue.heap) + 1024
}

func (w *world) obsolete(e event) bool {
	switch e.kind {
	case evArrival:
		return w.processes[e.who].arrival != e.seq
	case evPoll:
		return !w.entries[e.who].alive || w.entries[e.who].pollSeq != e.seq
	case evSpend:
		return !w.entries[e.who].alive || w.entries[e.who].spendSeq != e.seq
	case evWaitEnd:
		return w.waiters[e.who].endSeq != e.seq
	case evOverdue:
		return w.batches[e.who].overdueSeq != e.seq
	case evGone:
		return w.batches[e.who].goneSeq != e.seq
	case evUser:
		return w.users[e.who].next != e.seq
	}
	return false
}

package engine

import (
	"math/bits"
	"slices"

	"github.com/yuzhi-go/yuzhi/sim/arrival"
)

// never is the time of an event that will not happen.
const never = arrival.Never

// agenda has the simulated time, and a heap of the pending events. A heap node has four children, which use
// the cache better than two.
type agenda struct {
	now     int64 // simulated time, in nanoseconds since the start
	heap    []event
	made    uint64               // number of events made
	due     [eventKinds][]moment // the pending event of each kind and id
	sweepAt int                  // length of heap that triggers the next sweep
}

// event happens at a time. Events of one time happen in the order of seq. An event has no pointer, because
// the garbage collector would scan all pointers in the heap, the engine's busiest memory.
type event struct {
	at   int64
	seq  uint64 // number of the event, from 1 in the order of making, plus atEnd if it is set
	kind eventKind
	id   int32 // index of the process, entry, batch or other object of the event
}

func (e *event) before(o *event) bool { return e.isBefore(o) == 1 }

// isBefore returns 1 if e is before o, else 0. isBefore subtracts 128-bit numbers, because a processor cannot
// predict a branch on the nearly random order of a heap.
func (e *event) isBefore(o *event) int {
	_, borrow := bits.Sub64(e.seq, o.seq, 0)
	_, borrow = bits.Sub64(uint64(e.at), uint64(o.at), borrow)
	return int(borrow)
}

// moment identifies an event by its time and number; a seq of 0 means no event.
type moment struct {
	at  int64
	seq uint64
}

type eventKind uint8

const (
	evArrival eventKind = iota // a process gets a request
	evPoll                     // an entry polls its client
	evFlush                    // the link sends a batch, at the end of the instant
	evShaken                   // a round trip of a batch's handshake ends
	evRequest                  // a batch reaches Redis
	evServed                   // Redis has executed a batch
	evReply                    // the reply to a batch reaches the process
	evLook                     // a link checks for overdue batches
	evWaitEnd                  // a waiter has waited for its time limit
	evDraws                    // a link checks whether it may send its waiting draws
	evSpend                    // the lease of an adversary's entry is about to end
	evSettle                   // the cost of a reservation becomes known
	evPause                    // a process stops
	evResume                   // a paused process continues
	evKill                     // a process crashes
	evStart                    // a process starts
	evAct                      // a step of the scenario happens: autoscaling, a fault and so on
	evSample                   // the recorder takes a point of the series
	eventKinds
)

// atEnd, set in seq, puts an event at the end of its instant.
const atEnd = 1 << 63

// at makes an event, and replaces an earlier event of the same kind and id.
func (a *agenda) at(at int64, kind eventKind, id int32) {
	e := a.next(at, kind, id)
	i := len(a.heap)
	a.heap = append(a.heap, event{})
	for i > 0 {
		parent := (i - 1) / 4
		if !e.before(&a.heap[parent]) {
			break
		}
		a.heap[i] = a.heap[parent]
		i = parent
	}
	a.heap[i] = e
}

// replace makes an event in place of the heap's first event, which has happened. Arrivals, the most frequent
// events, use replace.
func (a *agenda) replace(at int64, kind eventKind, id int32) { a.down(0, a.next(at, kind, id)) }

func (a *agenda) next(at int64, kind eventKind, id int32) event {
	a.made++
	e := event{at, a.made, kind, id}
	if kind == evFlush {
		e.seq |= atEnd
	}
	for int(id) >= len(a.due[kind]) {
		a.due[kind] = append(a.due[kind], moment{})
	}
	a.due[kind][id] = moment{at, e.seq}
	return e
}

func (a *agenda) cancel(kind eventKind, id int32) {
	if int(id) < len(a.due[kind]) {
		a.due[kind][id] = moment{}
	}
}

// expects reports whether an event of this kind and id is pending for the time at.
func (a *agenda) expects(at int64, kind eventKind, id int32) bool {
	return a.planned(kind, id) && a.due[kind][id].at == at
}

// planned reports whether an event of this kind and id is pending.
func (a *agenda) planned(kind eventKind, id int32) bool {
	return int(id) < len(a.due[kind]) && a.due[kind][id].seq != 0
}

// obsolete reports whether e was cancelled or replaced.
func (a *agenda) obsolete(e event) bool { return a.due[e.kind][e.id].seq != e.seq }

func (a *agenda) pop() {
	last := len(a.heap) - 1
	e := a.heap[last]
	a.heap = a.heap[:last]
	if last > 0 {
		a.down(0, e)
	}
}

// sweep drops obsolete events, such as the time limits of waits that have ended.
func (a *agenda) sweep() {
	a.heap = slices.DeleteFunc(a.heap, a.obsolete)
	a.sweepAt = 2*len(a.heap) + 1024
	for i := (len(a.heap) - 2) / 4; i >= 0 && len(a.heap) > 1; i-- {
		a.down(i, a.heap[i])
	}
}

// down puts e at place i of the heap and moves e down to its level.
func (a *agenda) down(i int, e event) {
	h := a.heap
	for {
		first := 4*i + 1
		if first >= len(h) {
			break
		}
		least := first
		if first+4 <= len(h) {
			c := h[first : first+4 : first+4]
			left := c[1].isBefore(&c[0])
			right := 2 + c[3].isBefore(&c[2])
			least += left + (right-left)*c[right&3].isBefore(&c[left&3])
		} else {
			for c := first + 1; c < len(h); c++ {
				if h[c].before(&h[least]) {
					least = c
				}
			}
		}
		if !h[least].before(&e) {
			break
		}
		h[i] = h[least]
		i = least
	}
	h[i] = e
}

// slots numbers the objects of events, and reuses the numbers of objects that have ended.
type slots[T any] struct {
	all  []*T
	free []int32
}

// number returns a free number, whose slot may still contain the slot's last object.
func (s *slots[T]) number() (id int32) {
	if n := len(s.free); n > 0 {
		id = s.free[n-1]
		s.free = s.free[:n-1]
		return id
	}
	s.all = append(s.all, nil)
	return int32(len(s.all) - 1)
}

// take returns a free number and the last object in its slot.
func (s *slots[T]) take() (id int32, last *T) {
	id = s.number()
	if s.all[id] == nil {
		s.all[id] = new(T)
	}
	return id, s.all[id]
}

func (s *slots[T]) give(id int32) { s.free = append(s.free, id) }

// serverStart is the time of Redis and of right clocks at the start, in microseconds.
const serverStart = 1_700_000_000_000_000

// These constants number the kinds of entities with a random stream. Further words of random.New identify a
// process by the index of its group and its rank in the group, so that an additional process changes no other
// stream.
const (
	streamProcess uint64 = iota + 1
	streamArrivals
	streamPauses
	streamClock
	streamNetwork
	streamRedis
	streamRestarts
	streamHolders
	streamReservations
	streamRivals
)

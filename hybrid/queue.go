package hybrid

import (
	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
)

// waiter is one request that waits for tokens. There are two kinds. One of Allow or Take waits for one lease call and
// holds none of the pool's tokens meanwhile, so that a request which is denied in the end has cost the others
// nothing. A patient one, of Wait, gathers tokens until it has them all, and nobody who came later is served before.
type waiter struct {
	n        int64         // asked for
	got      int64         // has so far
	until    clock.Instant // got is lost from then on: nothing has been heard of the bucket for too long
	drawn    lease.Drawn   // of the oldest of them
	pooled   int64         // of got: taken from the pool in epoch, where it may go back to
	epoch    lease.Epoch
	asked    int64 // seq of the call that counts it as waiting; 0 for none yet
	patient  bool
	deadline clock.Instant // of a patient one's context; lease.Never for none
	told     bool
	ready    chan outcome
	prev     *waiter
	next     *waiter
}

// outcome is what a waiter is told.
type outcome struct {
	ok     bool
	source Source
	err    error
}

func (w *waiter) lacks() int64 { return w.n - w.got }

// queue is a key's waiters, first in first out. Guarded by the entry's lock.
type queue struct {
	head, tail *waiter
	lacking    int64 // sum of lacks
	patient    int64 // the patient ones' part of it
	patients   int   // how many of them
}

func (q *queue) push(w *waiter) {
	w.prev, w.next = q.tail, nil
	if q.tail == nil {
		q.head = w
	} else {
		q.tail.next = w
	}
	q.tail = w
	q.count(w, w.lacks(), 1)
}

func (q *queue) remove(w *waiter) {
	if w.prev == nil {
		q.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	q.count(w, -w.lacks(), -1)
	w.prev, w.next = nil, nil
}

// give hands w n tokens that left the bucket at drawn.
func (q *queue) give(w *waiter, n int64, drawn lease.Drawn) {
	if w.got == 0 {
		w.drawn = drawn
	}
	w.got += n
	q.count(w, -n, 0)
}

// givePooled hands w n tokens that were taken from the pool in epoch e.
func (q *queue) givePooled(w *waiter, n int64, e lease.Epoch, drawn lease.Drawn) {
	if w.epoch != e {
		w.pooled, w.epoch = 0, e
	}
	w.pooled += n
	q.give(w, n, drawn)
}

func (q *queue) count(w *waiter, tokens int64, waiters int) {
	q.lacking += tokens
	if w.patient {
		q.patient += tokens
		q.patients += waiters
	}
}

// need is the fewest tokens that serve anybody: with fewer, a grant is useless. A patient request gathers, at least
// so many at a time as given.
func (q *queue) need(gather int64) int64 {
	least := int64(0)
	for w := q.head; w != nil; w = w.next {
		n := w.lacks()
		if w.patient {
			n = min(n, gather)
		}
		if least == 0 || n < least {
			least = n
		}
		if w.patient {
			break // nobody behind is served before it
		}
	}
	return max(1, least)
}

package hybrid

import (
	"github.com/yuzhi-go/yuzhi/lease"
)

// waiter is one request that waits for tokens.
type waiter struct {
	n     int64 // asked for
	got   int64 // received so far
	pools []portion
	asked int64 // seq of the call that counts it as waiting; 0 for none yet
	ready chan outcome
	prev  *waiter
	next  *waiter
}

// portion is tokens that came from the pool, with the report interval that they may go back to it in. Tokens
// that came with a reply can only go back as a refund.
type portion struct {
	n     int64
	epoch lease.Epoch
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
}

func (q *queue) push(w *waiter) {
	w.prev, w.next = q.tail, nil
	if q.tail == nil {
		q.head = w
	} else {
		q.tail.next = w
	}
	q.tail = w
	q.lacking += w.lacks()
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
	q.lacking -= w.lacks()
	w.prev, w.next = nil, nil
}

// give hands n tokens to w.
func (q *queue) give(w *waiter, n int64) {
	w.got += n
	q.lacking -= n
}

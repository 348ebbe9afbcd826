package protocol

import (
	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/pool"
)

// Waiter is one request that waits for tokens. Its user makes it, or uses it again after it was
// settled: the fields that the user sets are those in upper case.
type Waiter struct {
	N        int64
	Patience Patience      // OneCall, UpTo or InLine
	Deadline clock.Instant // of one InLine; Never for none
	Owner    any           // the user's own

	got     int64         // tokens that it has so far
	until   clock.Instant // got is lost from then on: nothing has been heard of the bucket for too long
	draw    pool.Draw     // of the oldest of them, but with the interval of pooled
	pooled  int64         // of got: taken from the pool in that interval, where they may go back to
	asked   int64         // seq of the call that counts it as waiting; 0 for none yet
	waiting bool
	prev    *Waiter
	next    *Waiter
}

// Got is how many tokens w has: none after it was settled without them.
func (w *Waiter) Got() int64 { return w.got }

func (w *Waiter) lacks() int64 { return w.N - w.got }

// least is the fewest tokens more that end w's wait.
func (w *Waiter) least() int64 {
	if w.Patience == UpTo {
		return 1
	}
	return w.lacks()
}

func (w *Waiter) inLine() bool { return w.Patience == InLine }

// queue is a key's waiters, first in first out.
type queue struct {
	head, tail    *Waiter
	lacking       int64 // tokens that all of them lack
	lackingInLine int64 // the part of those that wait in line
	inLine        int   // how many of them do
}

func (q *queue) push(w *Waiter) {
	w.prev, w.next = q.tail, nil
	if q.tail == nil {
		q.head = w
	} else {
		q.tail.next = w
	}
	q.tail = w
	w.waiting = true
	q.count(w, w.lacks(), 1)
}

func (q *queue) remove(w *Waiter) {
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
	w.waiting = false
}

func (q *queue) count(w *Waiter, tokens int64, waiters int) {
	q.lacking += tokens
	if w.inLine() {
		q.lackingInLine += tokens
		q.inLine += waiters
	}
}

// join notes that the call seq counts all who wait now.
func (q *queue) join(seq int64) {
	for w := q.head; w != nil; w = w.next {
		w.asked = seq
	}
}

// need is the fewest tokens that serve anybody: with fewer, a grant is useless. A request in line
// collects, at least so many at a time as portion.
func (q *queue) need(portion int64) int64 {
	least := int64(0)
	for w := q.head; w != nil; w = w.next {
		n := w.least()
		if w.inLine() {
			n = min(n, portion)
		}
		if least == 0 || n < least {
			least = n
		}
		if w.inLine() {
			break // nobody behind is served before it
		}
	}
	return max(1, least)
}

// HasWaiters reports whether any request waits.
func (c *Client) HasWaiters() bool { return c.queue.head != nil }

// Waiters calls f for every request that waits, in the order in which they came.
func (c *Client) Waiters(f func(*Waiter)) {
	for w := c.queue.head; w != nil; w = w.next {
		f(w)
	}
}

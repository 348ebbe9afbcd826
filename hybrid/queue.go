package hybrid

// waiter is one request that waits for tokens. While it waits it holds none of the pool's, so that a request
// which is denied in the end has cost the others nothing.
type waiter struct {
	n     int64 // asked for
	got   int64 // drawn for it by calls that did not bring all of it
	asked int64 // seq of the call that counts it as waiting; 0 for none yet
	told  bool
	ready chan outcome
	prev  *waiter
	next  *waiter
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

// give hands w n tokens of a grant.
func (q *queue) give(w *waiter, n int64) {
	w.got += n
	q.lacking -= n
}

// least is the fewest tokens that any waiter lacks: with fewer, a grant serves nobody.
func (q *queue) least() int64 {
	n := int64(0)
	for w := q.head; w != nil; w = w.next {
		if l := w.lacks(); n == 0 || l < n {
			n = l
		}
	}
	return n
}

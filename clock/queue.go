package clock

import "container/heap"

// call is a function that is due at some time of its clock. The clock's lock guards it.
type call struct {
	f     func()
	due   Instant
	seq   uint64
	index int // its place in the queue, or notPending

	onBase Timer // of a Skewed: what stands for it on the base
}

const notPending = -1

func newCall(f func()) call {
	if f == nil {
		panic("clock: AfterFunc of a nil function") // here, and not when it is due
	}
	return call{f: f, index: notPending}
}

// queue has a clock's pending calls, the next one first. A call knows its place, so that Stop costs
// no search.
type queue struct {
	calls []*call
	seq   uint64 // registrations so far
}

// add registers c, which is not pending, for due.
func (q *queue) add(c *call, due Instant) {
	q.seq++
	c.due, c.seq = due, q.seq
	heap.Push(q, c)
}

// remove takes c out, and reports whether it was pending.
func (q *queue) remove(c *call) bool {
	if c.index == notPending {
		return false
	}
	heap.Remove(q, c.index)
	return true
}

// Len and the methods below implement heap.Interface.
func (q *queue) Len() int { return len(q.calls) }

// Less keeps calls that are due together in the order in which they were registered.
func (q *queue) Less(i, j int) bool {
	a, b := q.calls[i], q.calls[j]
	return a.due < b.due || a.due == b.due && a.seq < b.seq
}

func (q *queue) Swap(i, j int) {
	q.calls[i], q.calls[j] = q.calls[j], q.calls[i]
	q.calls[i].index, q.calls[j].index = i, j
}

func (q *queue) Push(x any) {
	c := x.(*call)
	c.index = len(q.calls)
	q.calls = append(q.calls, c)
}

func (q *queue) Pop() any {
	last := len(q.calls) - 1
	c := q.calls[last]
	q.calls[last] = nil // or the array would keep the closure alive
	q.calls = q.calls[:last]
	c.index = notPending
	return c
}

// Package events runs the callbacks for the events of a Limiter in order.
package events

import (
	"sync"
	"sync/atomic"
)

// Queue runs callbacks one at a time, in the order of Add. Callers of Add may hold locks; callers of Run hold
// none.
type Queue struct {
	mu      sync.Mutex
	queued  []func()
	running bool
	any     atomic.Bool // whether queued has callbacks, so that Run takes no lock without any
}

// Add adds f to the queue.
func (q *Queue) Add(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queued = append(q.queued, f)
	q.any.Store(true)
}

// Run runs the queued callbacks, unless another Run is under way, which runs them.
func (q *Queue) Run() {
	if !q.any.Load() {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.running {
		return
	}
	q.running = true
	defer func() { q.running = false }()
	for len(q.queued) > 0 {
		f := q.queued[0]
		q.queued = q.queued[1:]
		q.unlocked(f)
	}
	q.queued = nil
	q.any.Store(false)
}

// unlocked calls f without the lock, and takes the lock again even if f panics.
func (q *Queue) unlocked(f func()) {
	q.mu.Unlock()
	defer q.mu.Lock()
	f()
}

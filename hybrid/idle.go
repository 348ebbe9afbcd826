package hybrid

import (
	"math/bits"
	"sync"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
)

// idleList holds the keys that are idle: they hold nothing and want nothing, and are at rest or
// soon will be. A key leaves the table when its bucket is full again and every lease has ended. How
// long that takes differs, so there is a list for each power of two of that time, longest idle
// first: a key behind another one leaves after twice its time at the latest. That costs no more for
// a million keys than for one.
type idleList struct {
	mu      sync.Mutex
	classes [64]struct{ first, last *slot }
	used    uint64 // the bit of each class that is not empty
}

// push notes that s is idle since now, and has it leave after lifetime.
func (l *idleList) push(s *slot, now clock.Instant, lifetime time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.listed || s.gone {
		return
	}
	l.link(s, now, lifetime)
}

func (l *idleList) link(s *slot, now clock.Instant, lifetime time.Duration) {
	s.class, s.listed = uint8(bits.Len64(uint64(max(lifetime, 1)))-1), true
	s.idleSince, s.leaveAt = now, now.Add(lifetime)
	c := &l.classes[s.class]
	s.prev, s.next = c.last, nil
	if c.last == nil {
		c.first = s
	} else {
		c.last.next = s
	}
	c.last = s
	l.used |= 1 << s.class
}

// remove notes that s is in use again.
func (l *idleList) remove(s *slot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unlink(s)
}

func (l *idleList) unlink(s *slot) {
	if !s.listed {
		return
	}
	s.listed = false
	c := &l.classes[s.class]
	if s.prev == nil {
		c.first = s.next
	} else {
		s.prev.next = s.next
	}
	if s.next == nil {
		c.last = s.prev
	} else {
		s.next.prev = s.prev
	}
	if c.first == nil {
		l.used &^= 1 << s.class
	}
	s.prev, s.next = nil, nil
}

// leave marks s as gone from the table.
func (l *idleList) leave(s *slot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unlink(s)
	s.gone = true
}

// rest has s remember m in place of its entry, whose lock the caller holds.
func (l *idleList) rest(s *slot, m lease.Memory, now clock.Instant, lifetime time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.memory, s.node = m, s.entry.Load().node.Load()
	s.entry.Store(nil)
	if !s.listed && !s.gone { // pop has just taken it, and drop will find that it has no entry any more
		l.link(s, now, lifetime)
	}
}

// recall is what s remembers at rest, and its node; false where it has left the table.
func (l *idleList) recall(s *slot) (m lease.Memory, node int32, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return s.memory, s.node, !s.gone
}

// rouse brings s back into use with the entry e and returns e. It returns another entry where
// somebody was faster, and nil where s has left the table.
func (l *idleList) rouse(s *slot, e *entry) *entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.gone {
		return nil
	}
	if have := s.entry.Load(); have != nil {
		return have
	}
	l.unlink(s)
	s.memory = lease.Memory{}
	s.entry.Store(e)
	return e
}

// pop takes off the key that is idle for longest, if its time has come at now, or in any case with
// force. A key at rest is gone then. One that has an entry, e, may be in use by now; see drop. next
// is when to come again at the latest.
func (l *idleList) pop(now clock.Instant, force bool) (s *slot, e *entry, next clock.Instant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next = lease.Never
	for used := l.used; used != 0; used &= used - 1 {
		class := bits.TrailingZeros64(used)
		first := l.classes[class].first
		switch {
		case force && (s == nil || first.idleSince < s.idleSince), !force && s == nil && now >= first.leaveAt:
			s = first
		default:
			next = min(next, first.leaveAt)
		}
	}
	if s == nil {
		return nil, nil, next
	}
	l.unlink(s)
	e = s.entry.Load()
	s.gone = e == nil
	return s, e, now
}

// makeRoom has the key that is idle for longest leave the table; false where every key is in use.
func (l *Limiter) makeRoom() bool {
	for {
		s, e, _ := l.keys.idle.pop(0, true)
		if s == nil {
			return false
		}
		if l.drop(s, e) {
			return true
		}
	}
}

// leavesMax bounds how many keys leave in one round of the scheduler, which has calls to send.
const leavesMax = 1000

// sweep has the keys leave whose time has come, and returns when to come again.
func (l *Limiter) sweep(now clock.Instant) clock.Instant {
	for range leavesMax {
		s, e, next := l.keys.idle.pop(now, false)
		if s == nil {
			return next
		}
		l.drop(s, e)
	}
	return now
}

// drop takes a slot that was popped, with e, out of the table; false where it stays, because its
// key is in use or has gone to rest meanwhile.
func (l *Limiter) drop(s *slot, e *entry) bool {
	if e != nil {
		return e.evict()
	}
	l.keys.remove(s)
	return true
}

// evict takes an entry and its slot out of the table, if nothing is lost with it. A Key that points
// to the entry finds another one later.
func (e *entry) evict() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.gone || !e.client.Forgettable() {
		return false
	}
	e.goneLocked()
	e.l.keys.idle.leave(e.slot)
	e.slot.entry.Store(nil) // a Key may keep the name, which is part of the slot, but not the entry
	e.l.keys.remove(e.slot)
	e.wake(false) // the scheduler forgets it too
	return true
}

// restLocked ends an entry whose key has not been used for a while, and has its slot remember what
// the next one must know; false where something would be lost.
func (e *entry) restLocked(now clock.Instant) bool {
	lifetime := e.client.Lifetime()
	m, ok := e.client.Rest()
	if ok {
		e.goneLocked()
		e.l.keys.idle.rest(e.slot, m, now, lifetime)
	}
	return ok
}

// goneLocked ends the entry. A Key that still points to it finds out with its next request.
func (e *entry) goneLocked() {
	e.gone = true
	e.client.Close()
	e.endedLocked()
	e.missed = e.client.Pool.Missed()
	e.l.counters.retire(e)
}

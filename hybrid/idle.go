package hybrid

import (
	"math/bits"
	"sync"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
)

// idleList holds the keys that hold nothing and want nothing, at rest or about to be, longest idle first. They leave the
// table when their bucket is full again and every lease has ended, which differs by key: one list for each power of two
// of that time, so that whoever waits behind another in its list leaves no later than after twice its time.
// (A heap of all of them was tried in thought only: with a million keys each step of it is a cache miss.)
type idleList struct {
	mu      sync.Mutex
	classes [64]struct{ first, last *slot }
	used    uint64 // a bit for each class that is not empty
}

// push puts s at the end, idle since now, to leave after lifetime.
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

// remove takes s off, because it is in use again.
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

// rest lets s forget its entry, whose lock the caller holds.
func (l *idleList) rest(s *slot, m lease.Memory, now clock.Instant, lifetime time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.memory, s.node = m, s.entry.Load().node.Load()
	s.entry.Store(nil)
	if !s.listed && !s.gone { // it was popped a moment ago, by somebody who will find the entry gone
		l.link(s, now, lifetime)
	}
}

// recall is what s, at rest, remembers, and its node; false where it has left the table.
func (l *idleList) recall(s *slot) (m lease.Memory, node int32, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return s.memory, s.node, !s.gone
}

// rouse gives s its entry again and returns it, or the one that it has been given meanwhile, or nil if it has left.
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

// pop takes off the key that is idle for longest, if its time has come at now; with force, in any case. One at rest
// has left the table then, one with an entry has to be asked: it may be in use by now, or at rest. next is when the one
// after it leaves at the latest.
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

// makeRoom drops the key that is idle for longest; false where every key is in use.
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

// leavesMax bounds how many keys leave in one go of the scheduler, which has renewals to send.
const leavesMax = 1000

// sweep drops the keys whose time has come and returns when to come again.
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

// drop takes a slot that was popped with e out of the table; false where its key is in use after all, or went to rest
// meanwhile, and is on its list again.
func (l *Limiter) drop(s *slot, e *entry) bool {
	if e != nil {
		return e.evict()
	}
	l.keys.remove(s)
	return true
}

// evict takes an entry that nothing is lost with out of the table. A Key that points to it rejoins later.
func (e *entry) evict() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.gone || !e.client.Forgettable() {
		return false
	}
	e.goneLocked()
	e.l.keys.idle.leave(e.slot)
	e.slot.entry.Store(nil) // whoever keeps the name, which is in the slot, does not keep the entry
	e.l.keys.remove(e.slot)
	e.wake(false) // the scheduler forgets it too
	return true
}

// restLocked lets an entry go whose key has not been used for a while, but for what its slot remembers; false where
// something would be lost.
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

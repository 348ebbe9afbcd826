package hybrid

import (
	"math/bits"
	"sync"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
)

// idleList holds the keys that hold nothing and want nothing, and are at rest or soon will be. A
// key leaves the table when its bucket is full again and every lease has ended. There is a list for
// each power of two of that time, longest idle first: a key behind another one leaves after twice
// its time at the latest.
type idleList struct {
	mu      sync.Mutex
	classes [64]slot // the ends of rings: next is the first key, prev the last
	used    uint64   // the bit of each class that is not empty
	drawing slot     // the end of the ring of keys at rest of which a draw is under way
	sweepAt clock.Instant
}

func (l *idleList) init() {
	for i := range l.classes {
		end := &l.classes[i]
		end.prev, end.next = end, end
	}
	l.drawing.prev, l.drawing.next = &l.drawing, &l.drawing
}

// push notes that s is idle since now, and has it leave after lifetime.
func (l *idleList) push(s *slot, now clock.Instant, lifetime time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !s.gone {
		l.unlinkLocked(s)
		l.linkLocked(s, now, lifetime)
	}
}

// linkLocked is push. It reports whether s leaves before the next sweep.
func (l *idleList) linkLocked(s *slot, now clock.Instant, lifetime time.Duration) (early bool) {
	s.class = uint8(bits.Len64(uint64(max(lifetime, 1))) - 1)
	s.idleSince, s.leaveAt = now, now.Add(lifetime)
	s.linkBefore(&l.classes[s.class])
	l.used |= 1 << s.class
	early = s.leaveAt < l.sweepAt
	l.sweepAt = min(l.sweepAt, s.leaveAt)
	return early
}

// linkBefore puts s at the end of a ring.
func (s *slot) linkBefore(end *slot) {
	s.prev, s.next = end.prev, end
	s.prev.next, end.prev = s, s
}

// remove notes that s is in use again.
func (l *idleList) remove(s *slot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unlinkLocked(s)
}

func (l *idleList) unlinkLocked(s *slot) {
	if s.next == nil {
		return
	}
	s.prev.next, s.next.prev = s.next, s.prev
	s.prev, s.next = nil, nil
	if end := &l.classes[s.class]; end.next == end {
		l.used &^= 1 << s.class
	}
}

// leave marks s as gone from the table.
func (l *idleList) leave(s *slot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unlinkLocked(s)
	s.gone = true
}

// rest has s remember m in place of its entry, whose lock the caller holds.
func (l *idleList) rest(s *slot, m protocol.Memory, now clock.Instant, lifetime time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := s.entry.Load()
	s.memory, s.node, s.denied = m, e.node.Load().number, e.denied
	s.entry.Store(nil)
	if s.next == nil && !s.gone { // pop has just taken it, and drop will find that it has no entry any more
		l.linkLocked(s, now, lifetime)
	}
}

// denied is what s remembers of entry.denied, if it is there and at rest.
func (l *idleList) denied(s *slot) bool {
	if s == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return s.denied
}

// admits reports whether s is there and at rest, and a draw of it was admitted within a T.
func (l *idleList) admits(s *slot, now clock.Instant) bool {
	if s == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return s.own != nil && !s.denied && s.memory.Recent(now)
}

// rouse brings s into use with the entry e, which is told what s remembers, and returns e, and the
// draw that e has taken over, if there is one. It returns another entry where somebody was faster,
// and nil where s has left the table.
func (l *idleList) rouse(s *slot, e *entry) (have *entry, took *draw) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.gone {
		return nil, nil
	}
	if have := s.entry.Load(); have != nil {
		return have, nil
	}
	l.unlinkLocked(s)
	if s.memory != (protocol.Memory{}) {
		e.client.Recall(s.memory)
		s.memory = protocol.Memory{}
	}
	s.meetLocked(e)
	e.node.Store(e.l.nodeOf(s.name, int(s.node)))
	e.denied = s.denied
	if took = s.draw; took != nil {
		e.takeOver(took)
	}
	s.draw, s.own, s.given = nil, nil, false
	s.entry.Store(e)
	return e, took
}

// pop takes off the key that is idle for longest, if its time has come or with force. A key at rest
// is gone then; one with an entry, e, may be in use by now. next is when to come again at the
// latest.
func (l *idleList) pop(now clock.Instant, force bool) (s *slot, e *entry, next clock.Instant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next = protocol.Never
	for used := l.used; used != 0; used &= used - 1 {
		first := l.classes[bits.TrailingZeros64(used)].next
		switch {
		case force && (s == nil || first.idleSince < s.idleSince), !force && s == nil && now >= first.leaveAt:
			s = first
		default:
			next = min(next, first.leaveAt)
		}
	}
	if !force {
		l.sweepAt = next
	}
	if s == nil {
		return nil, nil, next
	}
	l.unlinkLocked(s)
	e = s.entry.Load()
	s.gone = e == nil
	return s, e, now
}

// makeRoom has the key that is idle for longest leave the table; false where every key is in use.
func (l *Limiter) makeRoom() bool {
	for {
		if s, e, _ := l.keys.idle.pop(0, true); s == nil || l.drop(s, e) {
			return s != nil
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
		e.mu.Lock()
		defer e.mu.Unlock()
		if !e.client.Forgettable() {
			return false
		}
		e.endLocked()
		l.keys.idle.leave(s)
		s.entry.Store(nil) // a Key may keep the name, which is part of the slot, but not the entry
		e.Wake(false)      // the scheduler forgets it too
	}
	l.keys.remove(s)
	return true
}

// restLocked ends an entry that is not used, and has its slot remember what the next one must know;
// false where something would be lost.
func (e *entry) restLocked(now clock.Instant) bool {
	lifetime := e.client.Lifetime()
	m, ok := e.client.Rest()
	if ok {
		e.endLocked()
		e.l.keys.idle.rest(e.slot, m, now, lifetime)
	}
	return ok
}

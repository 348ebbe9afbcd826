package hybrid

import (
	"hash/maphash"
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// segments is the number of segments of the table. Each segment grows independently.
const segments = 256

// nameInline is the length of the longest name that a slot stores inline.
const nameInline = 24

// slot is one key of the table. When the key goes to rest, the slot stays, and the entry, seven times as
// large, is freed. A look-up reads only the first 64 bytes of a slot.
type slot struct {
	entry atomic.Pointer[entry] // nil unless the key is active
	chain atomic.Pointer[slot]  // next slot in the same chain of the hash table
	hash  uint64
	name  string           // the key's name after lease.ShortKey
	text  [nameInline]byte // bytes of a short name

	// The idle list's lock guards key, idleSince, leaveAt, prev and next.
	key        protocol.Key
	idleSince  clock.Instant
	leaveAt    clock.Instant // when an unused slot leaves the table
	prev, next *slot         // neighbours in a list of idleList; nil outside of any list
}

// class returns the index in idleList.classes of the list for s.
func (s *slot) class() int { return bits.Len64(uint64(max(s.leaveAt.Sub(s.idleSince), 1))) - 1 }

// table has the keys of a member, in use and at rest. A look-up takes no lock and reads three cache lines: of
// the hash table, the slot and the entry. A general map reads more cache lines, or blocks an insert while the
// map grows.
type table struct {
	seed     maphash.Seed
	size     atomic.Int64
	segments [segments]segment
	idle     idleList
}

// segment is a hash table of chained slots. Changes take the segment's lock. A look-up without the lock may
// miss a slot while the segment grows or a slot leaves.
type segment struct {
	buckets atomic.Pointer[[]atomic.Pointer[slot]]
	mu      sync.Mutex
	size    int
}

func (t *table) init() {
	t.seed = maphash.MakeSeed()
	t.idle.init()
	none := make([]atomic.Pointer[slot], 1) // the first insert replaces this empty table
	for i := range t.segments {
		t.segments[i].buckets.Store(&none)
	}
}

// spot is the place of a key in the table.
type spot struct {
	slot *slot // nil if the key has no slot
	hash uint64
	name string // the key's name after lease.ShortKey
}

func (p spot) entry() *entry {
	if p.slot == nil {
		return nil
	}
	return p.slot.entry.Load()
}

// locate returns the spot of a key without a lock, and may miss the key's slot while the segment changes.
func (t *table) locate(key string) spot {
	name := lease.ShortKey(key)
	hash := maphash.String(t.seed, name)
	return spot{t.segment(hash).load(hash, name), hash, name}
}

func (t *table) segment(hash uint64) *segment { return &t.segments[hash>>56] }

func (g *segment) load(hash uint64, name string) *slot {
	s := g.bucket(hash).Load()
	for s != nil && (s.hash != hash || s.name != name) {
		s = s.chain.Load()
	}
	return s
}

func (g *segment) bucket(hash uint64) *atomic.Pointer[slot] {
	buckets := *g.buckets.Load()
	return &buckets[hash&uint64(len(buckets)-1)]
}

// find returns the slot of key, or nil. find never misses a slot.
func (t *table) find(key string) *slot {
	p := t.locate(key)
	if p.slot != nil {
		return p.slot
	}
	g := t.segment(p.hash)
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.load(p.hash, p.name)
}

func (t *table) active(key string) *entry {
	if s := t.find(key); s != nil {
		return s.entry.Load()
	}
	return nil
}

// add returns the slot of the key at p. If the key has no slot, add adds one with this node and a copy of the
// name.
func (t *table) add(p spot, node int32) *slot {
	s := &slot{hash: p.hash}
	s.key.Node = node
	if len(p.name) <= nameInline {
		copy(s.text[:], p.name)
		s.name = unsafe.String(&s.text[0], len(p.name)) // text never changes
	} else {
		s.name = strings.Clone(p.name)
	}
	g := t.segment(p.hash)
	g.mu.Lock()
	defer g.mu.Unlock()
	if have := g.load(p.hash, p.name); have != nil {
		return have
	}
	g.makeRoom()
	g.link(s)
	g.size++
	t.size.Add(1)
	return s
}

func (g *segment) link(s *slot) {
	b := g.bucket(s.hash)
	s.chain.Store(b.Load())
	b.Store(s)
}

// makeRoom doubles the segment's hash table if three quarters of it are in use.
func (g *segment) makeRoom() {
	old := *g.buckets.Load()
	if g.size < len(old)*3/4 {
		return
	}
	buckets := make([]atomic.Pointer[slot], max(8, 2*len(old)))
	g.buckets.Store(&buckets)
	for i := range old {
		for s := old[i].Load(); s != nil; {
			next := s.chain.Load()
			g.link(s)
			s = next
		}
	}
}

// remove takes s, whose key is gone, out of the table, unless s has left already.
func (t *table) remove(s *slot) {
	g := t.segment(s.hash)
	g.mu.Lock()
	defer g.mu.Unlock()
	for p := g.bucket(s.hash); p.Load() != nil; p = &p.Load().chain {
		if p.Load() == s {
			p.Store(s.chain.Load()) // s keeps its chain for look-ups that are reading s
			g.size--
			t.size.Add(-1)
			return
		}
	}
}

// atRest calls f with the idle list's lock for every key at rest.
func (t *table) atRest(f func(s *slot)) {
	for i := range t.segments {
		g := &t.segments[i]
		g.mu.Lock()
		t.idle.mu.Lock()
		g.eachLocked(func(s *slot) {
			if s.key.AtRest() {
				f(s)
			}
		})
		t.idle.mu.Unlock()
		g.mu.Unlock()
	}
}

func (g *segment) eachLocked(f func(s *slot)) {
	buckets := *g.buckets.Load()
	for b := range buckets {
		for s := buckets[b].Load(); s != nil; s = s.chain.Load() {
			f(s)
		}
	}
}

// each calls f without a lock for every entry of the table.
func (t *table) each(f func(e *entry)) {
	var all []*entry
	for i := range t.segments {
		g := &t.segments[i]
		g.mu.Lock()
		g.eachLocked(func(s *slot) {
			if e := s.entry.Load(); e != nil {
				all = append(all, e)
			}
		})
		g.mu.Unlock()
		for _, e := range all {
			f(e)
		}
		all = all[:0]
	}
}

// idleList has the keys without tokens and requests. An idle key leaves the table when its lifetime ends: its
// bucket is full again and every lease has ended. There is one list for each power of two of a lifetime, with
// the longest idle key first, so an idle key stays in the table for at most twice its lifetime.
type idleList struct {
	mu      sync.Mutex
	classes [64]slot // list heads: next is the first key, prev the last
	used    uint64   // one bit for each class with keys
	drawing slot     // list head of the keys with a draw under way
	sweepAt clock.Instant
}

func (l *idleList) init() {
	for i := range l.classes {
		end := &l.classes[i]
		end.prev, end.next = end, end
	}
	l.drawing.prev, l.drawing.next = &l.drawing, &l.drawing
}

func (l *idleList) push(s *slot, now clock.Instant, lifetime time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !s.key.Gone() {
		l.unlinkLocked(s)
		l.linkLocked(s, now, lifetime)
	}
}

// linkLocked appends s to its list, and reports whether s leaves before the next sweep.
func (l *idleList) linkLocked(s *slot, now clock.Instant, lifetime time.Duration) (early bool) {
	s.idleSince, s.leaveAt = now, now.Add(lifetime)
	class := s.class()
	s.linkBefore(&l.classes[class])
	l.used |= 1 << class
	early = s.leaveAt < l.sweepAt
	l.sweepAt = min(l.sweepAt, s.leaveAt)
	return early
}

func (s *slot) linkBefore(end *slot) {
	s.prev, s.next = end.prev, end
	s.prev.next, end.prev = s, s
}

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
	if class := s.class(); l.classes[class].next == &l.classes[class] {
		l.used &^= 1 << class
	}
}

// leave records that s, whose entry has ended, leaves the table.
func (l *idleList) leave(s *slot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unlinkLocked(s)
	s.key.Leave()
	s.entry.Store(nil)
}

// withKey calls f with the state of s, or with the zero state if s is nil.
func (l *idleList) withKey(s *slot, f func(k *protocol.Key)) {
	if s == nil {
		f(&protocol.Key{})
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f(&s.key)
}

// pop removes a key from its list: with force the longest idle key, otherwise a key whose leaveAt has passed.
// A key with an entry e may be in use again; a key without an entry is gone. next is the time for the next
// pop.
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
	if e = s.entry.Load(); e == nil {
		s.key.Leave()
	}
	return s, e, now
}

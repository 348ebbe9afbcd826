package hybrid

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// segments is how many parts the table has, which grow one at a time.
const segments = 256

// nameInline is the longest name that is stored in its slot.
const nameInline = 24

// slot is one key of the table. When a key goes to rest its slot stays and its entry, which is
// seven times as large, goes. A look-up reads only the first 64 bytes.
type slot struct {
	entry atomic.Pointer[entry] // nil at rest
	chain atomic.Pointer[slot]  // the next of the same bucket of the table
	hash  uint64
	name  string           // lease.ShortKey of the key
	text  [nameInline]byte // of a short name

	// The rest is guarded by the idle list's lock.
	memory     protocol.Memory // of a key at rest
	idleSince  clock.Instant
	leaveAt    clock.Instant     // at the latest, unless it is used again
	prev, next *slot             // nil where it is on no list
	draw       *draw             // of a key at rest: under way
	unheard    *protocol.Unheard // of a key at rest: has decided in an outage, for the limits of own; else nil
	own        *lease.Config     // of a key at rest: what this process proposes; nil where it is not known
	node       int32             // of the store
	class      uint8
	gone       bool // has left the table
	denied     bool // of a key at rest: see entry
	given      bool // own is that of a KeyWith
}

// table is a Limiter's keys, those in use and those at rest. A look-up takes no lock and touches
// three cache lines that are not near: the hash table's, the slot's and the entry's. A general map
// touches more, or has an insert wait while it doubles as a whole.
type table struct {
	seed     maphash.Seed
	size     atomic.Int64
	segments [segments]segment
	idle     idleList
}

// segment is a hash table of chained slots. Changing it takes the lock; a look-up does not. While
// the segment grows or a slot leaves, a look-up may miss what is there: then find looks again with
// the lock, and add finds out.
type segment struct {
	buckets atomic.Pointer[[]atomic.Pointer[slot]]
	mu      sync.Mutex
	size    int
}

func (t *table) init() {
	t.seed = maphash.MakeSeed()
	t.idle.init()
	none := make([]atomic.Pointer[slot], 1) // which the first insert replaces
	for i := range t.segments {
		t.segments[i].buckets.Store(&none)
	}
}

// locate is where a key has its slot, and under which name.
func (t *table) locate(key string) (g *segment, hash uint64, name string) {
	name = lease.ShortKey(key)
	hash = maphash.String(t.seed, name)
	return t.segment(hash), hash, name
}

func (t *table) segment(hash uint64) *segment { return &t.segments[hash>>56] }

// load is the slot of a key. It is nil where the key has none, and perhaps while its segment
// changes.
func (t *table) load(key string) *slot {
	name := lease.ShortKey(key)
	hash := maphash.String(t.seed, name)
	return t.segment(hash).load(hash, name)
}

func (g *segment) load(hash uint64, name string) *slot {
	s := g.bucket(hash).Load()
	for s != nil && (s.hash != hash || s.name != name) {
		s = s.chain.Load()
	}
	return s
}

// bucket is the head of the chain of slots with this hash.
func (g *segment) bucket(hash uint64) *atomic.Pointer[slot] {
	buckets := *g.buckets.Load()
	return &buckets[hash&uint64(len(buckets)-1)]
}

// find is load that finds a slot also while its segment changes.
func (t *table) find(key string) *slot {
	if s := t.load(key); s != nil {
		return s
	}
	g, hash, name := t.locate(key)
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.load(hash, name)
}

// glance is the hot path's look-up of an entry: nil for a key that is not in use, and perhaps for
// one whose segment changes.
func (t *table) glance(key string) *entry {
	if s := t.load(key); s != nil {
		return s.entry.Load()
	}
	return nil
}

// inUse is the entry of a key; nil where it has no slot or is at rest.
func (t *table) inUse(key string) *entry {
	if s := t.find(key); s != nil {
		return s.entry.Load()
	}
	return nil
}

// add is the slot of a key, which is made now if there is none, with a copy of the name.
func (t *table) add(key string) *slot {
	g, hash, name := t.locate(key)
	s := &slot{hash: hash, node: nodeUnknown}
	if len(name) <= nameInline {
		copy(s.text[:], name)
		s.name = unsafe.String(&s.text[0], len(name)) // text is never changed again
	} else {
		s.name = strings.Clone(name)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if have := g.load(hash, name); have != nil {
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

// makeRoom doubles the segment's hash table when three quarters of it are in use.
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

// remove takes s, which is gone, out of the table, unless somebody has done so already.
func (t *table) remove(s *slot) {
	g := t.segment(s.hash)
	g.mu.Lock()
	defer g.mu.Unlock()
	for p := g.bucket(s.hash); p.Load() != nil; p = &p.Load().chain {
		if p.Load() == s {
			p.Store(s.chain.Load()) // s keeps its chain, for look-ups that are at s now
			g.size--
			t.size.Add(-1)
			return
		}
	}
}

// atRest calls f for every key at rest that is not gone, with the idle list's lock, which is free
// now and then.
func (t *table) atRest(f func(s *slot)) {
	for i := range t.segments {
		t.segments[i].atRest(&t.idle, f)
	}
}

func (sg *segment) atRest(idle *idleList, f func(s *slot)) {
	sg.mu.Lock()
	defer sg.mu.Unlock()
	idle.mu.Lock()
	defer idle.mu.Unlock()
	buckets := *sg.buckets.Load()
	for b := range buckets {
		for s := buckets[b].Load(); s != nil; s = s.chain.Load() {
			if s.entry.Load() == nil && !s.gone {
				f(s)
			}
		}
	}
}

// each calls f for every key in use, without a lock of the table.
func (t *table) each(f func(e *entry)) {
	var all []*entry
	for i := range t.segments {
		g := &t.segments[i]
		g.mu.Lock()
		buckets := *g.buckets.Load()
		for b := range buckets {
			for s := buckets[b].Load(); s != nil; s = s.chain.Load() {
				if e := s.entry.Load(); e != nil {
					all = append(all, e)
				}
			}
		}
		g.mu.Unlock()
		for _, e := range all {
			f(e)
		}
		all = all[:0]
	}
}

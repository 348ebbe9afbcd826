package hybrid

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
)

// shards is how many parts the table has. One of them doubles at a time, and who inserts then waits for that.
const shards = 256

// nameInline is the longest name that is stored with its slot; a longer one has an allocation of its own.
const nameInline = 24

// slot is one key of the table. It stays when the key is at rest, in 160 bytes; the entry, eight times as large, goes.
// Its first 64 bytes are all that a look-up reads.
type slot struct {
	// entry is what a key in use has; nil for one at rest.
	entry atomic.Pointer[entry]
	chain atomic.Pointer[slot] // the next of the same bucket of the table
	hash  uint64
	name  string           // lease.ShortKey of the key
	text  [nameInline]byte // of a short name

	// The rest is guarded by the idle list's lock.
	memory     lease.Memory // of a key at rest
	idleSince  clock.Instant
	leaveAt    clock.Instant // at the latest, unless it is used again
	prev, next *slot
	node       int32 // of the store
	class      uint8
	listed     bool
	gone       bool // has left the table
}

// table is a Limiter's keys: those in use and those at rest. A look-up takes no lock and touches three lines that are not
// in a near cache if there are many keys: the bucket's, the slot's, and the entry's.
//
// The table was an xsync.Map, and then 64 of them, because one insert in a map that doubles waits until every entry has
// moved, 156 ms at a million keys. A look-up among a million took 176 ns there: it hashes for the shard and once more for
// the map, and goes through a node with the key's header and to the key's text before it is at the slot.
type table struct {
	seed   maphash.Seed
	size   atomic.Int64
	shards [shards]shard
	idle   idleList
}

// shard is a hash table of chained slots. Who changes it has the lock; who looks up does not, and may, while it doubles
// or a slot leaves, not find what is there: then it asks once more with the lock (find), or finds out when it adds (add).
type shard struct {
	buckets atomic.Pointer[[]atomic.Pointer[slot]]
	mu      sync.Mutex
	size    int
}

func (t *table) init() { t.seed = maphash.MakeSeed() }

func (t *table) shard(hash uint64) *shard { return &t.shards[hash>>56] }

// load is the slot of a key; nil where it has none, or where the table is changing.
func (t *table) load(name string) *slot {
	name = lease.ShortKey(name)
	hash := maphash.String(t.seed, name)
	return t.shard(hash).load(hash, name)
}

func (sh *shard) load(hash uint64, name string) *slot {
	p := sh.buckets.Load()
	if p == nil {
		return nil
	}
	buckets := *p
	s := buckets[hash&uint64(len(buckets)-1)].Load()
	for s != nil && (s.hash != hash || s.name != name) {
		s = s.chain.Load()
	}
	return s
}

// find is load that also finds what moves.
func (t *table) find(name string) *slot {
	name = lease.ShortKey(name)
	hash := maphash.String(t.seed, name)
	sh := t.shard(hash)
	if s := sh.load(hash, name); s != nil {
		return s
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.load(hash, name)
}

// glance is the entry of a key, nil where it has none, is at rest, or is not found in passing: the hot path's look-up.
func (t *table) glance(name string) *entry {
	if s := t.load(name); s != nil {
		return s.entry.Load()
	}
	return nil
}

// inUse is the entry of a key, nil where it has none or is at rest.
func (t *table) inUse(name string) *entry {
	if s := t.find(name); s != nil {
		return s.entry.Load()
	}
	return nil
}

// newSlot makes a slot, which add puts into the table. The name is a copy: the caller's may be part of something large.
func (t *table) newSlot(name string) *slot {
	name = lease.ShortKey(name)
	s := &slot{hash: maphash.String(t.seed, name)}
	if len(name) <= nameInline {
		copy(s.text[:], name)
		s.name = unsafe.String(&s.text[0], len(name)) // text is never changed again
	} else {
		s.name = string([]byte(name))
	}
	return s
}

// add puts s into the table and returns it, or returns the one that its name has already.
func (t *table) add(s *slot) (have *slot, loaded bool) {
	sh := t.shard(s.hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if have = sh.load(s.hash, s.name); have != nil {
		return have, true
	}
	sh.makeRoom()
	sh.link(s)
	sh.size++
	t.size.Add(1)
	return s, false
}

func (sh *shard) link(s *slot) {
	buckets := *sh.buckets.Load()
	b := &buckets[s.hash&uint64(len(buckets)-1)]
	s.chain.Store(b.Load())
	b.Store(s)
}

// makeRoom doubles the shard where it has more slots than three quarters of its buckets. The slots stay what they are.
func (sh *shard) makeRoom() {
	var old []atomic.Pointer[slot]
	if p := sh.buckets.Load(); p != nil {
		old = *p
	}
	if sh.size < len(old)*3/4 {
		return
	}
	buckets := make([]atomic.Pointer[slot], max(8, 2*len(old)))
	sh.buckets.Store(&buckets)
	for i := range old {
		for s := old[i].Load(); s != nil; {
			next := s.chain.Load()
			sh.link(s)
			s = next
		}
	}
}

// remove takes s, which is gone, out of the table. Whoever meets a slot that is gone may do so too.
func (t *table) remove(s *slot) {
	sh := t.shard(s.hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	buckets := *sh.buckets.Load()
	for p := &buckets[s.hash&uint64(len(buckets)-1)]; p.Load() != nil; p = &p.Load().chain {
		if p.Load() == s {
			p.Store(s.chain.Load()) // s keeps its own chain, for those that are looking at it
			sh.size--
			t.size.Add(-1)
			return
		}
	}
}

// each calls f for every key in use, without a lock of the table.
func (t *table) each(f func(e *entry)) {
	var all []*entry
	for i := range t.shards {
		all = t.shards[i].inUse(all[:0])
		for _, e := range all {
			f(e)
		}
	}
}

func (sh *shard) inUse(all []*entry) []*entry {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if p := sh.buckets.Load(); p != nil {
		for i := range *p {
			for s := (*p)[i].Load(); s != nil; s = s.chain.Load() {
				if e := s.entry.Load(); e != nil {
					all = append(all, e)
				}
			}
		}
	}
	return all
}

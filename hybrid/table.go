package hybrid

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
)

// shards is how many parts the table has, which grow one at a time.
const shards = 256

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
	memory     lease.Memory // of a key at rest
	idleSince  clock.Instant
	leaveAt    clock.Instant // at the latest, unless it is used again
	prev, next *slot         // nil where it is on no list
	node       int32         // of the store
	class      uint8
	gone       bool // has left the table
	denied     bool // of a key at rest: see entry
}

// table is a Limiter's keys, those in use and those at rest. A look-up takes no lock and touches
// three cache lines that are not near: the hash table's, the slot's and the entry's. A general map
// touches more, or has an insert wait while it doubles as a whole.
type table struct {
	seed   maphash.Seed
	size   atomic.Int64
	shards [shards]shard
	idle   idleList
}

// shard is a hash table of chained slots. Changing it takes the lock; a look-up does not. While the
// shard grows or a slot leaves, a look-up may miss what is there: then find looks again with the
// lock, and add finds out.
type shard struct {
	buckets atomic.Pointer[[]atomic.Pointer[slot]]
	mu      sync.Mutex
	size    int
}

func (t *table) init() {
	t.seed = maphash.MakeSeed()
	t.idle.init()
	none := make([]atomic.Pointer[slot], 1) // which the first insert replaces
	for i := range t.shards {
		t.shards[i].buckets.Store(&none)
	}
}

// locate is where a key has its slot, and under which name.
func (t *table) locate(key string) (sh *shard, hash uint64, name string) {
	name = lease.ShortKey(key)
	hash = maphash.String(t.seed, name)
	return t.shard(hash), hash, name
}

func (t *table) shard(hash uint64) *shard { return &t.shards[hash>>56] }

// load is the slot of a key. It is nil where the key has none, and perhaps while its shard changes.
func (t *table) load(key string) *slot {
	name := lease.ShortKey(key)
	hash := maphash.String(t.seed, name)
	return t.shard(hash).load(hash, name)
}

func (sh *shard) load(hash uint64, name string) *slot {
	s := sh.bucket(hash).Load()
	for s != nil && (s.hash != hash || s.name != name) {
		s = s.chain.Load()
	}
	return s
}

// bucket is the head of the chain of slots with this hash.
func (sh *shard) bucket(hash uint64) *atomic.Pointer[slot] {
	buckets := *sh.buckets.Load()
	return &buckets[hash&uint64(len(buckets)-1)]
}

// find is load that finds a slot also while its shard changes.
func (t *table) find(key string) *slot {
	if s := t.load(key); s != nil {
		return s
	}
	sh, hash, name := t.locate(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.load(hash, name)
}

// glance is the hot path's look-up of an entry: nil for a key that is not in use, and perhaps for
// one whose shard changes.
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
	sh, hash, name := t.locate(key)
	s := &slot{hash: hash, node: nodeUnknown}
	if len(name) <= nameInline {
		copy(s.text[:], name)
		s.name = unsafe.String(&s.text[0], len(name)) // text is never changed again
	} else {
		s.name = strings.Clone(name)
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if have := sh.load(hash, name); have != nil {
		return have
	}
	sh.makeRoom()
	sh.link(s)
	sh.size++
	t.size.Add(1)
	return s
}

func (sh *shard) link(s *slot) {
	b := sh.bucket(s.hash)
	s.chain.Store(b.Load())
	b.Store(s)
}

// makeRoom doubles the shard's hash table when three quarters of it are in use.
func (sh *shard) makeRoom() {
	old := *sh.buckets.Load()
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

// remove takes s, which is gone, out of the table, unless somebody has done so already.
func (t *table) remove(s *slot) {
	sh := t.shard(s.hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for p := sh.bucket(s.hash); p.Load() != nil; p = &p.Load().chain {
		if p.Load() == s {
			p.Store(s.chain.Load()) // s keeps its chain, for look-ups that are at s now
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
		sh := &t.shards[i]
		sh.mu.Lock()
		buckets := *sh.buckets.Load()
		for b := range buckets {
			for s := buckets[b].Load(); s != nil; s = s.chain.Load() {
				if e := s.entry.Load(); e != nil {
					all = append(all, e)
				}
			}
		}
		sh.mu.Unlock()
		for _, e := range all {
			f(e)
		}
		all = all[:0]
	}
}

package lease

import (
	"sync"

	"github.com/yuzhi-go/yuzhi/clock"
)

// memoryShards spread the lock and bound the work of one sweep.
const memoryShards = 64

// MemoryStore is the reference Bucket as a Store, for one process and without Redis: for tests, for
// development, and for services that run as one process. Its time is the clock's. An expired bucket
// is dropped as Redis would drop it. It may be shared between goroutines.
type MemoryStore struct {
	clock  clock.Clock
	shards [memoryShards]memoryShard
}

type memoryShard struct {
	mu      sync.Mutex
	buckets map[string]*memoryBucket
	sweepAt int // sweep when this many buckets are held
}

type memoryBucket struct {
	Bucket
	expires int64 // microseconds
}

// NewMemoryStore returns an empty store whose server time is c's; nil means clock.System().
func NewMemoryStore(c clock.Clock) *MemoryStore {
	if c == nil {
		c = clock.System()
	}
	m := &MemoryStore{clock: c}
	for i := range m.shards {
		m.shards[i].buckets = make(map[string]*memoryBucket)
		m.shards[i].sweepAt = 1024
	}
	return m
}

// exchange executes one call.
func (m *MemoryStore) exchange(call *Call) {
	m.with(call.Key, func(b *Bucket, now int64) (written bool) {
		call.Err = b.Call(now, &call.Request, &call.Grant)
		return call.Err == nil
	})
}

func (m *MemoryStore) configure(key string, op Op, c Config) (st State, err error) {
	m.with(key, func(b *Bucket, now int64) (written bool) {
		st, err = b.Configure(now, op, c)
		return st.Changed
	})
	return st, err
}

// with has do use the live bucket of key, or one that does not exist yet, at the server time now:
// microseconds from an origin of the clock's own, as only differences count.
func (m *MemoryStore) with(key string, do func(b *Bucket, now int64) (written bool)) {
	key = storedKey(key)
	sh := m.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := max(int64(m.clock.Now())/1000, 1)
	b := sh.buckets[key]
	if b == nil || now >= b.expires {
		b = new(memoryBucket)
	}
	if do(&b.Bucket, now) {
		b.expires = now + b.state.keep - b.state.now
	}
	if !b.state.exists {
		delete(sh.buckets, key)
		return
	}
	sh.buckets[key] = b
	sh.sweep(now)
}

func (m *MemoryStore) shard(key string) *memoryShard {
	h := uint64(14695981039346656037) // FNV-1a: the same on every run, so that simulations repeat
	for i := 0; i < len(key); i++ {
		h = (h ^ uint64(key[i])) * 1099511628211
	}
	return &m.shards[h%memoryShards]
}

// sweep drops expired buckets when they may have become half of all.
func (sh *memoryShard) sweep(now int64) {
	if len(sh.buckets) < sh.sweepAt {
		return
	}
	for key, b := range sh.buckets {
		if now >= b.expires {
			delete(sh.buckets, key)
		}
	}
	sh.sweepAt = 2*len(sh.buckets) + 1024
}

package lease

import (
	"sync"

	"github.com/yuzhi-go/yuzhi/clock"
)

// memoryShards spread the lock and bound the work of one sweep.
const memoryShards = 64

// MemoryStore is the reference Bucket as a Store, for one process and without Redis: for tests, for
// development, and for services that run as one process. Its time is the clock's. An expired bucket is
// dropped as Redis would drop it. It may be shared between goroutines.
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

// now is the server time in microseconds, from an origin of the clock's own: only differences count.
func (m *MemoryStore) now() int64 { return max(int64(m.clock.Now())/1000, 1) }

// exchange executes one call.
func (m *MemoryStore) exchange(call *Call) {
	key := StoredKey(call.Key)
	sh := m.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := m.now()
	b := sh.bucket(key, now)
	if call.Err = b.Call(now, &call.Request, &call.Grant); call.Err == nil {
		b.expires = now + micros(call.Grant.Expiry)
	}
	sh.keep(key, b, now)
}

func (m *MemoryStore) configure(key string, op Op, c Config) (State, error) {
	key = StoredKey(key)
	sh := m.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := m.now()
	b := sh.bucket(key, now)
	st, err := b.Configure(now, op, c)
	if st.Changed {
		b.expires = now + b.state.keep - b.state.now
	}
	sh.keep(key, b, now)
	return st, err
}

func (m *MemoryStore) shard(key string) *memoryShard {
	h := uint64(14695981039346656037) // FNV-1a: the same on every run, so that simulations repeat
	for i := 0; i < len(key); i++ {
		h = (h ^ uint64(key[i])) * 1099511628211
	}
	return &m.shards[h%memoryShards]
}

// bucket returns the live bucket of key, or one that does not exist yet.
func (sh *memoryShard) bucket(key string, now int64) *memoryBucket {
	if b := sh.buckets[key]; b != nil && now < b.expires {
		return b
	}
	return &memoryBucket{}
}

func (sh *memoryShard) keep(key string, b *memoryBucket, now int64) {
	if !b.state.exists {
		delete(sh.buckets, key)
		return
	}
	sh.buckets[key] = b
	if len(sh.buckets) < sh.sweepAt {
		return
	}
	for k, b := range sh.buckets {
		if now >= b.expires {
			delete(sh.buckets, k)
		}
	}
	sh.sweepAt = 2*len(sh.buckets) + 1024
}

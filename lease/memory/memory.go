package memory

import (
	"context"
	"hash/maphash"
	"maps"
	"sync"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// parts is the number of locks of a Store; one sweep visits the buckets of one lock.
const parts = 64

// Store is a lease.Store of buckets in memory, with the server time of a clock. For a Calendar the clock's
// Instants must count from 1970 UTC, as those of clock.System do. A Store drops expired buckets, as Redis
// does. Goroutines may share a Store.
type Store struct {
	clock clock.Clock
	seed  maphash.Seed
	parts [parts]part
}

var _ lease.Store = (*Store)(nil)

type part struct {
	mu      sync.Mutex
	buckets map[string]*protocol.Bucket
	sweepAt int // number of buckets at which a sweep runs
}

// New returns an empty Store with the server time of c, or of clock.System() if c is nil. Create the Store of
// a synctest bubble inside the bubble.
func New(c clock.Clock) *Store {
	if c == nil {
		c = clock.System()
	}
	m := &Store{clock: c, seed: maphash.MakeSeed()}
	for i := range m.parts {
		m.parts[i] = part{buckets: make(map[string]*protocol.Bucket), sweepAt: 1024}
	}
	return m
}

// Exchange implements lease.Store. Exchange is never unavailable, and answers all calls as one group.
func (m *Store) Exchange(_ context.Context, calls []*lease.Call, done func([]*lease.Call)) {
	for _, c := range calls {
		m.with(c.Key, func(b *protocol.Bucket, now int64) { c.Err = b.Call(now, &c.Request, &c.Grant) })
	}
	done(calls)
}

// Configure implements lease.Store.
func (m *Store) Configure(_ context.Context, key string, op lease.Op, c lease.Config) (st lease.State,
	err error) {
	m.with(key, func(b *protocol.Bucket, now int64) { st, err = b.Configure(now, op, c) })
	return st, err
}

// with calls do with the live bucket of key, or with a zero Bucket. now is the server time in microseconds.
func (m *Store) with(key string, do func(b *protocol.Bucket, now int64)) {
	if len(key) > lease.KeyMax {
		key = lease.ShortKey(key)
	}
	p := &m.parts[maphash.String(m.seed, key)%parts]
	p.mu.Lock()
	defer p.mu.Unlock()
	now := max(int64(m.clock.Now())/1000, 1)
	b := p.buckets[key]
	if b == nil || b.Expired(now) {
		b = new(protocol.Bucket)
	}
	do(b, now)
	if !b.Exists() {
		delete(p.buckets, key)
		return
	}
	p.buckets[key] = b
	if len(p.buckets) < p.sweepAt {
		return
	}
	// The number of buckets has doubled since the last sweep, so half of them may have expired.
	maps.DeleteFunc(p.buckets, func(_ string, b *protocol.Bucket) bool { return b.Expired(now) })
	p.sweepAt = 2*len(p.buckets) + 1024
}

package faults

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// clientTimeout is what go-redis waits for a dial, an answer or a place in its pool. It is far longer than any deadline
// of the library, so that whoever waits for the client instead of the library's own deadline is seen at once.
const clientTimeout = time.Minute

// The client's own log says that a server is away, which is what these tests are about.
func init() { redis.SetLogger(silentLog{}) }

type silentLog struct{}

func (silentLog) Printf(context.Context, string, ...any) {}

// Options say what a Fleet is made of. Addr, Size and Config are required.
type Options struct {
	Size   int    // limiters
	Addr   string // where their clients connect: a server's address, or a redistest.Proxy's
	Direct string // where Balance asks; empty means Addr
	Config hybrid.Config
	// Client, if set, changes the options of every client before it is made.
	Client func(*redis.Options)
	// Store, if set, puts a store of the test's own over every limiter's.
	Store func(lease.Store) lease.Store
}

// Fleet is limiters that share buckets, as processes do, and a record of what they decided.
type Fleet struct {
	Limiters []*hybrid.Limiter

	t      testing.TB
	start  time.Time          // zero of all stamps
	direct *redisbucket.Store // behind Balance; nil for a fleet without Redis

	mu      sync.Mutex
	records map[string][]*record // by key, one for each goroutine of load
}

// NewFleet starts a fleet on Redis, which is closed with the test after its conservation has been checked.
func NewFleet(t testing.TB, o Options) *Fleet {
	t.Helper()
	stores := make([]lease.Store, o.Size)
	for i := range stores {
		stores[i] = onRedis(t, o.Addr, o.Client)
		if o.Store != nil {
			stores[i] = o.Store(stores[i])
		}
	}
	f := NewFleetOn(t, o.Config, stores...)
	if o.Direct == "" {
		o.Direct = o.Addr
	}
	f.direct = onRedis(t, o.Direct, nil)
	return f
}

// NewFleetOn starts one limiter on each store, which may be one and the same.
func NewFleetOn(t testing.TB, cfg hybrid.Config, stores ...lease.Store) *Fleet {
	t.Helper()
	f := &Fleet{t: t, start: time.Now(), records: make(map[string][]*record)}
	for _, s := range stores {
		l, err := hybrid.New(s, cfg)
		if err != nil {
			t.Fatal(err)
		}
		f.Limiters = append(f.Limiters, l)
	}
	t.Cleanup(func() {
		f.CheckConserved()
		for _, l := range f.Limiters {
			l.Close()
		}
	})
	return f
}

func onRedis(t testing.TB, addr string, tune func(*redis.Options)) *redisbucket.Store {
	t.Helper()
	o := &redis.Options{
		Addr: addr, DialTimeout: clientTimeout, ReadTimeout: clientTimeout, WriteTimeout: clientTimeout, PoolTimeout: clientTimeout,
	}
	if tune != nil {
		tune(o)
	}
	rdb := redis.NewClient(o)
	t.Cleanup(func() { rdb.Close() })
	s, err := redisbucket.New(rdb, redisbucket.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Now is the time since the fleet was started; all stamps are on this clock.
func (f *Fleet) Now() time.Duration { return time.Since(f.start) }

// Stats is the sum over the fleet.
func (f *Fleet) Stats() hybrid.Stats {
	var sum hybrid.Stats
	for _, l := range f.Limiters {
		s := l.Stats()
		sum.Keys += s.Keys
		sum.Leased += s.Leased
		sum.Admitted += s.Admitted
		sum.Denied += s.Denied
		sum.Returned += s.Returned
		sum.Burnt += s.Burnt
		sum.Held += s.Held
		sum.Refunded += s.Refunded
		sum.Fallback += s.Fallback
		sum.Calls += s.Calls
		sum.RoundTrips += s.RoundTrips
		sum.Errors += s.Errors
		sum.Conflicts += s.Conflicts
		sum.Invalid += s.Invalid
	}
	return sum
}

// State is what the bucket of key in Redis says, asked past any proxy.
func (f *Fleet) State(key string) lease.State {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	st, err := f.direct.Inspect(ctx, key)
	if err != nil {
		f.t.Fatal(err)
	}
	return st
}

// Balance is oracle K: the tokens in the bucket of key, of its first limit, and those that it counts as leased.
func (f *Fleet) Balance(key string) int64 {
	f.t.Helper()
	st := f.State(key)
	return st.Levels[0] + st.Ledger
}

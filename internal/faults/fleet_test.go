package faults

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// clientTimeout is what go-redis waits for a dial, an answer or a place in its pool. It is far
// longer than any deadline of the library, so whoever waits for the client instead of that deadline
// is seen at once.
const clientTimeout = time.Minute

// The client's own log says that a server is away, which is what these tests are about.
func init() { redis.SetLogger(silentLog{}) }

type silentLog struct{}

func (silentLog) Printf(context.Context, string, ...any) {}

// Options say what a Fleet is made of. Addr, Size and Config are required.
type Options struct {
	Size   int    // limiters
	Addr   string // where their clients connect: a server's address, or a redistest.Proxy's
	Direct string // where State asks; empty means Addr
	Config hybrid.Config
	Client func(*redis.Options)          // if set, changes the options of every client before it is made
	Store  func(lease.Store) lease.Store // if set, puts a store of the test's own over every limiter's
}

// Fleet is limiters that share buckets, as processes do, and a record of what they decided. It
// reads the time from the time package alone, so a fleet on another store runs inside
// testing/synctest too.
type Fleet struct {
	Limiters []*hybrid.Limiter

	t           testing.TB
	callTimeout time.Duration
	start       time.Time          // zero of all stamps
	direct      *redisbucket.Store // behind State; nil for a fleet without Redis

	mu      sync.Mutex
	records map[string][]*record // by key, one for each goroutine of load
}

// NewFleet starts a fleet on Redis.
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

// NewFleetOn starts one limiter on each store, which may be one and the same. They are closed with
// the test, after their conservation has been checked.
func NewFleetOn(t testing.TB, cfg hybrid.Config, stores ...lease.Store) *Fleet {
	t.Helper()
	f := &Fleet{
		t: t, callTimeout: cmp.Or(cfg.CallTimeout, lease.DefaultCallTimeout),
		start: time.Now(), records: make(map[string][]*record),
	}
	for _, s := range stores {
		f.Add(cfg, s)
	}
	t.Cleanup(func() {
		f.CheckConserved()
		for _, l := range f.Limiters {
			l.Close()
		}
	})
	return f
}

// Add starts one limiter more.
func (f *Fleet) Add(cfg hybrid.Config, s lease.Store) *hybrid.Limiter {
	f.t.Helper()
	l, err := hybrid.New(s, cfg)
	must(f.t, err)
	f.Limiters = append(f.Limiters, l)
	return l
}

func onRedis(t testing.TB, addr string, tune func(*redis.Options)) *redisbucket.Store {
	t.Helper()
	o := &redis.Options{
		Addr: addr, DialTimeout: clientTimeout, ReadTimeout: clientTimeout, WriteTimeout: clientTimeout,
		PoolTimeout: clientTimeout,
	}
	if tune != nil {
		tune(o)
	}
	return storeOn(t, redis.NewClient(o))
}

// Now is the time since the fleet was started; all stamps are on this clock.
func (f *Fleet) Now() time.Duration { return time.Since(f.start) }

// Stats is the sum over the fleet.
func (f *Fleet) Stats() (sum hybrid.Stats) {
	total := reflect.ValueOf(&sum).Elem()
	for _, l := range f.Limiters {
		one := reflect.ValueOf(l.Stats())
		for i := range total.NumField() {
			total.Field(i).SetInt(total.Field(i).Int() + one.Field(i).Int())
		}
	}
	return sum
}

// State is what the bucket of key in Redis says, asked past any proxy.
func (f *Fleet) State(key string) lease.State {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), clientTimeout)
	defer cancel()
	st, err := f.direct.Inspect(ctx, key)
	must(f.t, err)
	return st
}

// Balance is oracle K: the tokens in the bucket of key, of its first limit, and those counted as
// leased.
func (f *Fleet) Balance(key string) int64 {
	f.t.Helper()
	st := f.State(key)
	return st.Levels[0] + st.Ledger
}

// Warm returns when every limiter has a lease on a key that is under load.
func (f *Fleet) Warm() {
	f.t.Helper()
	testkit.Eventually(f.t, "a lease for everybody", func() bool {
		return !slices.ContainsFunc(f.Limiters, func(l *hybrid.Limiter) bool { return l.Stats().Leased == 0 })
	})
}

// Shutdown shuts all limiters down.
func (f *Fleet) Shutdown() {
	f.t.Helper()
	for _, l := range f.Limiters {
		if err := l.Shutdown(f.t.Context()); err != nil {
			f.t.Error(err)
		}
	}
}

// close closes all limiters inside a synctest bubble, and lets calls under way come back: time
// stands still once the test is over.
func (f *Fleet) close() {
	for _, l := range f.Limiters {
		l.Close()
	}
	time.Sleep(time.Second)
}

// Load is goroutines that ask a fleet until they are told to stop.
type Load struct {
	once sync.Once
	stop chan struct{}
	wg   sync.WaitGroup
}

// Stop ends the load and returns when its last request was decided. It may be called more than
// once.
func (l *Load) Stop() {
	l.once.Do(func() { close(l.stop) })
	l.wg.Wait()
}

// Load calls Allow(key) on every limiter, each rate times a second on a goroutine of its own, until
// Stop or the end of the test. A machine too slow for that asks less often.
func (f *Fleet) Load(key string, rate int) *Load { return f.LoadOn(f.Limiters, key, rate) }

// LoadOn is Load on some limiters.
func (f *Fleet) LoadOn(limiters []*hybrid.Limiter, key string, rate int) *Load {
	load := &Load{stop: make(chan struct{})}
	for _, l := range limiters {
		f.drive(load, key, l, rate)
	}
	f.t.Cleanup(load.Stop)
	return load
}

// pace is the least time between two looks of a goroutine of load whether requests are due.
const pace = 2 * time.Millisecond

func (f *Fleet) drive(load *Load, key string, l *hybrid.Limiter, rate int) {
	r := f.record(key)
	load.wg.Go(func() {
		k := l.Key(key)
		began, asked := f.Now(), 0
		for {
			select {
			case <-load.stop:
				return
			default:
			}
			due := int(float64(rate) * (f.Now() - began).Seconds())
			// After a stall it makes up for half a second and no more.
			asked = max(asked, due-max(1, rate/2))
			for ; asked < due; asked++ {
				f.ask(r, k.Allow)
			}
			time.Sleep(max(pace, time.Second/time.Duration(rate))) // the pace of load
		}
	})
}

// Ask takes the one decision that allow makes on key and puts it on record.
func (f *Fleet) Ask(key string, allow func() bool) bool { return f.ask(f.record(key), allow) }

func (f *Fleet) ask(r *record, allow func() bool) bool {
	before := f.Now()
	ok := allow()
	r.add(decision{before: before, after: f.Now(), ok: ok})
	return ok
}

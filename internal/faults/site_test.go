package faults

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// clientTimeout is how long go-redis waits for a dial, an answer or a place in its pool. It is longer
// than any test may take: a request that waits for the client instead of a deadline of the library
// never returns, nor does the stop of its load.
const clientTimeout = time.Hour

// The client's own log reports that a server is away. These tests cause that on purpose.
func init() { redis.SetLogger(silentLog{}) }

type silentLog struct{}

func (silentLog) Printf(context.Context, string, ...any) {}

// each runs a test once for every case, all at the same time.
func each[C any](t *testing.T, cases map[string]C, run func(t *testing.T, c C)) {
	t.Parallel()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, c)
		})
	}
}

// oneOrAll is the case with this name in a short run, and all of them in a long one.
func oneOrAll[C any](t *testing.T, name string, cases map[string]C) map[string]C {
	t.Helper()
	if testkit.Long(t, name, fmt.Sprint(len(cases), " cases")) {
		return cases
	}
	return map[string]C{name: cases[name]}
}

// site is a server of the test's own, and the operator's connection to it.
type site struct {
	*redistest.Server
	t   *testing.T
	ctl *redis.Client // one connection, which is open already

	addr   string               // where limiters connect: the server, or a proxy before it
	client func(*redis.Options) // if set, changes the options of their clients
}

// start starts a server.
func start(t *testing.T, args ...string) *site {
	t.Helper()
	return siteOf(t, redistest.Start(t, args...))
}

func siteOf(t *testing.T, server *redistest.Server) *site {
	t.Helper()
	s := &site{Server: server, t: t, addr: server.Addr}
	s.ctl = redis.NewClient(&redis.Options{Addr: server.Addr, PoolSize: 1, ReadTimeout: clientTimeout,
		DialTimeout: clientTimeout})
	t.Cleanup(func() { s.ctl.Close() })
	testkit.NoErr(t, s.ctl.Ping(t.Context()).Err())
	return s
}

// behindProxy is a server whose limiters come through a proxy.
func behindProxy(t *testing.T) (*site, *redistest.Proxy) {
	t.Helper()
	s := start(t)
	proxy := redistest.NewProxy(t, s.Addr)
	s.addr = proxy.Addr
	return s, proxy
}

// fleet starts limiters on the server, each with a client of its own as if it were a process.
func (s *site) fleet(size int, cfg hybrid.Config) *fleet {
	s.t.Helper()
	stores := make([]lease.Store, size)
	for i := range stores {
		stores[i] = s.process()
	}
	f := newFleet(s.t, cfg, stores...)
	f.store = s.store()
	return f
}

// process is a Store with a client of its own, as a process has.
func (s *site) process() *redisbucket.Store {
	s.t.Helper()
	o := &redis.Options{
		Addr: s.addr, DialTimeout: clientTimeout, ReadTimeout: clientTimeout, WriteTimeout: clientTimeout,
		PoolTimeout: clientTimeout,
	}
	if s.client != nil {
		s.client(o)
	}
	return storeOn(s.t, redis.NewClient(o))
}

// saturated is a fleet that denies without the store and spends no lease that has ended. It is
// asked for six times its rate, and its burst is used up.
func (s *site) saturated(size int) (*fleet, *load) {
	s.t.Helper()
	f := s.fleet(size, with(busy, strict))
	load := f.load(key, 6*int(busy.Tokens)/size)
	f.warm()
	testkit.Eventually(s.t, "a burst used up", func() bool { return f.state(key).Levels[0] < busy.Burst/10 })
	return f, load
}

// store is the operator's.
func (s *site) store() *redisbucket.Store {
	s.t.Helper()
	return storeOn(s.t, redis.NewClient(&redis.Options{Addr: s.Addr, ReadTimeout: clientTimeout}))
}

// storeOn is a store over rdb, which is closed with the test.
func storeOn(t testing.TB, rdb redis.UniversalClient) *redisbucket.Store {
	t.Helper()
	t.Cleanup(func() { rdb.Close() })
	s, err := redisbucket.New(rdb, redisbucket.Config{})
	testkit.NoErr(t, err)
	return s
}

// call is the lease call that a store makes for one token, without a limiter around it.
func call(ctx context.Context, s lease.Store, name string) error {
	cfg := patient(hourly, denying)
	c := &lease.Call{Key: name, Request: lease.Request{Holder: "operator", Seq: 1, Want: 1, Weight: 1,
		Config: cfg.Policy.ConfigFor(cfg.Limits, 0, 0)}}
	s.Exchange(ctx, []*lease.Call{c}, func([]*lease.Call) {})
	return c.Err
}

// do is an operator's command, which must succeed.
func (s *site) do(args ...any) any {
	s.t.Helper()
	v, err := s.ctl.Do(context.Background(), args...).Result()
	testkit.Must(s.t, err == nil, "%v: %v", args, err)
	return v
}

func (s *site) set(parameter, value string) {
	s.t.Helper()
	s.do("CONFIG", "SET", parameter, value)
}

// awaitInfo waits until a section of INFO has all lines.
func (s *site) awaitInfo(section string, lines ...string) {
	s.t.Helper()
	testkit.Eventually(s.t, fmt.Sprint(lines), func() bool {
		info := s.ctl.Info(context.Background(), section).Val()
		return !slices.ContainsFunc(lines, func(line string) bool { return !strings.Contains(info, line+"\r\n") })
	})
}

// bucketOf is the Redis key of the bucket of a plain name.
func bucketOf(name string) string { return "yuzhi:{" + name + "}" }

// raw holds fields of a bucket that Inspect does not return. Times are in microseconds.
type raw struct {
	exists                 bool
	epoch, created, frozen int64
}

// raw reads the bucket of key.
func (s *site) raw() raw {
	s.t.Helper()
	store, err := redisbucket.New(s.ctl, redisbucket.Config{})
	testkit.NoErr(s.t, err)
	v, err := store.Look(context.Background(), key)
	testkit.NoErr(s.t, err)
	return raw{v.Exists, v.Epoch, v.Created.UnixMicro(), v.ServerTime + v.Frozen.Microseconds()}
}

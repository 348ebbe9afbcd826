// Package redisbucket keeps lease buckets in Redis: a lease.Store over go-redis, for a single
// server, Sentinel or a cluster, and for a ring where limits need not hold (Config.AllowRing).
//
// A bucket is one Redis string of binary numbers, and beside it, in the same slot, a smaller one
// for each holder. One Lua script executes a lease call, another inspects and configures;
// lease.Bucket is their reference, and they agree with it to the last bit. Redis 3.2 or later, or
// Valkey, is needed; docs/operations.md lists the versions that the tests have run on.
//
// # Which method do I want
//
// New, and its result goes to hybrid.New, which calls Exchange and Configure. Inspect is for people
// and tools that look at a bucket. The client stays yours: its timeouts, its TLS and its users
// apply, but its retries do not (a lease call that is sent twice would draw twice, so a call is
// sent once and its retry is hybrid's business).
package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/semaphore"

	"github.com/yuzhi-go/yuzhi/lease"
)

const (
	defaultPrefix = "yuzhi:"
	// defaultInFlight leaves most of a default go-redis pool of a large machine busy and a small one queueing.
	defaultInFlight = 64
)

// ErrInvalidConfig is wrapped by every error that says why a Config cannot be used.
var ErrInvalidConfig = errors.New("redisbucket: invalid configuration")

// Config tunes a Store. The zero value works. A deadline is not among it: the context of a call bounds the call.
type Config struct {
	// Prefix starts every Redis key. Empty means "yuzhi:". It may not contain '{' or '}', which would move the hash tag.
	Prefix string
	// InFlight is how many pipelines may be under way to one Redis node; more wait. 0 means 64.
	InFlight int
	// ClientTime sends the caller's clock as the server's time, for servers that refuse TIME inside
	// scripts. The bucket goes by the clock that is furthest ahead, and one that comes in ahead of
	// all others by d refills every bucket by d at once. Clocks must agree to a second: of two that
	// are further apart, each call of the faster one refills all of the difference. Off by default.
	ClientTime bool
	// AllowRing accepts a redis.Ring. Each client of a ring decides for itself which servers are
	// up, so clients that disagree keep two buckets for one key, and one that changes its mind
	// begins a fresh one with its full burst: 4,096 tokens too many within 9 s were seen. Off by
	// default; for limits that need not hold.
	AllowRing bool
}

// Store is a lease.Store whose buckets live in Redis. It may be shared between goroutines. It has no goroutines
// of its own between calls, and the Redis client stays the caller's: nothing is closed.
type Store struct {
	rdb      redis.UniversalClient
	prefix   string
	inFlight int64
	now      func() string // the time argument of the scripts: empty for the server's clock

	leaseScript     *script
	configureScript *script

	watcher watcher
	mu      sync.Mutex
	nodes   map[string]*node
}

// node is one Redis server of the client, as far as this Store must tell them apart.
type node struct {
	number int
	slots  *semaphore.Weighted

	// Guarded by watcher.mu.
	client  *redis.Client // whose dials are watched
	opening int           // connections that nothing has gone over yet
}

var (
	_ lease.Store  = (*Store)(nil)
	_ lease.Pinger = (*Store)(nil)
)

// New returns a Store over rdb. It sends nothing, so it succeeds while Redis is down. All
// violations of cfg come back as one error that wraps ErrInvalidConfig.
//
// It adds a hook to rdb that watches how connections are opened and changes nothing: so a port that
// refuses or a certificate that does not fit is reported as such and at once, and what a handshake
// takes is not taken for the network's delay. Hooks stay as long as the client, so make one Store
// for a client and keep it.
func New(rdb redis.UniversalClient, cfg Config) (*Store, error) {
	var errs []error
	if v := reflect.ValueOf(rdb); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		errs = append(errs, fmt.Errorf("%w: client is nil", ErrInvalidConfig))
	}
	if _, ring := rdb.(*redis.Ring); ring && !cfg.AllowRing {
		errs = append(errs, fmt.Errorf("%w: client is a redis.Ring, whose clients may disagree about which servers are up: then a key has two buckets, each with a full burst; AllowRing accepts that", ErrInvalidConfig))
	}
	if strings.ContainsAny(cfg.Prefix, "{}") {
		errs = append(errs, fmt.Errorf("%w: Prefix is %q, must be without braces", ErrInvalidConfig, cfg.Prefix))
	}
	if cfg.InFlight < 0 {
		errs = append(errs, fmt.Errorf("%w: InFlight is %d, must be at least 0 (0 means %d)", ErrInvalidConfig, cfg.InFlight, defaultInFlight))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	s := &Store{
		rdb:             rdb,
		prefix:          cfg.Prefix,
		inFlight:        int64(cfg.InFlight),
		now:             func() string { return "" },
		leaseScript:     newScript(leaseSource),
		configureScript: newScript(configureSource),
		watcher:         watcher{sendings: make(map[*sending]bool)},
		nodes:           make(map[string]*node),
	}
	if s.prefix == "" {
		s.prefix = defaultPrefix
	}
	if s.inFlight == 0 {
		s.inFlight = defaultInFlight
	}
	if cfg.ClientTime {
		s.now = func() string { return fmt.Sprint(time.Now().UnixMicro()) }
	}
	s.watchAll()
	return s, nil
}

// watchAll has the dials of all clients below rdb watched, of those to come too.
func (s *Store) watchAll() {
	switch rdb := s.rdb.(type) {
	case *redis.Client:
		s.watcher.watch(s.node(""), rdb)
	case *redis.ClusterClient: // the nodes that it has already are watched as they are met
		rdb.OnNewNode(func(c *redis.Client) { s.watcher.watch(s.node(c.Options().Addr), c) })
	case *redis.Ring: // whose shards are one node to this Store
		watch := func(c *redis.Client) { c.AddHook(hook{&s.watcher, s.node("")}) }
		rdb.OnNewNode(watch)
		_ = rdb.ForEachShard(context.Background(), func(_ context.Context, c *redis.Client) error { watch(c); return nil })
	}
}

// node returns the node at addr, numbering a new one.
func (s *Store) node(addr string) *node {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[addr]
	if n == nil {
		n = &node{number: len(s.nodes), slots: semaphore.NewWeighted(s.inFlight)}
		s.nodes[addr] = n
	}
	return n
}

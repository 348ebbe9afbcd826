package redisbucket

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/semaphore"

	"github.com/yuzhi-go/yuzhi/internal/violation"
	"github.com/yuzhi-go/yuzhi/lease"
)

const defaultPrefix, defaultInFlight = "yuzhi:", 64

// ErrInvalidConfig reports a Config or a client that New cannot use.
var ErrInvalidConfig = errors.New("redisbucket: invalid configuration")

// Config tunes a Store. The zero Config works. The context of a call bounds the call's time.
type Config struct {
	// Prefix begins every Redis key; "" means "yuzhi:". '{' and '}' would change hash tags, so New refuses
	// them.
	Prefix string
	// InFlight is the largest number of pipelines under way to one Redis node, 64 if 0; more pipelines wait.
	InFlight int
}

// Store is a lease.Store whose buckets live in Redis. Goroutines may share a Store. A Store runs no goroutine
// between calls. The caller closes the Redis client: a Store closes nothing.
type Store struct {
	rdb      redis.UniversalClient
	prefix   string
	inFlight int64
	now      func() string // the time argument of the scripts: empty for the server's clock; tests set a time

	leaseScript     *script
	drawsScript     *script
	configureScript *script
	alone           atomic.Bool  // each draw travels in a command of its own
	found           atomic.Int64 // see foundEnough

	slotsKnown atomic.Bool // the cluster client knows which node serves which slot

	mu        sync.Mutex
	nodes     map[string]*node
	pipelines map[*pipeline]bool // pipelines under way
}

// node is one Redis server of the client.
type node struct {
	number int
	slots  *semaphore.Weighted

	// Guarded by Store.mu.
	client  *redis.Client // the Redis client whose dials the hook watches
	opening int           // connections that no pipeline has used yet
}

var (
	_ lease.Store      = (*Store)(nil)
	_ lease.Pinger     = (*Store)(nil)
	_ lease.Router     = (*Store)(nil)
	_ lease.Identifier = (*Store)(nil)
)

// New returns a Store over rdb. New sends nothing, so it succeeds while Redis is down. New returns all
// violations of cfg, each a lease.Violation, in one error that wraps ErrInvalidConfig. A nil client is a
// violation, even a nil pointer in the interface. A redis.Ring is a violation, because it may keep two
// buckets for one key.
//
// New adds a hook to rdb that watches how connections are opened and changes nothing. The hook stays as long
// as the client, so make one Store per client and keep the Store. Limiters on one Store share round trips;
// separate Stores on one client, as hybrid.Redis makes them, work too.
func New(rdb redis.UniversalClient, cfg Config) (*Store, error) {
	bad := violation.List{Kind: ErrInvalidConfig}
	if v := reflect.ValueOf(rdb); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		bad.Add("client", nil, "is nil")
	}
	if _, ring := rdb.(*redis.Ring); ring {
		bad.Add("client", nil, "is a redis.Ring, whose clients may disagree about which servers are up: "+
			"then a key has two buckets, each with a full burst; use a cluster")
	}
	if strings.ContainsAny(cfg.Prefix, "{}") {
		bad.Add("Prefix", cfg.Prefix, "must not contain braces")
	}
	if cfg.InFlight < 0 {
		bad.Add("InFlight", cfg.InFlight, "must be at least 0 (0 means %d)", defaultInFlight)
	}
	if err := bad.Err(); err != nil {
		return nil, err
	}
	s := &Store{
		rdb:             rdb,
		prefix:          cmp.Or(cfg.Prefix, defaultPrefix),
		inFlight:        int64(cmp.Or(cfg.InFlight, defaultInFlight)),
		now:             func() string { return "" },
		leaseScript:     allScripts()["lease"],
		drawsScript:     allScripts()["draws"],
		configureScript: allScripts()["configure"],
		nodes:           make(map[string]*node),
		pipelines:       make(map[*pipeline]bool),
	}
	_, single := rdb.(*redis.Client)
	s.alone.Store(!single)
	s.watchAll()
	return s, nil
}

// Identity implements lease.Identifier. Stores with the same client and Prefix have equal identities.
func (s *Store) Identity() any {
	if !reflect.TypeOf(s.rdb).Comparable() {
		return s
	}
	return [2]any{s.rdb, s.prefix}
}

// watchAll adds the hook to every client that rdb uses, now or later.
func (s *Store) watchAll() {
	switch rdb := s.rdb.(type) {
	case *redis.Client:
		s.nodeOf(rdb)
	case *redis.ClusterClient: // known nodes get the hook with their first call
		rdb.OnNewNode(func(c *redis.Client) { s.nodeOf(c) })
	}
}

// NodeOf implements lease.Router. NodeOf returns -1 before the first call to a cluster.
func (s *Store) NodeOf(key string) int {
	cluster, ok := s.rdb.(*redis.ClusterClient)
	if !ok {
		return 0
	}
	if s.slotsKnown.Load() {
		// A cluster client that knows the slots answers from memory, and asks no server.
		if master, err := cluster.MasterForKey(context.Background(), s.bucketKey(key)); err == nil {
			return s.nodeOf(master).number
		}
	}
	return -1
}

// NodeName implements lease.Router: it returns the address by which the client knows the node.
func (s *Store) NodeName(number int) string {
	if c, ok := s.rdb.(*redis.Client); ok && number == 0 {
		return c.Options().Addr
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for addr, n := range s.nodes {
		if n.number == number {
			return addr
		}
	}
	return ""
}

// node returns the node at addr, which node creates and numbers if addr is new.
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

// nodeOf returns the node of c, and adds the hook to c if go-redis has replaced the node's client.
func (s *Store) nodeOf(c *redis.Client) *node {
	addr := ""
	if _, cluster := s.rdb.(*redis.ClusterClient); cluster {
		addr = c.Options().Addr
	}
	n := s.node(addr)
	s.mu.Lock()
	known := n.client == c
	n.client = c
	s.mu.Unlock()
	if !known {
		c.AddHook(hook{s, n})
	}
	return n
}

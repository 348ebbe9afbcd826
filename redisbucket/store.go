package redisbucket

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/semaphore"

	"github.com/yuzhi-go/yuzhi/internal/keyhash"
	"github.com/yuzhi-go/yuzhi/internal/violation"
	"github.com/yuzhi-go/yuzhi/lease"
)

const defaultPrefix, defaultInFlight = "yuzhi:", 64

// ErrInvalidConfig reports a Config or a client that New cannot use.
var ErrInvalidConfig = errors.New("redisbucket: invalid configuration")

// Config tunes a Store. The zero Config works. The context of a call bounds the call's time.
type Config struct {
	// Prefix begins every Redis key; "" means "yuzhi:". New refuses braces, because they mark hash tags.
	Prefix string
	// InFlight bounds the number of pipelines under way to one Redis node; 0 means 64. More pipelines wait.
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
	alone           atomic.Bool  // draws never share a command
	found           atomic.Int64 // number of found buckets; see foundEnough

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

// New returns a Store over rdb. New sends nothing, so New succeeds while Redis is down. The error of New
// wraps ErrInvalidConfig and joins all violations of cfg and rdb, each a lease.Violation. rdb must not be nil
// or a redis.Ring, which may keep two buckets for one key.
//
// New adds a hook to rdb that watches how connections are opened. The hook stays as long as the client, so
// make one Store per client. Limiters on one Store share round trips. Several Stores on one client, as
// hybrid.Redis makes them, work too.
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

// watchAll adds the hook to rdb or, if rdb is a cluster client, to the client of each node.
func (s *Store) watchAll() {
	switch rdb := s.rdb.(type) {
	case *redis.Client:
		s.nodeOf(rdb)
	case *redis.ClusterClient: // a known node gets the hook with its first call
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
		if master, err := cluster.MasterForKey(context.Background(), s.bucketKey(key)); err == nil { // without I/O
			return s.nodeOf(master).number
		}
	}
	return -1
}

// NodeName implements lease.Router. The name is the address by which the client knows the node.
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

// node returns the node at addr, and creates the node if addr is new.
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

// nodeOf returns the node of c, and adds the hook to c if c is new.
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

// escaper replaces '}', which would end a hash tag early. In an escaped key no letter follows '%', so '%' and
// a letter mark other tags: tagEmpty, and the hashes of keyhash.Of.
var escaper = strings.NewReplacer("%", "%25", "}", "%7D")

// tagEmpty is the tag of the empty key. Redis does not treat an empty tag as a tag.
const tagEmpty = "%e"

// tag returns the hash tag of a user's key, which may have any bytes. Different keys have different tags,
// except for a collision of SHA-256. A tag is never empty and has no '}', so all keys of one bucket are in
// one slot. A key full of braces is hashed, because its escaped form would take three times the memory.
func tag(key string) string {
	switch {
	case key == "":
		return tagEmpty
	case keyhash.Is(key):
		return key // package hybrid has replaced a long key by its hash
	case len(key) <= lease.KeyMax:
		if escaped := escaper.Replace(key); len(escaped) <= max(len(key)+len(key)/10, keyhash.Len) {
			return escaped
		}
	}
	return keyhash.Of(key)
}

func (s *Store) bucketKey(key string) string { return s.prefix + "{" + tag(key) + "}" }

// recordKey returns the Redis key of a holder's record for a bucket. A bucket's key ends with its first '}',
// and a record's key continues there, so no record has the key of a bucket.
func recordKey(bucketKey, holder string) string { return bucketKey + ":" + holder }

// leaseKeys returns the keys for lease.lua. Both are parts of one string, which saves an allocation.
func (s *Store) leaseKeys(key, holder string) (bucket, record string) {
	record = s.prefix + "{" + tag(key) + "}:" + holder
	return record[:len(record)-len(holder)-1], record
}

// userKey returns the user's key, or its hash, for the bucket or record at redisKey, and the holder of a
// record. ok is false if redisKey does not belong to this Store.
func (s *Store) userKey(redisKey string) (key, holder string, ok bool) {
	rest, ok := strings.CutPrefix(redisKey, s.prefix+"{")
	if !ok {
		return "", "", false
	}
	tag, holder, ok := strings.Cut(rest, "}")
	if !ok || tag == "" || holder != "" && (holder[0] != ':' || holder == ":") {
		return "", "", false
	}
	if tag != tagEmpty {
		key = unescaper.Replace(tag)
	}
	return key, strings.TrimPrefix(holder, ":"), true
}

var unescaper = strings.NewReplacer("%25", "%", "%7D", "}")

// Configure implements lease.Store: it executes op on the bucket of key, and never repeats its command.
// lease.OpInspect and lease.OpReset do not use c.
func (s *Store) Configure(
	ctx context.Context, key string, op lease.Op, c lease.Config,
) (st lease.State, err error) {
	defer func() { err = wrap(key, err) }()
	var proposal []byte
	var r lease.Request // the script reads only the TTL of a request
	switch op {
	case lease.OpInspect, lease.OpReset:
	case lease.OpSet, lease.OpReplace, lease.OpClear:
		if proposal, err = appendConfig(nil, &c); err != nil {
			return st, err
		}
		r.Config.TTL = c.TTL
	default:
		return st, fmt.Errorf("%w: %v is not an operation", lease.ErrInvalidConfig, op)
	}
	one := newGroup(nil, 1)
	one.add(&part{calls: []*lease.Call{{Key: key}}, invocation: &invocation{
		sc: s.configureScript, keys: []any{s.bucketKey(key)},
		args: []any{proposal, s.now(), &payload{data: appendRequest(nil, &r)}, op.String()},
	}})
	groups, err := s.byNode(ctx, one)
	if err != nil {
		return st, err
	}
	cmds, err := s.await(ctx, s.rdb, groups[0].node, one.invocations()...)
	if err != nil {
		return st, err
	}
	v, err := cmds[0].Result()
	if err != nil {
		return st, err
	}
	return decodeState(v)
}

// Inspect returns the state of the bucket of key. Inspect changes nothing and creates no bucket.
func (s *Store) Inspect(ctx context.Context, key string) (lease.State, error) {
	return s.Configure(ctx, lease.ShortKey(key), lease.OpInspect, lease.Config{})
}

// Ping implements lease.Pinger: it opens a connection to every node that serves buckets, runs the scripts
// there and tries a write, which a replica or a server without free memory refuses. Ping changes nothing and
// needs only the permissions of lease calls.
func (s *Store) Ping(ctx context.Context) error {
	var err error
	if cluster, ok := s.rdb.(*redis.ClusterClient); ok {
		_, err = s.pipeline(ctx, nil, nil, func(p *pipeline) error {
			return cluster.ForEachMaster(p.ctx, func(ctx context.Context, c *redis.Client) error {
				return s.ping(ctx, c, s.nodeOf(c), s.keyOn(ctx, cluster, c))
			})
		}) // notSent must not wrap err: some nodes may have answered
	} else {
		err = s.ping(ctx, s.rdb, s.node(""), s.bucketKey(""))
	}
	if err != nil {
		return fmt.Errorf("redisbucket: ping: %w", named(err))
	}
	return nil
}

// keyOn returns the key of a bucket that the master c serves, or "" if c serves no slots.
func (s *Store) keyOn(ctx context.Context, cluster *redis.ClusterClient, c *redis.Client) string {
	for i := range 1 << 14 { // the number of slots
		key := s.bucketKey(strconv.Itoa(i))
		if m, err := cluster.MasterForKey(ctx, key); err == nil && m.Options().Addr == c.Options().Addr {
			return key
		}
	}
	return ""
}

// ping runs each script with a request that the script refuses before it reads a key. ping runs scripts alone
// and in a pipeline, because go-redis may use other connections for pipelines. Finally ping tries a write to
// the slot of bucket. If bucket is "", ping does nothing.
func (s *Store) ping(ctx context.Context, rdb redis.UniversalClient, n *node, bucket string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("node %s: %w", s.NodeName(n.number), err)
		}
	}()
	if bucket == "" {
		return nil
	}
	keys := []any{bucket, recordKey(bucket, "")} // a proxy may need a key to route a script
	pipelines := [][]*script{{s.leaseScript}, {s.configureScript}, {s.leaseScript, s.leaseScript}}
	if !s.alone.Load() {
		pipelines = append(pipelines, []*script{s.drawsScript})
	}
	for _, scripts := range pipelines {
		var all []*invocation
		for _, sc := range scripts {
			all = append(all, &invocation{sc, keys, []any{"", "", &payload{}}})
		}
		cmds, err := s.await(ctx, rdb, n, all...)
		if err != nil {
			return err
		}
		for _, c := range cmds {
			v, err := c.Result()
			if err == nil {
				_, err = decodeGrant(v, &lease.Request{})
			}
			if !errors.Is(err, lease.ErrInvalidRequest) {
				return err
			}
		}
	}
	// SETXX of a missing key writes nothing, but fails on a server that refuses writes.
	if err := rdb.SetXX(ctx, recordKey(bucket, ""), "", time.Millisecond).Err(); !errors.Is(err, redis.Nil) {
		return err
	}
	return nil
}

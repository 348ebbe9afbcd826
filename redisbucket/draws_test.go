package redisbucket

import (
	"context"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// drawing returns a draw of n tokens for each key.
func drawing(seq, n int64, keys ...string) (calls []*lease.Call) {
	for _, c := range pair(seq, keys...) {
		r := &c.Request
		r.Draw, r.Want, r.Waiting, r.Need = true, n, n, n
		calls = append(calls, c)
	}
	return calls
}

// numbered returns n keys.
func numbered(n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprint("user ", i))
	}
	return keys
}

// info returns an entry of INFO, of which miniredis has none.
func info(t testing.TB, s *Store, section, name string) string {
	for _, entries := range s.rdb.(*redis.Client).InfoMap(t.Context(), section).Val() {
		return entries[name]
	}
	return ""
}

// scripts returns the number of script calls that reach the server during f.
func scripts(t *testing.T, s *Store, f func()) (n int64) {
	t.Helper()
	testkit.NoErr(t, s.rdb.(*redis.Client).ConfigResetStat(t.Context()).Err())
	f()
	for _, command := range []string{"evalsha", "eval"} {
		var calls int64
		_, _ = fmt.Sscanf(info(t, s, "commandstats", "cmdstat_"+command), "calls=%d", &calls)
		n += calls
	}
	return n
}

// exchangeAll makes all calls, and returns them in the groups in which they were answered.
func exchangeAll(s *Store, calls []*lease.Call) (groups [][]*lease.Call) {
	var mu sync.Mutex
	s.Exchange(context.Background(), calls, func(g []*lease.Call) {
		mu.Lock()
		defer mu.Unlock()
		groups = append(groups, g)
	})
	return groups
}

func checkGranted(t *testing.T, calls []*lease.Call, counter int64) {
	t.Helper()
	for _, c := range calls {
		testkit.Check(t, c.Err == nil && c.Grant.Granted == c.Request.Want && c.Grant.Waited == c.Request.Want &&
			c.Grant.Counter == counter && c.Unsent() == nil, "%q: %+v, %v, %v", c.Key, c.Grant, c.Err, c.Unsent())
	}
}

// TestDrawsTravelTogether: draws of one configuration are one command to the server, once a script
// has found the buckets of several that travelled alone.
func TestDrawsTravelTogether(t *testing.T) {
	t.Parallel()
	s := newStore(t, redistest.Start(t).Addr)
	testkit.NoErr(t, s.Ping(t.Context()))
	first := drawing(1, 1, numbered(drawsMost)...)
	ctx, cancel := context.WithCancel(t.Context())
	n := scripts(t, s, func() { s.Exchange(ctx, first, func([]*lease.Call) { cancel() }) })
	testkit.Check(t, n == drawsMost+1, "%d scripts for the first %d draws", n, len(first))
	checkGranted(t, first, 1)
	keys := numbered(3*drawsMost + 1)[drawsMost:]
	for seq := int64(1); seq < 3; seq++ { // new buckets, and then those
		calls := drawing(seq, 1, keys...)
		n := scripts(t, s, func() { exchangeAll(s, calls) })
		testkit.Check(t, n == 3, "%d scripts for %d draws", n, len(calls))
		checkGranted(t, calls, seq)
	}
	// An evicted bucket does not tell which servers have the others.
	s.find(t.Context(), s.node(""), []any{s.bucketKey("user 0"), s.bucketKey("nobody")})
	testkit.Check(t, s.together(), "draws may not travel together any more")
	// Those of another configuration are another command, wherever they stand between the others; a
	// lease call, and a draw that pays a debt, are one each.
	calls := drawing(3, 1, keys[:12]...)
	for i := 1; i < 10; i += 2 {
		calls[i].Key, calls[i].Request.Config.Limits = fmt.Sprint("other ", i), []lease.Limit{lease.PerMinute(7)}
	}
	calls[10].Request.Draw, calls[11].Request.Late = false, oneLate(lease.LateDebt, 1)
	n = scripts(t, s, func() { exchangeAll(s, calls) })
	testkit.Check(t, n == 4, "%d scripts for draws of two configurations, a lease and a debt", n)
	for _, c := range calls {
		testkit.Check(t, c.Err == nil && c.Grant.Granted == 1, "%q: %+v, %v", c.Key, c.Grant, c.Err)
	}
}

// TestADrawThatCannotTravelIsCalledAlone: the others are answered before it is.
func TestADrawThatCannotTravelIsCalledAlone(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store) {
		s.found.Store(foundEnough)
		keys := numbered(8)
		real := info(t, s, "server", "redis_version") != ""
		exchangeAll(s, drawing(1, 1, keys...))
		// Given a key with a lease, a key of the wrong type, and a key with too few tokens,
		leased := request(2)
		leased.Holder = "other"
		granted(t, s, keys[0], leased)
		testkit.NoErr(t, s.rdb.Del(t.Context(), s.bucketKey(keys[1])).Err())
		testkit.NoErr(t, s.rdb.LPush(t.Context(), s.bucketKey(keys[1]), "x").Err())
		// when draws of them travel with those of others,
		calls := drawing(3, 1, keys...)
		calls[2].Request.Want, calls[2].Request.Waiting, calls[2].Request.Need = 1000, 1000, 1000
		groups := exchangeAll(s, calls)
		// then each is answered as a lease call is, the others first.
		checkGranted(t, calls[:1], 3)
		checkError(t, "a list", calls[1].Err, map[error]bool{lease.ErrPermanent: true, lease.ErrRefused: true})
		testkit.Check(t, calls[2].Err == nil && calls[2].Grant.Granted == 0 && calls[2].Grant.Delay > 0,
			"%+v, %v", calls[2].Grant, calls[2].Err)
		checkGranted(t, calls[3:], 2)
		if real { // miniredis has no struct, so there each is called alone
			testkit.Check(t, len(groups) == 2 && len(groups[0]) == 5,
				"%d groups, the first of %d calls", len(groups), len(groups[0]))
		}
	})
}

// TestKeysThatMayNotTravelTogether: where a server says so, each draw is called alone, and none is
// made twice.
func TestKeysThatMayNotTravelTogether(t *testing.T) {
	t.Parallel()
	redistest.RequireVersion(t, 6, "users")
	s := newStore(t, redistest.Start(t).Addr)
	s.found.Store(foundEnough)
	testkit.NoErr(t, s.rdb.(*redis.Client).Do(t.Context(), "ACL",
		"SETUSER", "default", "resetkeys", "~*user*").Err())
	calls := drawing(1, 1, "user 1", "else", "user 2")
	exchangeAll(s, calls)
	checkGranted(t, []*lease.Call{calls[0], calls[2]}, 1)
	checkError(t, "else", calls[1].Err, map[error]bool{lease.ErrPermanent: true, lease.ErrRefused: true})
}

// nodeRefusesTogether is TestKeysThatMayNotTravelTogether for a client that takes a cluster's node
// for a single server.
func nodeRefusesTogether(t *testing.T, servers []*redistest.Server, s *Store) {
	keys := slices.DeleteFunc(numbered(20), func(k string) bool { return slot(s.bucketKey(k)) > 8191 })
	for seq, found := range []int64{0, foundEnough} { // before a script has found several buckets, and after
		s := newStore(t, servers[0].Addr)
		s.found.Store(found)
		calls := drawing(int64(2*seq+1), 1, keys...)
		exchangeAll(s, calls)
		checkGranted(t, calls, int64(2*seq+1))
		n := scripts(t, s, func() { exchangeAll(s, drawing(int64(2*seq+2), 1, keys...)) })
		testkit.Check(t, n == int64(len(keys)), "%d scripts for %d draws: it does not learn", n, len(keys))
	}
}

// byFirstKey is a proxy in front of several servers, as a hook of a client that is connected to the
// first: like Envoy and twemproxy it sends a script to the server of its first key.
type byFirstKey []*redis.Client

func (f byFirstKey) server(cmd redis.Cmder) *redis.Client {
	words := cmd.Args()
	if len(words) < 4 {
		return f[0]
	}
	key, _, _ := strings.Cut(fmt.Sprint(words[3]), "}")
	return f[crc32.ChecksumIEEE([]byte(key))%uint32(len(f))]
}

func (f byFirstKey) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f byFirstKey) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return f.server(cmd).Process(ctx, cmd) }
}

func (f byFirstKey) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			_ = f.server(cmd).Process(ctx, cmd)
		}
		return nil
	}
}

// TestAProxyThatLooksAtTheFirstKeyAlone: behind it no draw is made where the key's bucket is not.
func TestAProxyThatLooksAtTheFirstKeyAlone(t *testing.T) {
	t.Parallel()
	var servers byFirstKey
	for range 3 {
		rdb := redis.NewClient(patient(redistest.Start(t).Addr))
		t.Cleanup(func() { rdb.Close() })
		servers = append(servers, rdb)
	}
	front := redis.NewClient(patient(servers[0].Options().Addr))
	front.AddHook(servers)
	s := storeOver(t, front)
	// Given ten users with ten tokens each, and a time that stands still,
	s.now = func() string { return "1700000000000000" }
	rng, admitted := testkit.Rand(t), map[string]int64{}
	for seq := range int64(300) {
		// when some of them draw together, in any order,
		keys := numbered(10)
		rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		calls := drawing(seq+1, 1, keys[:1+rng.IntN(9)]...)
		for _, c := range calls {
			c.Request.Config = drawOf(1, 1).Config
		}
		exchangeAll(s, calls)
		for _, c := range calls {
			testkit.NoErr(t, c.Err)
			admitted[c.Key] += c.Grant.Granted
		}
	}
	// then each has had ten, and it is known that they may not.
	testkit.Check(t, s.alone.Load() && !s.together(), "draws may travel together")
	for _, key := range numbered(10) {
		testkit.Check(t, admitted[key] == 10, "%q: %d admitted, want 10", key, admitted[key])
	}
}

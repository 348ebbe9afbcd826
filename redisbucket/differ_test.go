package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// servers are what lease.Bucket is compared with.
type servers struct {
	real *redis.Client // nil without redis-server
	mini *redis.Client
	fake *miniredis.Miniredis // behind mini
}

func startServers(t testing.TB) *servers {
	t.Helper()
	s := &servers{fake: miniredis.NewMiniRedis()}
	must(t, s.fake.Start())
	s.mini = redis.NewClient(&redis.Options{Addr: s.fake.Addr()})
	t.Cleanup(func() { s.mini.Close(); s.fake.Close() })
	if !redistest.Available() {
		t.Log("compared with miniredis only: redis-server is not in PATH (apt-get install redis-server, or brew install redis)")
		return s
	}
	s.real = redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr})
	t.Cleanup(func() { s.real.Close() })
	return s
}

// trio is one bucket three times: in real Redis, in miniredis, and as lease.Bucket. Every step is
// done to all of them at one server time, and then all of them must have answered alike and hold
// the same state.
type trio struct {
	t      *testing.T
	rng    *rand.Rand
	real   *Store // nil without redis-server
	mini   *Store
	server *miniredis.Miniredis
	bucket lease.Bucket

	key        string
	clientTime bool
	now        int64          // client-time mode: chosen by the test; else the last server time seen
	births     map[int64]bool // times at which a bucket was created
	holders    []*actor       // see differ_model_test.go
	names      []string       // of the holders
	saved      *snapshot      // what a lagging replica would have
	count      map[string]int // how often what happened
	configs    []lease.Config // that holders propose
	version    lease.Version  // highest proposed so far
	log        []string       // the last steps, for the failure
}

type snapshot struct {
	bucket  *lease.Bucket
	state   string
	records map[string]string
}

// TestScriptsAgreeWithReference: given random but lifelike calls, when real Redis, miniredis and
// lease.Bucket execute the same ones at the same times, then replies and state are equal to the
// last bit.
func TestScriptsAgreeWithReference(t *testing.T) {
	const most = 20_000
	for _, clientTime := range []bool{true, false} {
		// Time that the test chooses reaches every corner; the server's own passes slowly and needs fewer
		// calls.
		name, calls, steps, granted := "server-time", most/5, 100, 10
		if clientTime {
			name, calls, steps, granted = "client-time", most, 400, 5
		}
		t.Run(name, func(t *testing.T) {
			if !clientTime {
				redistest.Require(t)
			}
			servers, seed := startServers(t), testkit.Seed(t)
			total := make(map[string]int)
			for round := uint64(0); total["call"] < calls; round++ {
				x := servers.trio(t, rand.New(rand.NewPCG(seed, round)), clientTime)
				for range steps {
					x.step()
				}
				for k, n := range x.count {
					total[k] += n
				}
			}
			t.Log(total)
			if total["error"] > total["call"]/50 {
				t.Errorf("%d of %d calls were refused before they reached a script", total["error"],
					total["call"])
			}
			// Random calls that are all void would compare little.
			for what, least := range map[string]int{"known": calls / 2, "granted": calls / granted,
				"void":  calls / 100,
				"retry": calls / 50, "stale": calls / 200, "short": calls / 50, "configured": calls / 50,
				"evicted": calls / 200, "lost": calls / 1000, "failover": calls / 4000, "loss": calls / 200,
				"unused": calls / 200, "rearranged": calls / 1000, "grew": calls / 200, "shrunk": calls / 500,
				"back": calls / 100} {
				if !clientTime && (what == "shrunk" || what == "back") {
					continue // the server's own time passes too slowly, and never goes back
				}
				if total[what] < least {
					t.Errorf("%s: %d times, want at least %d", what, total[what], least)
				}
			}
		})
	}
}

// trio is one bucket on these servers and as lease.Bucket, with nothing stored yet, and some
// holders.
func (s *servers) trio(t *testing.T, rng *rand.Rand, clientTime bool) *trio {
	t.Helper()
	x := &trio{t: t, rng: rng, key: "any}", clientTime: clientTime, server: s.fake,
		births: make(map[int64]bool), count: make(map[string]int)}
	store := func(rdb *redis.Client) *Store {
		must(t, rdb.FlushAll(context.Background()).Err())
		on := storeOn(t, rdb)
		if clientTime {
			on.now = func() string { return strconv.FormatInt(x.now, 10) }
		}
		return on
	}
	x.mini = store(s.mini)
	if s.real != nil {
		x.real = store(s.real)
	}
	x.now = 1_700_000_000_000_000 + rng.Int64N(1e12)
	if clientTime && rng.IntN(4) == 0 {
		x.now = rng.Int64N(1000) // near the start of time
	}
	x.populate()
	return x
}

// stores are those of the three that are not the reference, the authority first.
func (x *trio) stores() []*Store {
	if x.real == nil {
		return []*Store{x.mini}
	}
	return []*Store{x.real, x.mini}
}

// call gives one request to all three and returns the reference's answer.
func (x *trio) call(r lease.Request) (lease.Grant, error) {
	x.t.Helper()
	x.logf("call at %d: %+v", x.now, r)
	var want lease.Grant
	var wantErr error
	before := x.bucket.Dump()
	for i, s := range x.stores() {
		got, gotErr := exchange(s, x.key, r)
		if i == 0 {
			if !x.clientTime && gotErr == nil {
				x.at(got.ServerTime)
			}
			wantErr = x.bucket.Call(x.now, &r, &want)
		}
		x.same(x.who(s), want, wantErr, got, gotErr)
	}
	x.compare()
	after := x.bucket.Dump()
	x.births[after.Created] = true
	for what, happened := range map[string]bool{
		"grew": after.Config.TTL > before.Config.TTL, "shrunk": after.Config.TTL < before.Config.TTL &&
			after.Config.Version == before.Config.Version,
		"loss": after.Frozen > before.Frozen, "back": after.Clock < before.Clock,
		"unused": wantErr == nil && !want.Void && r.Unused > 0 && r.Drawn > after.SetAt &&
			r.Drawn <= after.Now && after.Now >= after.Frozen,
	} {
		if happened && before.Exists && before.Created == after.Created {
			x.count[what]++
		}
	}
	return want, wantErr
}

// at moves the times of miniredis and the reference to the real server's.
func (x *trio) at(now int64) {
	x.now = now
	x.server.SetTime(time.UnixMicro(now))
}

func (x *trio) configure(op lease.Op, c lease.Config) {
	x.t.Helper()
	x.logf("%v at %d: %+v", op, x.now, c)
	var want lease.State
	var wantErr error
	for i, s := range x.stores() {
		got, gotErr := s.Configure(context.Background(), x.key, op, c)
		if i == 0 {
			if !x.clientTime && got.Exists {
				x.at(got.ServerTime)
			}
			want, wantErr = x.bucket.Configure(x.now, op, c)
		}
		x.same(x.who(s), want, wantErr, got, gotErr)
	}
	x.compare()
	x.births[x.bucket.Dump().Created] = true
}

func (x *trio) same(who string, want any, wantErr error, got any, gotErr error) {
	x.t.Helper()
	for _, sentinel := range []error{lease.ErrStale, lease.ErrInvalidRequest, lease.ErrInvalidConfig} {
		if errors.Is(wantErr, sentinel) && errors.Is(gotErr, sentinel) {
			return
		}
	}
	if wantErr != nil || gotErr != nil || !reflect.DeepEqual(want, got) {
		x.fatalf("%s answers otherwise:\nwant %+v, %v\ngot  %+v, %v", who, want, wantErr, got, gotErr)
	}
}

// compare compares the stored state of all three.
func (x *trio) compare() {
	x.t.Helper()
	want := x.bucket.Dump()
	for _, s := range x.stores() {
		if x.clientTime && s == x.real {
			// The server's own clock, which ends keys, has nothing to do with the chosen time.
			pipe := s.rdb.Pipeline()
			pipe.Persist(context.Background(), s.bucketKey(x.key))
			for _, h := range x.names {
				pipe.Persist(context.Background(), recordKey(s.bucketKey(x.key), h))
			}
			_, err := pipe.Exec(context.Background())
			must(x.t, err)
		}
		if diff := diffDump(want, stored(x.t, s.rdb, s, x.key, x.names)); diff != "" {
			x.fatalf("%s holds otherwise:\n%s", x.who(s), diff)
		}
	}
}

// evict drops one holder's record everywhere, as a server under memory pressure may.
func (x *trio) evict(holder string) {
	x.logf("evict %s", holder)
	for _, s := range x.stores() {
		must(x.t, s.rdb.Del(context.Background(), recordKey(s.bucketKey(x.key), holder)).Err())
	}
	x.bucket.DropRecord(holder)
}

// lose drops the bucket everywhere and leaves the records behind, as eviction may.
func (x *trio) lose() {
	x.logf("lose the bucket")
	for _, s := range x.stores() {
		must(x.t, s.rdb.Del(context.Background(), s.bucketKey(x.key)).Err())
	}
	x.bucket = lease.Bucket{}
	for x.clientTime && x.births[x.now] { // two buckets of one key never begin in the same microsecond
		x.now++
	}
}

// save remembers everything; restore goes back to it, as the promotion of a replica that lagged
// behind does.
func (x *trio) save() {
	ctx := context.Background()
	x.logf("save")
	x.saved = &snapshot{bucket: x.bucket.Clone(), records: make(map[string]string)}
	s := x.stores()[0]
	bucket := s.bucketKey(x.key)
	x.saved.state = s.rdb.Get(ctx, bucket).Val()
	for _, h := range x.names {
		if text, err := s.rdb.Get(ctx, recordKey(bucket, h)).Result(); err == nil {
			x.saved.records[h] = text
		}
	}
}

func (x *trio) restore() {
	ctx := context.Background()
	x.logf("restore")
	for _, s := range x.stores() {
		bucket := s.bucketKey(x.key)
		pipe := s.rdb.TxPipeline()
		pipe.Del(ctx, bucket)
		if x.saved.state != "" {
			pipe.Set(ctx, bucket, x.saved.state, 0)
		}
		for _, h := range x.names {
			pipe.Del(ctx, recordKey(bucket, h))
			if text, ok := x.saved.records[h]; ok {
				pipe.Set(ctx, recordKey(bucket, h), text, 0)
			}
		}
		_, err := pipe.Exec(ctx)
		must(x.t, err)
	}
	x.bucket = *x.saved.bucket.Clone()
}

func (x *trio) who(s *Store) string {
	if s == x.mini {
		return "miniredis"
	}
	return "redis"
}

func (x *trio) logf(format string, args ...any) {
	if x.log = append(x.log, fmt.Sprintf(format, args...)); len(x.log) > 12 {
		x.log = x.log[1:]
	}
}

func (x *trio) fatalf(format string, args ...any) {
	x.t.Helper()
	for _, line := range x.log {
		x.t.Log(line)
	}
	x.t.Fatalf(format, args...)
}

// Configurations whose share of a Target passes 2^53 tokens: the scripts do not take what they
// stored for damaged.
func TestAllowancesBeyondWholeNumbersAgree(t *testing.T) {
	for name, c := range map[string]struct {
		limit  lease.Limit
		weight int64
	}{
		"a large weight": {lease.PerSecond(1e15), 100},
		"a large rate":   {lease.Limit{Tokens: 1<<52 - 1, Per: time.Microsecond}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Require(t)
			x := startServers(t).trio(t, rand.New(rand.NewPCG(1, 1)), true)
			config := lease.Policy{Weight: c.weight}.ConfigFor([]lease.Limit{c.limit}, 0,
				100*time.Millisecond)
			x.names, x.now = []string{"a"}, 1_700_000_000_000_000
			held := int64(0)
			for i := int64(1); i < 5; i++ {
				g, err := x.call(lease.Request{Holder: "a", Seq: i, Config: config, Want: 5, Weight: c.weight,
					Remaining: held})
				if err != nil || g.Granted != 5 {
					t.Errorf("call %d: %+v, %v", i, g, err)
				}
				held += g.Granted
				x.now += 1000
			}
		})
	}
}

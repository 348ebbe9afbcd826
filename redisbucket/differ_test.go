package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// servers are compared with protocol.Bucket: real Redis, unless it is missing, and miniredis.
type servers struct {
	clients []*redis.Client // the authority first, miniredis last
	fake    *miniredis.Miniredis
}

func startServers(t testing.TB) *servers {
	t.Helper()
	testkit.RequireMiniredis(t)
	s := &servers{fake: miniredis.NewMiniRedis()}
	testkit.NoErr(t, s.fake.Start())
	t.Cleanup(s.fake.Close)
	addrs := []string{s.fake.Addr()}
	if redistest.Available() {
		addrs = []string{redistest.Start(t).Addr, s.fake.Addr()}
	} else {
		t.Log("compared with miniredis only: redis-server is not in PATH")
	}
	for _, addr := range addrs {
		rdb := redis.NewClient(patient(addr))
		t.Cleanup(func() { rdb.Close() })
		rdb.AddHook(keepKeys{rdb})
		s.clients = append(s.clients, rdb)
	}
	return s
}

// keepKeys takes the time to live from every key that a script sets, in the pipeline that runs the
// script. The server ends keys by its own clock, which has nothing to do with the time that a test
// chooses, and a test that stands still for a second must not lose them.
type keepKeys struct{ rdb *redis.Client }

func (k keepKeys) DialHook(next redis.DialHook) redis.DialHook { return next }

func (k keepKeys) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if len(keysOf(cmd)) == 0 {
			return next(ctx, cmd)
		}
		pipe := k.rdb.Pipeline()
		_ = pipe.Process(ctx, cmd)
		_, _ = pipe.Exec(ctx)
		return cmd.Err()
	}
}

func (k keepKeys) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		all := slices.Clone(cmds)
		for _, cmd := range cmds {
			for _, key := range keysOf(cmd) {
				all = append(all, redis.NewCmd(ctx, "persist", key))
			}
		}
		return next(ctx, all)
	}
}

// keysOf returns the keys of a script, and none for another command.
func keysOf(cmd redis.Cmder) []any {
	args := cmd.Args()
	if cmd.Name() != "evalsha" && cmd.Name() != "eval" {
		return nil
	}
	n, err := strconv.Atoi(fmt.Sprint(args[2]))
	if err != nil {
		panic(err)
	}
	return args[3 : 3+n]
}

// trio is one bucket three times: in real Redis, in miniredis, and as protocol.Bucket. Every step is done to
// all of them at one server time, and then all of them must have answered alike and hold the same state.
type trio struct {
	t      testing.TB
	rng    *rand.Rand
	stores []*Store // those that are not the reference, the authority first
	server *miniredis.Miniredis
	bucket protocol.Bucket

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
	draws      float64        // the part of all calls that are draws
	windows    bool           // some limits are windows
	few        []lease.Limit  // all limits of a round in which they leave and come back
	many       bool           // they are more than a bucket remembers
	calm       bool           // nothing happens that keeps a bucket in the long form for good
	log        []string       // the last steps, for the failure
}

type snapshot struct {
	bucket *protocol.Bucket
	texts  texts
}

// TestScriptsAgreeWithReference: given random but lifelike calls, when real Redis, miniredis and
// protocol.Bucket execute the same ones at the same times, then replies and state are equal to the last bit.
func TestScriptsAgreeWithReference(t *testing.T) {
	// The race detector makes miniredis four times as slow; what it watches shows in fewer calls.
	all, most := testkit.PlainOrRace(20_000, 4_000), 4_000
	long := testkit.Long(t, "4000 calls, a quarter of them of miniredis too", fmt.Sprint(all, " calls"))
	if long {
		most = all
	}
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
				x := servers.trio(t, rand.New(rand.NewPCG(seed, round)), clientTime, round%3 == 0)
				if !long && round%4 > 0 { // miniredis is slow
					x.stores = x.stores[:1]
				}
				for range steps {
					x.step()
				}
				for k, n := range x.count {
					total[k] += n
				}
			}
			t.Log(total)
			if testkit.RaceEnabled || !long {
				return // the counts of so few calls are luck
			}
			testkit.Check(t, total["error"] <= total["call"]/25, "too many calls did not reach a script")
			// Random calls that are all void would compare little.
			for what, least := range map[string]int{"known": calls / 4, "granted": calls / (2 * granted),
				"void": calls / 500, "retry": calls / 500, "stale": calls / 2000, "short": calls / 200,
				"configured": calls / 1000, "evicted": calls / 2000, "lost": calls / 20_000, "failover": calls / 20_000,
				"loss": calls / 2000, "unused": calls / 5000, "rearranged": calls / 20_000, "grew": calls / 2000,
				"shrunk": calls / 8000, "back": calls / 5000, "turned": calls / 5000, "owed": calls / 500,
				"drawn at rest": calls / 20_000, "drawn in short": calls / 1000, "leased at rest": calls / 20_000,
				"fast": calls / 10_000, "dated at rest": calls / 5000, "made fast": calls / 20_000,
				"windowed": calls / 100, "charged": calls / 4000, "dropped": calls / 4000, "a new period": calls / 4000,
				"cells": calls / 4000, "of another kind": calls / 20_000,
				"a window went on": calls / 5000, "a new limit of a newer version": calls / 5000,
				"a new limit in a turn": calls / 20_000, "a bucket of another per": calls / 5000,
				"heard ahead": calls / 20_000, "late": calls / 5000,
				"ahead": calls / 4000} {
				// the server's own time passes too slowly, and never goes back
				fits := clientTime || !slices.Contains([]string{"shrunk", "back", "turned",
					"drawn at rest", "dated at rest", "leased at rest",
					"a new period", "of another kind", "heard ahead", "ahead",
					"a new limit in a turn"}, what)
				testkit.Check(t, !fits || total[what] >= least, "%s: %d times, want %d", what, total[what], least)
			}
		})
	}
}

// trio returns a bucket on these servers and as protocol.Bucket, with nothing stored yet, and some holders.
func (s *servers) trio(t testing.TB, rng *rand.Rand, clientTime, windows bool) *trio {
	t.Helper()
	x := &trio{t: t, rng: rng, key: "any}", clientTime: clientTime, windows: windows, server: s.fake,
		births: make(map[int64]bool), count: make(map[string]int)}
	for _, rdb := range s.clients {
		testkit.NoErr(t, rdb.FlushAll(context.Background()).Err())
		on := storeOn(t, rdb)
		on.found.Store(foundEnough) // so that draws travel together
		if clientTime {
			on.now = func() string { return strconv.FormatInt(x.now, 10) }
		}
		x.stores = append(x.stores, on)
	}
	x.now = 1_700_000_000_000_000 + rng.Int64N(1e12)
	if clientTime && rng.IntN(4) == 0 {
		x.now = rng.Int64N(1000) // near the start of time
	}
	x.populate()
	return x
}

// call gives one request to all three and returns the reference's answer.
func (x *trio) call(r lease.Request) (lease.Grant, error) {
	x.t.Helper()
	x.logf("call at %d: %+v", x.now, r)
	var want lease.Grant
	var wantErr error
	before := x.bucket.Dump()
	together := r.Draw && x.rng.IntN(2) == 0 // with one of another key
	for i, s := range x.stores {
		one := []*lease.Call{{Key: x.key, Request: r}, {Key: "beside", Request: r}}
		if !together {
			one = one[:1]
		}
		exchangeAll(s, one)
		got, gotErr := one[0].Grant, one[0].Err
		if i == 0 {
			if !x.clientTime && gotErr == nil {
				x.at(got.ServerTime)
			}
			wantErr = x.bucket.Call(x.now, &r, &want)
		}
		x.same(i, want, wantErr, got, gotErr)
	}
	x.compare()
	after := x.bucket.Dump()
	x.births[after.Created] = true
	for what, happened := range map[string]bool{
		"grew": after.Config.TTL > before.Config.TTL,
		"shrunk": after.Config.TTL < before.Config.TTL &&
			after.Config.Version == before.Config.Version,
		"loss": after.Frozen > before.Frozen, "back": after.Clock < before.Clock,
		"turned": !slices.Equal(after.Config.Limits, before.Config.Limits) &&
			after.Config.Version == before.Config.Version,
		"owed":           slices.Min(after.Level[:]) < 0,
		"drawn at rest":  r.Draw && atRest(after) && !atRest(before),
		"drawn in short": atRest(after) && atRest(before),
		"leased at rest": atRest(before) && !atRest(after) && !r.Draw,
		"fast": atRest(before) && atRest(after) && !dated(after) && len(after.Config.Limits) == 1 &&
			len(appendRequest(nil, &r)) < requestSize,
		"dated at rest": atRest(after) && dated(after),
		"unused": wantErr == nil && !want.Void && slices.ContainsFunc(r.Late, func(l lease.Late) bool {
			return l.Kind == lease.LateUnused && l.Drawn > after.SetAt && l.Drawn <= after.Now
		}) && after.Now >= after.Frozen,
	} {
		x.saw(what, happened && before.Exists && before.Created == after.Created)
	}
	if before.Exists && before.Created == after.Created {
		x.sawWindows(&before, &after)
		x.sawChanges(&before, &after)
		x.saw("heard ahead", after.Frozen > before.Frozen && r.HeardAt > x.now)
		x.saw("late", wantErr == nil && r.Epoch > 0 && r.Epoch < before.Epoch && after.Frozen == before.Frozen &&
			r.HeardAt+r.HeardExpiry.Microseconds() <= before.Created)
	}
	x.saw("made fast", !before.Exists && atRest(after) && r.Draw && len(appendRequest(nil, &r)) < requestSize)
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
	x.saw("configured", true)
	var want lease.State
	var wantErr error
	for i, s := range x.stores {
		got, gotErr := s.Configure(context.Background(), x.key, op, c)
		if i == 0 {
			if !x.clientTime && got.Exists {
				x.at(got.ServerTime)
			}
			want, wantErr = x.bucket.Configure(x.now, op, c)
		}
		x.same(i, want, wantErr, got, gotErr)
	}
	x.compare()
	x.births[x.bucket.Dump().Created] = true
	if wantErr == nil && want.Exists && x.clientTime {
		x.looks(want)
	}
}

// same compares the answer of store i with the reference's.
func (x *trio) same(i int, want any, wantErr error, got any, gotErr error) {
	x.t.Helper()
	for _, sentinel := range []error{lease.ErrStale, lease.ErrInvalidRequest, lease.ErrInvalidConfig} {
		if errors.Is(wantErr, sentinel) && errors.Is(gotErr, sentinel) {
			return
		}
	}
	if wantErr != nil || gotErr != nil || !reflect.DeepEqual(want, got) {
		x.fatalf("%s answers otherwise:\nwant %+v, %v\ngot  %+v, %v", x.nameOf(i), want, wantErr, got, gotErr)
	}
}

// compare compares the stored state of all three.
func (x *trio) compare() {
	x.t.Helper()
	dump := x.bucket.Dump()
	want := dumped(x.t, dump)
	for i, s := range x.stores {
		if diff := textsOf(x.t, s, x.key, x.names...).differs(want); diff != "" {
			x.fatalf("%s holds otherwise:\n%s", x.nameOf(i), diff)
		}
	}
	if dump.Exists {
		read, err := parseBucket(marked(want.state))
		dump.Records, read.Records = nil, nil
		if err != nil || !reflect.DeepEqual(read, dump) {
			x.fatalf("read back otherwise: %v\nwant %+v\ngot  %+v", err, dump, read)
		}
	}
}

// eachKey does something to the keys of the bucket and of all records.
func (x *trio) eachKey(s *Store, do func(pipe redis.Pipeliner, key string)) {
	x.t.Helper()
	bucket, pipe := s.bucketKey(x.key), s.rdb.Pipeline()
	do(pipe, bucket)
	for _, h := range x.names {
		do(pipe, recordKey(bucket, h))
	}
	_, err := pipe.Exec(context.Background())
	testkit.NoErr(x.t, err)
}

// evict drops one holder's record everywhere, as a server under memory pressure may.
func (x *trio) evict(holder string) {
	x.logf("evicted %s", holder)
	x.saw("evicted", true)
	for _, s := range x.stores {
		testkit.NoErr(x.t, s.rdb.Del(context.Background(), recordKey(s.bucketKey(x.key), holder)).Err())
	}
	x.bucket.DropRecord(holder)
}

// lose drops the bucket everywhere and leaves the records behind, as eviction may.
func (x *trio) lose() {
	x.logf("lost the bucket")
	x.saw("lost", true)
	for _, s := range x.stores {
		testkit.NoErr(x.t, s.rdb.Del(context.Background(), s.bucketKey(x.key)).Err())
	}
	x.bucket = protocol.Bucket{}
	x.fresh()
}

// save remembers everything; restore goes back to it, as the promotion of a replica that lagged behind does.
func (x *trio) save() {
	x.logf("saved")
	x.saved = &snapshot{x.bucket.Clone(), textsOf(x.t, x.stores[0], x.key, x.names...)}
}

func (x *trio) restore() {
	x.logf("restored")
	x.saw("failover", true)
	for _, s := range x.stores {
		x.eachKey(s, func(pipe redis.Pipeliner, key string) { pipe.Del(context.Background(), key) })
		x.saved.texts.put(x.t, s, x.key)
	}
	x.bucket = *x.saved.bucket.Clone()
}

// nameOf returns the name of store i.
func (x *trio) nameOf(i int) string {
	if i == len(x.stores)-1 {
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
	x.t.Fatalf("%s\n%s", strings.Join(x.log, "\n"), fmt.Sprintf(format, args...))
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
			x := startServers(t).trio(t, rand.New(rand.NewPCG(1, 1)), true, false)
			config := lease.Policy{Weight: c.weight}.ConfigFor([]lease.Limit{c.limit}, 0,
				100*time.Millisecond)
			x.names, x.now = []string{"a"}, 1_700_000_000_000_000
			held := int64(0)
			for i := int64(1); i < 5; i++ {
				g, err := x.call(lease.Request{Holder: "a", Seq: i, Config: config, Want: 5, Weight: c.weight,
					Remaining: held})
				testkit.Check(t, err == nil && g.Granted == 5, "call %d: %+v, %v", i, g, err)
				held += g.Granted
				x.now += 1000
			}
		})
	}
}

// TestTheTargetOfAFleetAgrees: how long leases and pauses are in fleets on both sides of each bound of the
// rule (docs/protocol.md 7.8), with a budget and without.
func TestTheTargetOfAFleetAgrees(t *testing.T) {
	servers := startServers(t)
	for i, x := range []struct{ burst, budget int64 }{
		{200, 0}, {1000, 0}, {1000, 40}, {2000, 0}, {2100, 0}, {10_000, 0},
	} {
		burst, policy := x.burst, lease.Policy{CallsPerSecond: x.budget}
		// given fleets of one to 60 holders that each take a part of the burst
		x := servers.trio(t, rand.New(rand.NewPCG(2, uint64(i))), true, false)
		x.names, x.now = nil, 1_700_000_000_000_000
		c := policy.ConfigFor([]lease.Limit{lease.PerSecond(1000).WithBurst(burst)}, 0, 0)
		c.TTL = 2 * time.Second
		for n := range int64(60) {
			x.now += 1500
			name := fmt.Sprint("holder", n)
			x.names = append(x.names, name)
			want := burst / 4
			// when one more calls, and is granted less than it wants, then all servers say for how long.
			_, err := x.call(lease.Request{Holder: name, Seq: 1, Config: c, Weight: 1, Want: want, Need: want / 2,
				Waiting: want})
			testkit.NoErr(t, err)
		}
	}
}

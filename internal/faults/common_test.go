package faults

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

const key = "k"

// busy is the limit of most tests under load. Its burst lasts 2 s at its rate, so every process
// that calls now and then still knows the bucket when it is lost (a holder forgets a bucket before
// Redis may).
var busy = hybrid.PerSecond(1000).WithBurst(2000)

// hourly refills so slowly that tokens can be counted one by one.
var hourly = hybrid.PerHour(100)

// denying admits nothing without the store, so that the promise holds through outages too. strict
// is denying, and spends no lease that has ended, even on a machine so busy that timers come late.
var (
	denying = hybrid.Policy{Fallback: hybrid.FallbackDeny}
	strict  = hybrid.Policy{Fallback: hybrid.FallbackDeny, StrictExpiry: true}
)

// patient is a configuration for tests that count tokens: a machine that stalls makes it wait, and
// denies nothing.
func patient(limit hybrid.Limit, p hybrid.Policy) hybrid.Config {
	p.TTL = 2 * time.Second // the default would follow CallTimeout
	return hybrid.Config{Limits: []hybrid.Limit{limit}, Policy: p, CallTimeout: 20 * time.Second}
}

// saturated is a fleet that denies without the store and is asked for six times its rate, whose
// burst is used up.
func saturated(t *testing.T, size int, addr string) (*Fleet, *Load) {
	t.Helper()
	f := NewFleet(t, Options{Size: size, Addr: addr, Config: hybrid.Config{Limits: []hybrid.Limit{busy},
		Policy: denying}})
	load := f.Load(key, 6*int(busy.Tokens)/size)
	f.Warm()
	testkit.Eventually(t, "the burst is used up",
		func() bool { return f.State(key).Levels[0] < busy.Burst/10 })
	return f, load
}

// behindProxy is a server and a proxy before it.
func behindProxy(t *testing.T) (*redistest.Server, *redistest.Proxy) {
	t.Helper()
	server := redistest.Start(t)
	return server, redistest.NewProxy(t, server.Addr)
}

// client is the operator's own connection.
func client(t *testing.T, addr string) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

// do is a command that must succeed.
func do(t *testing.T, rdb *redis.Client, args ...any) any {
	t.Helper()
	v, err := rdb.Do(context.Background(), args...).Result()
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return v
}

func set(t *testing.T, rdb *redis.Client, parameter, value string) {
	t.Helper()
	do(t, rdb, "CONFIG", "SET", parameter, value)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// storeOn is a store over rdb, which is closed with the test.
func storeOn(t testing.TB, rdb redis.UniversalClient) *redisbucket.Store {
	t.Helper()
	t.Cleanup(func() { rdb.Close() })
	s, err := redisbucket.New(rdb, redisbucket.Config{})
	must(t, err)
	return s
}

// bucketOf is the Redis key of the bucket of a plain name.
func bucketOf(name string) string { return "yuzhi:{" + name + "}" }

// raw is what common.lua stores of a bucket, as far as Inspect does not tell; times in
// microseconds.
type raw struct {
	exists                 bool
	epoch, created, frozen int64
}

func rawOf(t *testing.T, rdb *redis.Client, name string) raw {
	t.Helper()
	text, err := rdb.Get(context.Background(), bucketOf(name)).Result()
	if err == redis.Nil {
		return raw{}
	}
	if err != nil || len(text) < 8*9 {
		t.Fatalf("%q is not a bucket: %v", text, err)
	}
	number := func(i int) int64 { return int64(math.Float64frombits(binary.LittleEndian.Uint64([]byte(text[8*i:])))) }
	return raw{exists: true, created: number(0), epoch: number(1), frozen: number(5)}
}

// contents is every key of the database and its value, without the time that it has left.
func contents(t *testing.T, rdb *redis.Client) string {
	t.Helper()
	ctx := context.Background()
	keys, err := rdb.Keys(ctx, "*").Result()
	must(t, err)
	slices.Sort(keys)
	var b strings.Builder
	for _, k := range keys {
		fmt.Fprintf(&b, "%q %s %q %v %v\n", k, rdb.Type(ctx, k).Val(), rdb.Get(ctx, k).Val(),
			rdb.HGetAll(ctx, k).Val(),
			rdb.LRange(ctx, k, 0, -1).Val())
	}
	return b.String()
}

// diary is the log that an operator reads.
type diary struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (d *diary) logger() *slog.Logger { return slog.New(slog.NewTextHandler(d, nil)) }

// Write implements io.Writer.
func (d *diary) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.text.Write(p)
}

func (d *diary) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.text.String()
}

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
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

const key = "k"

// busy is the limit of the tests under load. Its burst lasts 2 s at its rate, so every process that calls now and then
// still knows the bucket when it is lost (a holder forgets a bucket a little before Redis may).
var busy = hybrid.PerSecond(1000).WithBurst(2000)

// hourly refills so slowly that tokens can be counted one by one.
var hourly = hybrid.PerHour(100)

// denying admits nothing without the store, so that the promise holds through outages too.
var denying = hybrid.Policy{Fallback: hybrid.FallbackDeny}

// patient is a configuration for tests that count tokens: a machine that stalls makes it wait, and denies nothing.
func patient(limit hybrid.Limit, p hybrid.Policy) hybrid.Config {
	p.TTL = 2 * time.Second // the default would follow CallTimeout
	return hybrid.Config{Limits: []hybrid.Limit{limit}, Policy: p, CallTimeout: 20 * time.Second}
}

// saturated is a fleet under six times its rate, whose burst is used up.
func saturated(t *testing.T, o Options) (*Fleet, *Load) {
	t.Helper()
	o.Config.Limits = []hybrid.Limit{busy}
	f := NewFleet(t, o)
	load := f.Load(key, 6*int(busy.Tokens)/o.Size)
	f.Warm()
	testkit.Eventually(t, "the burst is used up", func() bool { return f.State(key).Levels[0] < busy.Burst/10 })
	return f, load
}

// drain asks limiter i for one token of name after another and returns how many there were.
func drain(f *Fleet, i int, name string) (admitted int64) {
	for f.Ask(name, func() bool { return f.Limiters[i].Allow(name) }) {
		admitted++
	}
	return admitted
}

// client is the operator's own connection.
func client(t *testing.T, addr string) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

func inspector(t *testing.T, rdb *redis.Client) *redisbucket.Store {
	t.Helper()
	s, err := redisbucket.New(rdb, redisbucket.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// bucketOf is the Redis key of the bucket of a plain name.
func bucketOf(name string) string { return "yuzhi:{" + name + "}" }

// raw is what common.lua stores of a bucket, as far as Inspect does not tell; times in microseconds.
type raw struct {
	exists                      bool
	epoch, created, frozen, ttl int64
}

func rawOf(t *testing.T, rdb *redis.Client, name string) raw {
	t.Helper()
	text, err := rdb.Get(context.Background(), bucketOf(name)).Result()
	if err == redis.Nil {
		return raw{}
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(text) < 8*9 {
		t.Fatalf("%q is not a bucket", text)
	}
	number := func(i int) int64 { return int64(math.Float64frombits(binary.LittleEndian.Uint64([]byte(text[8*i:])))) }
	return raw{exists: true, created: number(0), epoch: number(1), frozen: number(5), ttl: number(8)}
}

// contents is every key of the database and its value, without the time that it has left.
func contents(t *testing.T, rdb *redis.Client) string {
	t.Helper()
	ctx := context.Background()
	keys, err := rdb.Keys(ctx, "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(keys)
	var b strings.Builder
	for _, k := range keys {
		kind := rdb.Type(ctx, k).Val()
		fmt.Fprintf(&b, "%q %s ", k, kind)
		switch kind {
		case "hash":
			fmt.Fprintln(&b, rdb.HGetAll(ctx, k).Val())
		case "list":
			fmt.Fprintln(&b, rdb.LRange(ctx, k, 0, -1).Val())
		default:
			fmt.Fprintln(&b, rdb.Get(ctx, k).Val())
		}
	}
	return b.String()
}

func set(t *testing.T, rdb *redis.Client, parameter, value string) {
	t.Helper()
	if err := rdb.ConfigSet(context.Background(), parameter, value).Err(); err != nil {
		t.Fatal(err)
	}
}

// diary keeps what an operator reads in the log.
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

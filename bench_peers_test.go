package yuzhi_test

import (
	"context"
	"flag"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// What the benchmarks on a real server measure is a rate or a percentile over time, so they run for a time of their
// own and not for b.N decisions: with the default -benchtime once, with one that is given as a count (1x, 10x: a smoke
// run) for a quarter of that time, once for each b.N that the testing package tries.
func span(full time.Duration) time.Duration {
	if f := flag.Lookup("test.benchtime"); f != nil && strings.HasSuffix(f.Value.String(), "x") {
		return full / 4
	}
	return full
}

// dial is a client of the server that gives each of so many callers a connection of its own.
func dial(b *testing.B, addr string, callers int) *redis.Client {
	b.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr, PoolSize: callers})
	b.Cleanup(func() { rdb.Close() })
	return rdb
}

// onRedis is a Limiter on the server at addr, and its store.
func onRedis(b *testing.B, addr string, cfg hybrid.Config) (*hybrid.Limiter, lease.Store) {
	b.Helper()
	store, err := redisbucket.New(dial(b, addr, 0), redisbucket.Config{})
	if err != nil {
		b.Fatal(err)
	}
	return limiterOn(b, store, cfg), store
}

func limiterOn(b *testing.B, store lease.Store, cfg hybrid.Config) *hybrid.Limiter {
	b.Helper()
	l, err := hybrid.New(store, cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	return l
}

// scriptCalls is how many scripts clients have had the server run. What a script calls in its turn does not count,
// as INFO commandstats counts it under the name of the command.
func scriptCalls(b *testing.B, rdb *redis.Client) int64 {
	b.Helper()
	info, err := rdb.Info(context.Background(), "commandstats").Result()
	if err != nil {
		b.Fatal(err)
	}
	sum := int64(0)
	for line := range strings.Lines(info) {
		name, rest, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if name != "evalsha" && name != "eval" {
			continue
		}
		calls, _, _ := strings.Cut(rest, ",")
		n, err := strconv.ParseInt(calls, 10, 64)
		if err != nil {
			b.Fatal(line, err)
		}
		sum += n
	}
	return sum
}

// contender is one limiter, and what it has done so far.
type contender struct {
	name       string
	goroutines int
	allow      func() bool
	stride     int           // decisions between two looks at whether the turn is over
	settle     time.Duration // after a turn, what it still has to say to the server is its own

	admitted int64
	commands int64
	spent    time.Duration
}

// turn lets all goroutines of c decide for d.
func (c *contender) turn(b *testing.B, rdb *redis.Client, d time.Duration) {
	b.Helper()
	before := scriptCalls(b, rdb)
	var over atomic.Bool
	var admitted, denied atomic.Int64
	var wg sync.WaitGroup
	from := time.Now()
	defer time.AfterFunc(d, func() { over.Store(true) }).Stop()
	for range c.goroutines {
		wg.Go(func() {
			n := int64(0)
			defer func() { admitted.Add(n) }()
			for !over.Load() {
				for range c.stride {
					if !c.allow() {
						denied.Add(1)
						return
					}
					n++
				}
			}
		})
	}
	wg.Wait()
	c.spent += time.Since(from)
	c.admitted += admitted.Load()
	if n := denied.Load(); n > 0 {
		b.Fatalf("%s: %d goroutines were denied, though the limit is never reached", c.name, n)
	}
	time.Sleep(c.settle)
	c.commands += scriptCalls(b, rdb) - before
}

func (c *contender) perSecond() float64 { return float64(c.admitted) / c.spent.Seconds() }

// perThousand is Redis commands per 1,000 admissions.
func (c *contender) perThousand() float64 { return float64(c.commands) / float64(c.admitted) * 1000 }

// perRequest is the token bucket that every request calls, as short as it can be: the lower bound of what a limiter
// without leases costs.
var perRequest = redis.NewScript(`
local rate, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local bucket = redis.call('HMGET', KEYS[1], 'level', 'at')
local level = tonumber(bucket[1]) or burst
level = math.min(burst, level + (now - (tonumber(bucket[2]) or now)) * rate / 1000000)
if level < 1 then return 0 end
redis.call('HSET', KEYS[1], 'level', level - 1, 'at', now)
redis.call('PEXPIRE', KEYS[1], math.ceil(burst / rate * 1000) + 1000)
return 1`)

// Three limiters on one server, in turns within one run, everything admitted. The ratio is decisions per second
// against redis_rate. Both peers are saturated by 64 goroutines with a connection each; ours runs one on each core.
// commands/1000 are the EVALSHA and EVAL that clients sent (INFO commandstats) for 1,000 admissions.
func BenchmarkAgainstPeers(b *testing.B) {
	const (
		goroutines = 64
		turns      = 3
		// perSecond is more than a server can run scripts, and coarse enough for the peers' floating point.
		perSecond = 1_000_000
		// target is the default one.
		target = 100 * time.Millisecond
	)
	addr := redistest.Start(b).Addr
	ctx := context.Background()
	rdb := dial(b, addr, goroutines)
	ours, _ := onRedis(b, addr, hybrid.Config{
		Limits: []hybrid.Limit{hybrid.PerSecond(10_000_000_000)},
		// Nothing is admitted but by the bucket, and a machine that stalls does not turn a wait into a denial.
		Policy:      hybrid.Policy{Target: target, TTL: 4 * target, Fallback: hybrid.FallbackDeny},
		CallTimeout: 10 * time.Second,
	})
	key := ours.Key("ours")
	rater, limit := redis_rate.NewLimiter(rdb), redis_rate.PerSecond(perSecond)
	contenders := []*contender{
		{name: "yuzhi", goroutines: runtime.GOMAXPROCS(0), allow: key.Allow, stride: 1000, settle: 3 * target},
		{name: "redis_rate", goroutines: goroutines, stride: 1, allow: func() bool {
			r, err := rater.Allow(ctx, "rate", limit)
			return err == nil && r.Allowed == 1
		}},
		{name: "per-request", goroutines: goroutines, stride: 1, allow: func() bool {
			n, err := perRequest.Run(ctx, rdb, []string{"bucket"}, perSecond, perSecond).Int()
			return err == nil && n == 1
		}},
	}
	for _, c := range contenders {
		c.allow() // connects, and loads the script
	}
	b.ResetTimer()
	for range turns {
		for _, c := range contenders {
			c.turn(b, rdb, span(time.Second/2))
		}
	}
	b.StopTimer()
	for _, c := range contenders {
		b.ReportMetric(c.perSecond(), c.name+"-decisions/s")
		b.ReportMetric(c.perThousand(), c.name+"-commands/1000")
	}
	b.ReportMetric(contenders[0].perSecond()/contenders[1].perSecond(), "ratio")
	b.ReportMetric(contenders[0].perSecond()/contenders[2].perSecond(), "ratio-to-per-request")
	b.ReportMetric(0, "ns/op")
}

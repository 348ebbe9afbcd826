package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-chi/httprate"
	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"
	"golang.org/x/time/rate"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// asker asks a limiter about one request for key.
type asker func(key string) (admitted bool, err error)

// peer is one limiter in the evaluation. Each call of open makes an instance with a Redis client of its own.
type peer struct {
	name  string
	kind  lease.Kind // KindSliding for a peer that counts requests per window, otherwise a token bucket
	local bool       // each process has the whole limit
	open  func(s *site, l limit, o redis.Options) asker
}

// limit is a token bucket.
type limit struct {
	tokens, burst int64
	per           time.Duration
}

func perSecond(tokens, burst int64) limit { return limit{tokens, burst, time.Second} }

// window returns the time in which the bucket fills. A peer that counts requests per window gets a window of
// this length.
func (l limit) window() time.Duration {
	return time.Duration(float64(l.per) * float64(l.burst) / float64(l.tokens))
}

func (l limit) lease() lease.Limit { return lease.Limit{Tokens: l.tokens, Per: l.per, Burst: l.burst} }

// The names of some peers in the tables.
const (
	own       = "yuzhi"
	ownSafe   = "yuzhi, FallbackDeny and StrictExpiry"
	ownDeny   = "yuzhi, FallbackDeny"
	ownShare  = "yuzhi, FallbackLocalShare (default)"
	reference = "redis_rate"
)

// fleetwide lists the peers whose processes share a limit. The first two are yuzhi and the reference.
var fleetwide = []peer{
	{name: own, open: yuzhi(hybrid.Policy{})},
	{name: reference, open: redisRate},
	{name: "throttled", open: throttledGCRA},
	{name: "ulule/limiter", kind: lease.KindSliding, open: ulule},
	{name: "httprate with a Redis counter", kind: lease.KindSliding, open: httprateRedis},
	{name: "token bucket in Lua", open: luaBucket},
}

// local lists the peers that limit a single process.
var local = []peer{
	{name: "x/time/rate, one for each key", local: true, open: timeRate},
	{name: "sethvargo/go-limiter in memory", local: true, kind: lease.KindSliding, open: goLimiter},
}

func yuzhi(policy hybrid.Policy) func(*site, limit, redis.Options) asker {
	return func(s *site, l limit, o redis.Options) asker {
		limiter := s.yuzhi(l, policy, o)
		return func(key string) (bool, error) { return limiter.Allow(key), nil }
	}
}

// yuzhi returns a limiter with default settings except policy. s.leave closes the limiter.
func (s *site) yuzhi(l limit, policy hybrid.Policy, o redis.Options) *hybrid.Limiter {
	store, err := redisbucket.New(s.client(o), redisbucket.Config{})
	testkit.NoErr(s, err)
	limiter, err := hybrid.New(store, hybrid.Config{
		Limits: []hybrid.Limit{l.lease()}, Policy: policy, Logger: slog.New(slog.DiscardHandler),
	})
	testkit.NoErr(s, err)
	s.closers = append(s.closers, limiter.Close)
	return limiter
}

func redisRate(s *site, l limit, o redis.Options) asker {
	limiter := redis_rate.NewLimiter(s.client(o))
	most := redis_rate.Limit{Rate: int(l.tokens), Burst: int(l.burst), Period: l.per}
	return func(key string) (bool, error) {
		r, err := limiter.Allow(context.Background(), key, most)
		return err == nil && r.Allowed == 1, err
	}
}

func throttledGCRA(s *site, l limit, o redis.Options) asker {
	store, err := goredisstore.NewCtx(s.client(o), "throttled:")
	testkit.NoErr(s, err)
	limiter, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
		MaxRate: throttled.PerDuration(int(l.tokens), l.per), MaxBurst: int(l.burst) - 1,
	})
	testkit.NoErr(s, err)
	return func(key string) (bool, error) {
		limited, _, err := limiter.RateLimitCtx(context.Background(), key, 1)
		return err == nil && !limited, err
	}
}

func ulule(s *site, l limit, o redis.Options) asker {
	store, err := ululeredis.NewStore(s.client(o))
	testkit.NoErr(s, err)
	counter := limiter.New(store, limiter.Rate{Period: l.window(), Limit: l.burst})
	return func(key string) (bool, error) {
		c, err := counter.Get(context.Background(), key)
		return err == nil && !c.Reached, err
	}
}

// httprateRedis limits by httprate's OnLimit, without headers. The counter and its defaults are modelled on
// go-chi/httprate-redis.
func httprateRedis(s *site, l limit, o redis.Options) asker {
	const timeout = 250 * time.Millisecond
	o.ReadTimeout, o.WriteTimeout, o.DialTimeout = timeout, timeout, 2*timeout
	o.PoolSize, o.MaxRetries = 10, -1
	counter := &windowCounter{client: s.client(o), instead: httprate.NewLocalLimitCounter(l.window())}
	limiter := httprate.NewRateLimiter(int(l.burst), l.window(), httprate.WithLimitCounter(counter),
		httprate.WithResponseHeaders(httprate.ResponseHeaders{}))
	return func(key string) (bool, error) {
		return !limiter.OnLimit(nil, &http.Request{}, key), nil // OnLimit writes no response
	}
}

// windowCounter is an httprate.LimitCounter that has a Redis counter for each window. After an error, a local
// counter replaces Redis until Redis answers a PING, which windowCounter sends every 200 ms.
type windowCounter struct {
	client  *redis.Client
	length  time.Duration
	instead httprate.LimitCounter
	away    atomic.Bool
}

func (c *windowCounter) Config(most int, length time.Duration) {
	c.length = length
	c.instead.Config(most, length)
}

func (c *windowCounter) Increment(key string, window time.Time) error {
	return c.IncrementBy(key, window, 1)
}

func (c *windowCounter) IncrementBy(key string, window time.Time, n int) error {
	if !c.away.Load() {
		_, err := c.client.TxPipelined(context.Background(), func(p redis.Pipeliner) error {
			p.IncrBy(context.Background(), name(key, window), int64(n))
			p.Expire(context.Background(), name(key, window), 3*c.length)
			return nil
		})
		if err == nil {
			return nil
		}
		c.leave()
	}
	return c.instead.IncrementBy(key, window, n)
}

func (c *windowCounter) Get(key string, window, before time.Time) (now, then int, err error) {
	if !c.away.Load() {
		values, err := c.client.MGet(context.Background(), name(key, window), name(key, before)).Result()
		if err == nil {
			return count(values[0]), count(values[1]), nil
		}
		c.leave()
	}
	return c.instead.Get(key, window, before)
}

func (c *windowCounter) leave() {
	if c.away.Swap(true) {
		return
	}
	go func() {
		for {
			time.Sleep(200 * time.Millisecond)
			err := c.client.Ping(context.Background()).Err()
			c.away.Store(err != nil)
			if err == nil || errors.Is(err, redis.ErrClosed) {
				return
			}
		}
	}()
}

func name(key string, window time.Time) string {
	return "httprate:" + strconv.FormatUint(httprate.LimitCounterKey(key, window), 10)
}

func count(value any) int {
	text, _ := value.(string) // a window without requests has no counter in Redis
	n, _ := strconv.Atoi(text)
	return n
}

// bucketScript is a minimal token bucket, which shows the least cost of one call per request.
var bucketScript = redis.NewScript(`
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

func luaBucket(s *site, l limit, o redis.Options) asker {
	client, rate := s.client(o), float64(l.tokens)/l.per.Seconds()
	return func(key string) (bool, error) {
		keys := []string{"bucket:" + key}
		n, err := bucketScript.Run(context.Background(), client, keys, rate, l.burst).Int()
		return n == 1, err
	}
}

func timeRate(_ *site, l limit, _ redis.Options) asker {
	var limiters sync.Map
	return func(key string) (bool, error) {
		limiter, ok := limiters.Load(key)
		if !ok {
			each := rate.NewLimiter(rate.Limit(float64(l.tokens)/l.per.Seconds()), int(l.burst))
			limiter, _ = limiters.LoadOrStore(key, each)
		}
		return limiter.(*rate.Limiter).Allow(), nil
	}
}

func goLimiter(s *site, l limit, _ redis.Options) asker {
	store, err := memorystore.New(&memorystore.Config{Tokens: uint64(l.burst), Interval: l.window()})
	testkit.NoErr(s, err)
	s.closers = append(s.closers, func() error { return store.Close(context.Background()) })
	return func(key string) (bool, error) {
		_, _, _, ok, err := store.Take(context.Background(), key)
		return ok, err
	}
}

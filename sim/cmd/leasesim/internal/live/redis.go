package live

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// Redis is the server that a fleet shares. It may be used from any goroutine until Close.
type Redis struct {
	Name  string // for people
	Addr  string // host:port
	close func()
}

// Open checks the Redis at addr, or starts an embedded one where addr is empty. The caller closes it.
func Open(ctx context.Context, addr string) (*Redis, error) {
	redis.SetLogger(silent{}) // the error says it once
	if addr == "" {
		m := miniredis.NewMiniRedis()
		m.ClockTTL(true)
		if err := m.Start(); err != nil {
			return nil, fmt.Errorf("leasesim: embedded Redis: %w", err)
		}
		return &Redis{Name: "embedded (miniredis)", Addr: m.Addr(), close: m.Close}, nil
	}
	rdb := client(addr)
	defer rdb.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	info, err := rdb.InfoMap(ctx, "server").Result()
	if err != nil {
		return nil, fmt.Errorf("leasesim: Redis at %s does not answer: %w", addr, err)
	}
	return &Redis{Name: addr + " (" + info["Server"]["redis_version"] + ")", Addr: addr, close: func() {}}, nil
}

// Close ends an embedded Redis.
func (r *Redis) Close() { r.close() }

// served is what a server has done for EVALSHA, the command of lease calls.
type served struct {
	calls int64
	time  time.Duration
}

// served asks the server. The answer is zero where it does not say, as the embedded one.
func (r *Redis) served(ctx context.Context) (s served) {
	rdb := client(r.Addr)
	defer rdb.Close()
	info, err := rdb.InfoMap(ctx, "commandstats").Result()
	if err != nil {
		return s
	}
	var us int64
	for _, section := range info {
		// calls=1040,usec=31190,usec_per_call=29.99,...
		if _, err := fmt.Sscanf(strings.ReplaceAll(section["cmdstat_evalsha"], ",", " "), "calls=%d usec=%d", &s.calls, &us); err == nil {
			s.time = time.Duration(us) * time.Microsecond
		}
	}
	return s
}

// since is the mean time of a call since before; 0 if there was none.
func (s served) since(before served) time.Duration {
	if s.calls <= before.calls {
		return 0
	}
	return (s.time - before.time) / time.Duration(s.calls-before.calls)
}

func client(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialTimeout: 3 * time.Second, ContextTimeoutEnabled: true})
}

// silent drops go-redis's own log lines.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

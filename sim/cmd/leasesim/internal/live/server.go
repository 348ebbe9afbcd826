package live

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// server is the Redis that a fleet shares.
type server struct {
	name string // for people
	addr string // host:port
	stop func()
}

// connect checks the Redis at addr, or starts an embedded one where addr is empty. The caller stops it.
func connect(ctx context.Context, addr string) (*server, error) {
	redis.SetLogger(silent{}) // the error says it once
	if addr == "" {
		m := miniredis.NewMiniRedis()
		m.ClockTTL(true)
		if err := m.Start(); err != nil {
			return nil, fmt.Errorf("leasesim: embedded Redis: %w", err)
		}
		return &server{name: "embedded (miniredis)", addr: m.Addr(), stop: m.Close}, nil
	}
	rdb := client(addr)
	defer rdb.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	info, err := rdb.InfoMap(ctx, "server").Result()
	if err != nil {
		return nil, fmt.Errorf("leasesim: Redis at %s does not answer: %w", addr, err)
	}
	return &server{name: addr + " (" + info["Server"]["redis_version"] + ")", addr: addr, stop: func() {}}, nil
}

// served is what a server has done for EVALSHA, the command of lease calls.
type served struct {
	calls int64
	time  time.Duration
}

// served asks. The answer is zero where the server does not say, as the embedded one.
func (v *server) served(ctx context.Context) (s served) {
	rdb := client(v.addr)
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

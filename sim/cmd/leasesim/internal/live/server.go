package live

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// server is the Redis that a fleet shares.
type server struct {
	name string // for people
	addr string // host:port, or a URL
	stop func()
}

// connect checks the Redis at addr, or starts an embedded one where addr is empty. The caller stops
// it.
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
	rdb, err := newClient(addr)
	if err != nil {
		return nil, fmt.Errorf("%w: --redis: %w", ErrUsage, err)
	}
	defer rdb.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	store, err := redisbucket.New(rdb, redisbucket.Config{})
	if err != nil {
		return nil, err
	}
	if err := store.Ping(ctx); err != nil {
		return nil, fmt.Errorf("leasesim: Redis at %s does not answer: %w", shown(addr), err)
	}
	name := shown(addr)
	if info, err := rdb.InfoMap(ctx, "server").Result(); err == nil { // not every user may ask
		if version := info["Server"]["valkey_version"]; version != "" {
			name += " (Valkey " + version + ")"
		} else {
			name += " (" + info["Server"]["redis_version"] + ")"
		}
	}
	return &server{name: name, addr: addr, stop: func() {}}, nil
}

// served is what a server has done for EVALSHA, the command of lease calls.
type served struct {
	calls int64
	time  time.Duration
}

// served asks every master. The answer is zero where the server does not say, as the embedded one.
func (v *server) served(ctx context.Context) (all served) {
	rdb, err := newClient(v.addr)
	if err != nil {
		return all
	}
	defer rdb.Close()
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok {
		return servedBy(ctx, rdb)
	}
	var mu sync.Mutex
	_ = cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
		one := servedBy(ctx, c)
		mu.Lock()
		defer mu.Unlock()
		all.calls += one.calls
		all.time += one.time
		return nil
	})
	return all
}

func servedBy(ctx context.Context, rdb redis.UniversalClient) (s served) {
	info, err := rdb.InfoMap(ctx, "commandstats").Result()
	if err != nil {
		return s
	}
	var us int64
	for _, section := range info {
		// calls=1040,usec=31190,usec_per_call=29.99,...
		line := strings.ReplaceAll(section["cmdstat_evalsha"], ",", " ")
		if _, err := fmt.Sscanf(line, "calls=%d usec=%d", &s.calls, &us); err == nil {
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

// silent drops go-redis's own log lines.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

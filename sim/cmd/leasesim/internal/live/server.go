package live

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	miniserver "github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// ErrUsage is wrapped by errors about the scenario or the address of the Redis.
var ErrUsage = errors.New("leasesim")

const embedded = "embedded (miniredis)"

type server struct {
	name string // name in reports and errors
	addr string // host:port, or a URL
	rdb  redis.UniversalClient
	stop func()
}

// connect connects to the Redis at addr, or starts an embedded Redis if addr is "". The caller calls stop.
func connect(ctx context.Context, addr string) (*server, error) {
	if addr == "" {
		if strconv.IntSize < 64 {
			return nil, fmt.Errorf("%w: --redis is missing: a 32-bit build cannot use the embedded Redis", ErrUsage)
		}
		m := miniredis.NewMiniRedis()
		m.ClockTTL(true)
		if err := m.Start(); err != nil {
			return nil, fmt.Errorf("leasesim: embedded Redis: %w", err)
		}
		m.Server().SetPreHook(answerTime)
		rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
		stop := func() { rdb.Close(); m.Close() }
		return &server{name: embedded, addr: m.Addr(), rdb: rdb, stop: stop}, nil
	}
	rdb, name, err := Dial(addr)
	if err != nil {
		return nil, err
	}
	v := &server{name: name, addr: addr, rdb: rdb, stop: func() { rdb.Close() }}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	store, err := redisbucket.New(rdb, redisbucket.Config{})
	if err == nil {
		err = store.Ping(ctx)
	}
	if err != nil {
		v.stop()
		return nil, fmt.Errorf("leasesim: Redis at %s does not answer: %w", v.name, err)
	}
	return v, nil
}

// answerTime answers TIME by wallClock, also for scripts. With a clock that moves in steps, a bucket would
// refill up to a step too early by the clock of package stamps.
func answerTime(c *miniserver.Peer, cmd string, _ ...string) (done bool) {
	if cmd != "TIME" {
		return false
	}
	us := wallClock().UnixMicro()
	c.WriteStrings([]string{strconv.FormatInt(us/1e6, 10), strconv.FormatInt(us%1e6, 10)})
	return true
}

// served has the number and the total time of EVALSHA commands, of which lease calls consist.
type served struct {
	calls int64
	time  time.Duration
}

// served adds up the EVALSHA commands of all masters. A server that does not report them counts as zero.
func (v *server) served(ctx context.Context) (all served, err error) {
	var mu sync.Mutex
	err = v.masters(ctx, func(ctx context.Context, rdb redis.Cmdable) error {
		info, err := rdb.InfoMap(ctx, "commandstats").Result()
		for _, section := range info {
			// calls=1040,usec=31190,usec_per_call=29.99,...
			line := strings.ReplaceAll(section["cmdstat_evalsha"], ",", " ")
			var calls, us int64
			if _, err := fmt.Sscanf(line, "calls=%d usec=%d", &calls, &us); err == nil {
				mu.Lock()
				all.calls += calls
				all.time += time.Duration(us) * time.Microsecond
				mu.Unlock()
			}
		}
		return err
	})
	return all, err
}

func (v *server) masters(ctx context.Context, f func(context.Context, redis.Cmdable) error) error {
	if cluster, ok := v.rdb.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return f(ctx, c) })
	}
	return f(ctx, v.rdb)
}

// hang stops every master for d. Calls during this time run afterwards.
func (v *server) hang(ctx context.Context, d time.Duration) error {
	err := v.masters(ctx, func(ctx context.Context, rdb redis.Cmdable) error {
		return rdb.ClientPause(ctx, d).Err()
	})
	if err != nil {
		return fmt.Errorf("leasesim: Redis at %s cannot be made to hang: %w", v.name, err)
	}
	return nil
}

// since returns the mean time of the calls since before, or 0 without calls.
func (s served) since(before served) time.Duration {
	if s.calls <= before.calls {
		return 0
	}
	return (s.time - before.time) / time.Duration(s.calls-before.calls)
}

// silent drops the log lines of go-redis: an error reports each fault once.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// Dial returns a client for the address in --redis, and the address without a password. Dial opens no
// connection. After Dial, go-redis writes no log.
func Dial(address string) (rdb redis.UniversalClient, name string, err error) {
	if rdb, err = newClient(address); err != nil {
		return nil, "", fmt.Errorf("%w: --redis: %w", ErrUsage, err)
	}
	if u, err := url.Parse(address); err == nil && u.User != nil {
		address = u.Redacted()
	}
	return rdb, address, nil
}

// silentFor is the time limit of an attempt to connect.
const silentFor = 3 * time.Second

// newClient returns a client for the address in --redis: host:port of one server, or a URL of go-redis. The
// schemes redis, rediss (TLS) and unix select one server. The suffixes +cluster and +sentinel select a
// cluster or a Sentinel. An error does not repeat the URL, which may have a password.
func newClient(address string) (rdb redis.UniversalClient, err error) {
	redis.SetLogger(silent{})
	if !strings.Contains(address, "://") {
		if !strings.Contains(address, ":") {
			return nil, fmt.Errorf("%q is neither host:port nor a URL", address)
		}
		address = "redis://" + address
	}
	scheme, rest, _ := strings.Cut(address, "://")
	plain, kind, _ := strings.Cut(scheme, "+")
	address = plain + "://" + rest
	switch kind {
	case "":
		var o *redis.Options
		if o, err = redis.ParseURL(address); err == nil {
			o.DialTimeout, o.ContextTimeoutEnabled = silentFor, true
			rdb = redis.NewClient(o)
		}
	case "cluster":
		var o *redis.ClusterOptions
		if o, err = redis.ParseClusterURL(address); err == nil {
			o.DialTimeout, o.ContextTimeoutEnabled = silentFor, true
			rdb = redis.NewClusterClient(o)
		}
	case "sentinel":
		var o *redis.FailoverOptions
		if o, err = redis.ParseFailoverURL(address); err == nil && o.MasterName == "" {
			err = errors.New("a Sentinel URL needs the name of the master: ?master_name=NAME")
		}
		if err == nil {
			o.DialTimeout, o.ContextTimeoutEnabled = silentFor, true
			rdb = redis.NewFailoverClient(o)
		}
	default:
		err = fmt.Errorf("the scheme is %q, must be redis, rediss, unix, "+
			"or the first two with +cluster or +sentinel", scheme)
	}
	if where, ok := errors.AsType[*url.Error](err); ok {
		err = where.Err // without the URL
	}
	return rdb, err
}

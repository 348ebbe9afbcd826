package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/yuzhi-go/yuzhi/internal/safetext"
	"github.com/yuzhi-go/yuzhi/redisbucket"
	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/cmd/leasesim/internal/live"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

// looking are the flags of the commands that look at the buckets of a Redis.
type looking struct {
	redis, prefix, name, out string
}

func (l *looking) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&l.redis, "redis", "", "host:port or URL of the Redis, see leasesim live --help")
	f.StringVar(&l.prefix, "prefix", "yuzhi:", "redisbucket.Config.Prefix of the limiters")
	f.StringVar(&l.name, "name", "", "hybrid.Config.Name of the limiter")
	f.StringVar(&l.out, "out", view.FormatTable, "table or json")
}

// open checks the flags, and is a store to look with; the caller closes the client. The end of ctx
// closes it too: go-redis waits for an answer that does not come until its timeouts have passed.
func (l *looking) open(ctx context.Context, more faults) (*redisbucket.Store, redis.UniversalClient, error) {
	more.addf(l.redis == "", "--redis is missing, must be host:port or a URL")
	more.addf(l.out != view.FormatTable && l.out != view.FormatJSON, "--out is %q, must be table or json", l.out)
	if err := errors.Join(more...); err != nil {
		return nil, nil, err
	}
	rdb, name, err := live.Dial(l.redis)
	if err != nil {
		return nil, nil, err
	}
	store, err := redisbucket.New(rdb, redisbucket.Config{Prefix: l.prefix})
	if err != nil {
		rdb.Close()
		return nil, nil, fmt.Errorf("%w: --prefix: %w", errUsage, err)
	}
	l.redis = name // for people
	context.AfterFunc(ctx, func() { rdb.Close() })
	return store, rdb, nil
}

// failed is err, met while looking.
func (l *looking) failed(c *cobra.Command, err error) error {
	if c.Context().Err() != nil {
		return fmt.Errorf("leasesim: %w", sim.ErrInterrupted)
	}
	return fmt.Errorf("leasesim: Redis at %s: %w", l.redis, err)
}

// of returns the prefix of the limiter's stored keys, see hybrid.Config.Name.
func (l *looking) of() string {
	if l.name == "" {
		return ""
	}
	return "@" + l.name + ":"
}

// shownKey is a key for people, on one line and without what a terminal would obey.
func shownKey(key string, most int) string {
	if key == "" || strings.ContainsFunc(key, safetext.Odd) {
		key = strconv.Quote(key)
	}
	if r := []rune(key); len(r) > most {
		key = string(r[:most-1]) + "…"
	}
	return key
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

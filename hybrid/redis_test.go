package hybrid_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// onMiniredis is a client of a server of the test's own.
func onMiniredis(t *testing.T) *redis.Client {
	t.Helper()
	testkit.RequireMiniredis(t)
	rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

func TestRedisIsALimiterInOneCall(t *testing.T) {
	testkit.RequireMiniredis(t)
	addr := miniredis.RunT(t).Addr()
	synctest.Test(t, func(t *testing.T) { // where a slow machine is no outage
		// Given two limiters of one client, as two parts of a program make them,
		rdb := client(t, addr)
		one, err := hybrid.Redis(rdb, hourly)
		noErr(t, err)
		defer one.Close()
		other, err := hybrid.Redis(rdb, hourly)
		noErr(t, err)
		// then they share the buckets,
		must(t, one.AllowN("k", 6) && !other.AllowN("k", 6), "6 of 10, twice")
		// also when one of them is closed and made again.
		noErr(t, other.Close())
		again, err := hybrid.Redis(rdb, hourly)
		noErr(t, err)
		defer again.Close()
		must(t, !again.AllowN("k", 6), "6 of 4")
	})
}

// Two limiters of one program with the same keys would share buckets, in which only the limits of
// one of them can hold.
func TestRedisRefusesASecondLimiterWithOtherLimits(t *testing.T) {
	rdb := onMiniredis(t)
	login, err := hybrid.Redis(rdb, hybrid.PerMinute(5))
	noErr(t, err)
	_, err = hybrid.Redis(rdb, hybrid.PerSecond(100))
	isErr(t, err, hybrid.ErrInvalidConfig)
	// So is one with a Store of its own, as that has the same buckets, unless it has another name or
	// prefix.
	for _, c := range []struct {
		prefix, name string
		want         error
	}{
		{"", "", hybrid.ErrInvalidConfig}, {"yuzhi:", "", hybrid.ErrInvalidConfig},
		{"", "api", nil}, {"api:", "", nil},
	} {
		store, err := redisbucket.New(rdb, redisbucket.Config{Prefix: c.prefix})
		noErr(t, err)
		l, err := hybrid.New(store, hybrid.Config{Name: c.name, Limits: limits(hybrid.PerSecond(100))})
		check(t, errors.Is(err, c.want), "prefix %q, name %q: %v", c.prefix, c.name, err)
		if err == nil {
			l.Close()
		}
	}
	// Another client may be another server, and a closed Limiter contradicts no other.
	other, err := hybrid.Redis(onMiniredis(t), hybrid.PerSecond(100))
	noErr(t, err)
	other.Close()
	login.Close()
	api, err := hybrid.Redis(rdb, hybrid.PerSecond(100))
	noErr(t, err)
	api.Close()
}

func TestRedisNamesWhatIsMissing(t *testing.T) {
	var none *redis.Client
	for name, start := range map[string]func() (*hybrid.Limiter, error){
		"no client":   func() (*hybrid.Limiter, error) { return hybrid.Redis(nil, hourly) },
		"a typed nil": func() (*hybrid.Limiter, error) { return hybrid.Redis(none, hourly) },
		"no limit":    func() (*hybrid.Limiter, error) { return hybrid.Redis(onMiniredis(t)) },
		"a limit of 0/s": func() (*hybrid.Limiter, error) {
			return hybrid.Redis(onMiniredis(t), hybrid.PerSecond(0))
		},
	} {
		_, err := start()
		check(t, errors.Is(err, hybrid.ErrInvalidConfig), "%s: %v", name, err)
	}
}

package redisbucket

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/lease"
)

func TestNewReportsEveryViolation(t *testing.T) {
	for _, rdb := range []redis.UniversalClient{nil, (*redis.Client)(nil), (*redis.ClusterClient)(nil)} {
		_, err := New(rdb, Config{Prefix: "a{b", InFlight: -1})
		if !errors.Is(err, ErrInvalidConfig) {
			t.Fatal(err)
		}
		for _, what := range []string{"client is nil", `"a{b"`, "-1"} {
			if !strings.Contains(err.Error(), what) {
				t.Errorf("%T: %q is not in %v", rdb, what, err)
			}
		}
	}
}

func TestTheClockIsTheServersUnlessAskedOtherwise(t *testing.T) {
	for _, clientTime := range []bool{false, true} {
		// given a server whose clock shows 2001
		server := miniredis.RunT(t)
		server.SetTime(time.Unix(1_000_000_000, 0))
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
		defer rdb.Close()
		s, err := New(rdb, Config{ClientTime: clientTime})
		must(t, err)
		g, err := exchange(s, "k", request(1))
		must(t, err)
		if in2001 := g.ServerTime == 1_000_000_000_000_000; in2001 == clientTime {
			t.Errorf("client time %v: server time is %d", clientTime, g.ServerTime)
		}
	}
}

func TestAnExchangeGroupsEveryCallOnce(t *testing.T) {
	// given a batch with an invalid call among valid ones
	s := newStore(t, miniredis.RunT(t).Addr())
	bad := request(1)
	bad.Need = 20
	calls := []*lease.Call{{Key: "a", Request: request(1)}, {Key: "b", Request: bad},
		{Key: "c", Request: request(1)}}
	seen := make(map[*lease.Call]int)
	// when it is sent
	s.Exchange(context.Background(), calls, func(g []*lease.Call) {
		for _, c := range g {
			seen[c]++
		}
	})
	// then every call came back once, and only the invalid one failed
	for i, c := range calls {
		if seen[c] != 1 || (c.Err != nil) != (i == 1) {
			t.Errorf("%q: seen %d times, %v", c.Key, seen[c], c.Err)
		}
	}
	s.Exchange(context.Background(), nil, func([]*lease.Call) { t.Error("nothing was sent") })
}

func TestAStaleCallIsToldSo(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store) {
		if _, err := exchange(s, "k", request(5)); err != nil {
			t.Fatal(err)
		}
		if _, err := exchange(s, "k", request(4)); !errors.Is(err, lease.ErrStale) ||
			errors.Is(err, lease.ErrUnavailable) {
			t.Errorf("%v", err)
		}
	})
}

func TestKeysExpire(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store) {
		ctx, bucket := context.Background(), s.bucketKey("k")
		for name, c := range map[string]struct {
			change func(*lease.Config)
			least  time.Duration
		}{
			"full after a second":    {func(*lease.Config) {}, 1800 * time.Millisecond},
			"full after a month":     {func(c *lease.Config) { c.Limits = []lease.Limit{lease.Every(30 * 24 * time.Hour)} }, 30*24*time.Hour + 800*time.Millisecond},
			"empty buckets are kept": {func(c *lease.Config) { c.StartEmpty = true }, 30 * 24 * time.Hour},
		} {
			s.rdb.Del(ctx, bucket, recordKey(bucket, "h"))
			r := request(1)
			c.change(&r.Config)
			g, err := exchange(s, "k", r)
			must(t, err)
			// then the bucket outlives what the holder was told: the time to full, 2T, and at most a slice
			// more
			slice := 58 * time.Millisecond
			if ttl := s.rdb.PTTL(ctx, bucket).Val(); g.Expiry < c.least || g.Expiry > c.least+slice ||
				ttl < g.Expiry || ttl > g.Expiry+2*time.Second {
				t.Errorf("%s: told %v, kept %v, want %v", name, g.Expiry, ttl, c.least)
			}
			// and the record outlives its slice by two
			if ttl := s.rdb.PTTL(ctx, recordKey(bucket,
				"h")).Val(); ttl < 400*time.Millisecond+2*57*time.Millisecond || ttl > 3*time.Second {
				t.Errorf("%s: the record lives %v", name, ttl)
			}
		}
	})
}

// Given a bucket with the last revision that there is, when limits are set, then that is an invalid
// configuration and nothing has changed.
func TestTheLastRevisionCannotBeReplaced(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store) {
		r := request(1)
		r.Config.Version.Revision = lease.WaitingMax
		if _, err := exchange(s, "k", r); err != nil {
			t.Fatal(err)
		}
		s.rdb.Persist(context.Background(), s.bucketKey("k"))
		before := contents(t, s)
		for _, op := range []lease.Op{lease.OpSet, lease.OpSetIfAbsent} {
			st, err := s.Configure(context.Background(), "k", op, request(1).Config)
			if op == lease.OpSet && !errors.Is(err, lease.ErrInvalidConfig) || op == lease.OpSetIfAbsent &&
				(err != nil || st.Changed) {
				t.Errorf("%v: %+v, %v", op, st, err)
			}
			if after := contents(t, s); after != before {
				t.Errorf("%v wrote:\n%s\n%s", op, before, after)
			}
		}
	})
}

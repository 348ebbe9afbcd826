package faults

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/redistest"
)

// TestOnlyNoEvictionKeepsTheBuckets: every key of ours has an expiry, so the volatile policies take ours first, and
// those that take any key take ours too. The promise holds under all of them (row 14); but an
// evicted bucket starts empty and waits for a T, which users see as denials.
func TestOnlyNoEvictionKeepsTheBuckets(t *testing.T) {
	t.Parallel()
	for _, others := range []struct {
		name   string
		expiry time.Duration // of the data that shares the server; 0 for none
	}{{"data that stays", 0}, {"data that expires", 24 * time.Hour}} {
		for policy, keeps := range map[string]bool{
			"noeviction": true, "allkeys-lru": false, "allkeys-lfu": false, "allkeys-random": false,
			"volatile-lru": false, "volatile-lfu": false, "volatile-random": false, "volatile-ttl": false,
		} {
			t.Run(others.name+"/"+policy, func(t *testing.T) {
				t.Parallel()
				// Given 50 buckets on a server with that policy,
				ctx := context.Background()
				server := redistest.Start(t, "--maxmemory-policy", policy)
				rdb := client(t, server.Addr)
				f := NewFleet(t, Options{Size: 1, Addr: server.Addr, Config: patient(hourly, denying)})
				const buckets = 50
				for i := range buckets {
					name := fmt.Sprint("bucket-", i)
					if !f.Limiters[0].Allow(name) {
						t.Fatal("denied")
					}
				}
				kept := func() (n int64) {
					pipe := rdb.Pipeline()
					for i := range buckets {
						pipe.Exists(ctx, fmt.Sprintf("yuzhi:{bucket-%d}", i))
					}
					cmds, err := pipe.Exec(ctx)
					if err != nil {
						t.Fatal(err)
					}
					for _, c := range cmds {
						n += c.(*redis.IntCmd).Val()
					}
					return n
				}
				if kept() != buckets {
					t.Fatalf("%d of %d buckets", kept(), buckets)
				}
				// when others write more than fits, and use it more often than our buckets are used,
				leaveMemory(t, rdb, 1<<20)
				refused := 0
				for i := 0; i < 400 && kept() == buckets && refused < 50; i++ {
					pipe := rdb.Pipeline()
					name := fmt.Sprint("other:", i)
					pipe.Set(ctx, name, strings.Repeat("x", 10_000), others.expiry)
					for range 50 {
						pipe.StrLen(ctx, name)
					}
					if _, err := pipe.Exec(ctx); err != nil {
						refused++
					}
				}
				// then only noeviction keeps them all: others get an error instead.
				if got := kept(); (got == buckets) != keeps || policy == "noeviction" && refused == 0 {
					t.Errorf("%d of %d buckets are left, and %d writes of others were refused", got, buckets, refused)
				}
				t.Logf("%d of %d buckets left, %d writes of others refused", kept(), buckets, refused)
			})
		}
	}
}

// limit lets the server have n bytes more than it uses now.
func leaveMemory(t *testing.T, rdb *redis.Client, n int64) {
	t.Helper()
	_, used, _ := strings.Cut(rdb.Info(context.Background(), "memory").Val(), "used_memory:")
	used, _, _ = strings.Cut(used, "\r\n")
	have, err := strconv.ParseInt(used, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	do(t, rdb, "CONFIG", "SET", "maxmemory", have+n)
}

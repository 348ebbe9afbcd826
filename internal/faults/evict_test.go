package faults

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// squeeze lets the server keep only a little more than it has now.
func squeeze(t *testing.T, rdb *redis.Client) {
	t.Helper()
	_, used, _ := strings.Cut(rdb.Info(context.Background(), "memory").Val(), "used_memory:")
	used, _, _ = strings.Cut(used, "\r\n")
	have, err := strconv.ParseInt(used, 10, 64)
	must(t, err)
	set(t, rdb, "maxmemory", strconv.FormatInt(have+1<<20, 10))
}

// filler writes the i-th value of others that share the server.
func filler(rdb *redis.Client, i int) error {
	return rdb.Set(context.Background(), fmt.Sprint("filler:", i%400), strings.Repeat("x", 10_000), 0).Err()
}

func TestRow14EvictedBucketsAndRecordsAdmitNothingTwice(t *testing.T) {
	t.Parallel()
	// Given 60 buckets, of each of which two processes have leased, on a server that evicts anything,
	ctx := context.Background()
	server := redistest.Start(t, "--maxmemory-policy", "allkeys-lru")
	rdb := client(t, server.Addr)
	f := NewFleet(t, Options{Size: 2, Addr: server.Addr, Config: patient(hourly, denying)})
	names := make([]string, 60)
	for n := range names {
		names[n] = fmt.Sprint("bucket-", n)
		f.Spend(0, names[n], 1)
		f.Spend(1, names[n], 1)
	}
	squeeze(t, rdb)
	// when other data pushes out some of them: here the bucket, there a record, elsewhere both,
	fates := make(map[string]int)
	for i := 0; fates["record evicted"] == 0 || fates["bucket evicted"] == 0; i++ {
		must(t, filler(rdb, i))
		left := rdb.Keys(ctx, "yuzhi:*").Val()
		clear(fates)
		for _, name := range names {
			bucket, records := slices.Contains(left, bucketOf(name)), 0
			for _, k := range left {
				if strings.HasPrefix(k, bucketOf(name)+":") {
					records++
				}
			}
			switch {
			case bucket && records == 2:
				fates["kept"]++
			case bucket:
				fates["record evicted"]++
			case records == 0:
				fates["all evicted"]++
			default:
				fates["bucket evicted"]++
			}
		}
		if fates["all evicted"] == len(names) {
			t.Fatalf("evicted all at once: %v", fates)
		}
	}
	t.Log(fates)
	set(t, rdb, "maxmemory", "0")
	// and both go on until they are denied, then no bucket has given more than it had.
	for _, name := range names {
		for range 2 {
			f.Drain(0, name)
			f.Drain(1, name)
		}
		f.CheckBound(name, hourly, 0)
	}
}

func TestRow14EvictionUnderLoadKeepsThePromise(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"allkeys-lru", "allkeys-random"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			// Given three processes that ask for more than the rate,
			// no sane setting is worse
			server := redistest.Start(t, "--maxmemory-policy", policy, "--maxmemory-samples", "1")
			rdb := client(t, server.Addr)
			f, load := saturated(t, 3, server.Addr)
			// when other data keeps pushing out their bucket and their records,
			squeeze(t, rdb)
			var others sync.WaitGroup
			stop := make(chan struct{})
			others.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
						_ = filler(rdb, i)
					}
				}
			})
			losses, last := 0, rawOf(t, rdb, key)
			testkit.Eventually(t, "five lost buckets", func() bool {
				if now := rawOf(t, rdb, key); now.exists && now.epoch != last.epoch {
					losses, last = losses+1, now
				}
				return losses >= 5
			})
			close(stop)
			others.Wait()
			set(t, rdb, "maxmemory", "0")
			// then all that is lost is the time of waiting,
			f.AwaitRecovery(busy.Tokens)
			load.Stop()
			s := f.Stats()
			t.Logf("%d buckets lost in %v; admitted %d, denied %d, burnt %d", losses, f.Now(), s.Admitted,
				s.Denied, s.Burnt)
			// and in no window more was admitted than by one bucket that nobody evicts.
			f.CheckBound(key, busy, 0)
		})
	}
}

// TestOnlyNoEvictionKeepsTheBuckets: every key of ours has an expiry, so the volatile policies take
// ours first, and those that take any key take ours too. The promise holds under all of them; but
// an evicted bucket starts empty and waits for a T, which users see as denials.
func TestOnlyNoEvictionKeepsTheBuckets(t *testing.T) {
	t.Parallel()
	for others, expiry := range map[string]time.Duration{"data that stays": 0,
		"data that expires": 24 * time.Hour} {
		for policy, keeps := range map[string]bool{
			"noeviction": true, "allkeys-lru": false, "allkeys-lfu": false, "allkeys-random": false,
			"volatile-lru": false, "volatile-lfu": false, "volatile-random": false, "volatile-ttl": false,
		} {
			t.Run(others+"/"+policy, func(t *testing.T) {
				t.Parallel()
				// Given 50 buckets on a server with that policy,
				ctx := context.Background()
				server := redistest.Start(t, "--maxmemory-policy", policy)
				rdb := client(t, server.Addr)
				f := NewFleet(t, Options{Size: 1, Addr: server.Addr, Config: patient(hourly, denying)})
				var ours []string
				for i := range 50 {
					name := fmt.Sprint("bucket-", i)
					ours = append(ours, bucketOf(name))
					f.Spend(0, name, 1)
				}
				kept := func() int {
					n, err := rdb.Exists(ctx, ours...).Result()
					must(t, err)
					return int(n)
				}
				if kept() != len(ours) {
					t.Fatalf("%d of %d buckets", kept(), len(ours))
				}
				// when others write more than fits, and use it more often than our buckets are used,
				squeeze(t, rdb)
				refused := 0
				for i := 0; i < 400 && kept() == len(ours) && refused < 50; i++ {
					pipe := rdb.Pipeline()
					name := fmt.Sprint("other:", i)
					pipe.Set(ctx, name, strings.Repeat("x", 10_000), expiry)
					for range 50 {
						pipe.StrLen(ctx, name)
					}
					if _, err := pipe.Exec(ctx); err != nil {
						refused++
					}
				}
				// then only noeviction keeps them all: others get an error instead.
				if got := kept(); (got == len(ours)) != keeps || policy == "noeviction" && refused == 0 {
					t.Errorf("%d of %d buckets are left, and %d writes of others were refused", got,
						len(ours), refused)
				}
				t.Logf("%d of %d buckets left, %d writes of others refused", kept(), len(ours), refused)
			})
		}
	}
}

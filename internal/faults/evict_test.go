package faults

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// squeeze lets the server keep only a little more than it has now and evict what policy says.
func squeeze(t *testing.T, rdb *redis.Client, policy string) {
	t.Helper()
	info := rdb.Info(context.Background(), "memory").Val()
	_, used, _ := strings.Cut(info, "used_memory:")
	used, _, _ = strings.Cut(used, "\r\n")
	n, err := strconv.ParseInt(used, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	set(t, rdb, "maxmemory-policy", policy)
	set(t, rdb, "maxmemory", strconv.FormatInt(n+1<<20, 10))
}

// filler writes the i-th value of others that share the server.
func filler(rdb *redis.Client, i int) error {
	return rdb.Set(context.Background(), fmt.Sprint("filler:", i%400), strings.Repeat("x", 10_000), 0).Err()
}

func exists(t *testing.T, rdb *redis.Client, key string) bool {
	t.Helper()
	n, err := rdb.Exists(context.Background(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	return n == 1
}

func TestRow14EvictedBucketsAndRecordsAdmitNothingTwice(t *testing.T) {
	t.Parallel()
	// Given 60 buckets, of each of which two processes have leased, on a server that evicts anything,
	ctx := context.Background()
	server := redistest.Start(t)
	rdb := client(t, server.Addr)
	f := NewFleet(t, Options{Size: 2, Addr: server.Addr, Config: patient(hourly, denying)})
	names := make([]string, 60)
	for n := range names {
		names[n] = fmt.Sprint("bucket-", n)
		for i := range 2 {
			if !f.Ask(names[n], func() bool { return f.Limiters[i].Allow(names[n]) }) {
				t.Fatal("denied")
			}
		}
	}
	squeeze(t, rdb, "allkeys-lru")
	// when other data pushes out some of them: here the bucket, there a record, elsewhere both,
	fate := func(name string) string {
		bucket, records := exists(t, rdb, bucketOf(name)), len(rdb.Keys(ctx, bucketOf(name)+":*").Val())
		switch {
		case bucket && records == 2:
			return "kept"
		case bucket:
			return "record evicted"
		case records == 0:
			return "all evicted"
		}
		return "bucket evicted"
	}
	fates := make(map[string]int)
	for i := 0; fates["record evicted"] == 0 || fates["bucket evicted"] == 0; {
		for range 10 {
			if err := filler(rdb, i); err != nil {
				t.Fatal(err)
			}
			i++
		}
		clear(fates)
		for _, name := range names {
			fates[fate(name)]++
		}
		if fates["all evicted"] == len(names) {
			t.Fatalf("evicted all at once: %v", fates)
		}
	}
	t.Log(fates)
	set(t, rdb, "maxmemory", "0")
	// and both go on until they are denied,
	for _, name := range names {
		for range 2 {
			for i := range 2 {
				drain(f, i, name)
			}
		}
		// then no bucket has given more than it had.
		f.CheckBound(name, hourly, 0)
	}
}

func TestRow14EvictionUnderLoadKeepsThePromise(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"allkeys-lru", "allkeys-random"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			// Given three processes that ask for more than the rate,
			server := redistest.Start(t, "--maxmemory-samples", "1") // worse than any setting that makes sense
			rdb := client(t, server.Addr)
			f, load := saturated(t, Options{Size: 3, Addr: server.Addr, Config: hybrid.Config{Policy: denying}})
			// when other data keeps pushing out their bucket and their records,
			squeeze(t, rdb, policy)
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
			t.Logf("%d buckets lost in %v; admitted %d, denied %d, burnt %d", losses, f.Now(), s.Admitted, s.Denied, s.Burnt)
			// and in no window more was admitted than by one bucket that nobody evicts.
			f.CheckBound(key, busy, 0)
		})
	}
}

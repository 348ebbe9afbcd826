package faults

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// squeeze lets the server keep only a little more than it has now.
func (s *site) squeeze() {
	s.t.Helper()
	_, used, _ := strings.Cut(s.ctl.Info(context.Background(), "memory").Val(), "used_memory:")
	used, _, _ = strings.Cut(used, "\r\n")
	have, err := strconv.ParseInt(used, 10, 64)
	testkit.NoErr(s.t, err)
	s.set("maxmemory", strconv.FormatInt(have+1<<20, 10))
}

// fill writes the i-th value of others that share the server.
func (s *site) fill(i int) error {
	return s.ctl.Set(context.Background(), fmt.Sprint("filler:", i%400), strings.Repeat("x", 10_000), 0).Err()
}

func TestRow14EvictionUnderLoadKeepsThePromise(t *testing.T) {
	testkit.LongOnly(t)
	policies := map[string]string{"lru": "allkeys-lru", "random": "allkeys-random"}
	each(t, policies, func(t *testing.T, policy string) {
		// Given three processes that ask for more than the rate,
		// no sane setting is worse
		server := start(t, "--maxmemory-policy", policy, "--maxmemory-samples", "1")
		f, load := server.saturated(3)
		// when other data keeps pushing out their bucket and their records,
		server.squeeze()
		ctx, cancel := context.WithCancel(t.Context())
		var others sync.WaitGroup
		others.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				_ = server.fill(i)
			}
		})
		losses, last := 0, server.raw()
		testkit.Eventually(t, "five lost buckets", func() bool {
			if now := server.raw(); now.exists && now.epoch != last.epoch {
				losses, last = losses+1, now
			}
			return losses >= 5
		})
		cancel()
		others.Wait()
		server.set("maxmemory", "0")
		// then only waiting time is lost,
		f.awaitLeased(busy.Tokens)
		load.stop()
		// and no window admitted more than one bucket without evictions.
		f.checkBound(key, busy, 0)
	})
}

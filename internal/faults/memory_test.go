package faults

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/yuzhi-go/yuzhi/hybrid"
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

// checkUntouched checks that the database has what it had, to the last byte. Records of holders may
// have expired since; buckets live for longer than a test.
func (s *site) checkUntouched(stored string) {
	s.t.Helper()
	now := s.contents()
	for line := range strings.Lines(stored) {
		name, _, _ := strings.Cut(line, " ")
		record := strings.Contains(name, "}:")
		testkit.Check(s.t, record || strings.Contains(now, line), "%s is gone:\n%s", line, now)
	}
	for line := range strings.Lines(now) {
		gone := strings.Contains(line, `" none "`) || strings.Contains(line, `" string "" `) // while it was read
		testkit.Check(s.t, gone || strings.Contains(stored, line), "%s was not there before:\n%s", line, stored)
	}
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

func TestRow15OutOfMemoryWritesNothingAndComesBack(t *testing.T) {
	testkit.LongOnly(t)
	t.Parallel()
	// Given a process that has spent 10 of 100,
	ctx := context.Background()
	server := start(t, "--maxmemory-policy", "noeviction")
	var log diary
	cfg := patient(hourly, denying)
	cfg.Logger = log.logger()
	f := server.fleet(1, cfg)
	l := f.limiters[0]
	f.spend(0, key, 10)
	// when the server has no memory left,
	server.set("maxmemory", "1")
	testkit.Eventually(t, "an answer without the store", func() bool {
		r, err := l.Take(ctx, key, 1)
		testkit.NoErr(t, err)
		return !r.OK && r.Source == hybrid.SourceFallback // held tokens may still be spent
	})
	spent, stored, failed := l.Stats().Admitted, server.contents(), l.Stats().Errors
	testkit.Eventually(t, "more calls that fail", func() bool {
		testkit.Must(t, !l.Allow(key) && !l.Allow("another"), "admitted without the store")
		return l.Stats().Errors >= failed+4
	})
	// then nothing was written, not even in part,
	server.checkUntouched(stored)
	testkit.Eventually(t, "the log to say what is wrong, and where", func() bool {
		text := log.String()
		return strings.Contains(text, "OOM") && strings.Contains(text, "node="+server.Addr)
	})
	// and when there is memory again, everything is unchanged.
	server.set("maxmemory", "0")
	testkit.Eventually(t, "a token", func() bool { return f.allow(0, key) })
	testkit.NoErr(t, l.Shutdown(ctx))
	s, got := l.Stats(), f.balance()
	testkit.Check(t, got+s.Burnt >= hourly.Tokens-(spent+1) && got <= hourly.Tokens-s.Admitted+1+f.refilled(),
		"%d left of %d after %d admitted and %d burnt", got, hourly.Tokens, s.Admitted, s.Burnt)
}

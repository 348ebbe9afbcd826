package faults

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// With "everysec" Redis hands every write to the system before it answers, so that a killed server loses nothing; only
// while a sync of the disk is under way it may postpone that, by 2 s at most. With "always" it never does.
var (
	everySecond = []string{"--appendonly", "yes", "--appendfsync", "everysec"}
	syncAlways  = []string{"--appendonly", "yes", "--appendfsync", "always"}
)

// written returns when nothing is postponed.
func written(t *testing.T, rdb *redis.Client) {
	t.Helper()
	testkit.Eventually(t, "everything in the file", func() bool {
		info := rdb.Info(context.Background(), "persistence").Val()
		return strings.Contains(info, "aof_enabled:0\r\n") || strings.Contains(info, "aof_buffer_length:0\r\n")
	})
}

func TestRow13ARestartFromTheAppendOnlyFileKeepsEveryToken(t *testing.T) {
	t.Parallel()
	// Given two processes that have drawn, spent and given back,
	ctx := context.Background()
	server := redistest.Start(t, everySecond...)
	f := NewFleet(t, Options{Size: 3, Addr: server.Addr, Config: patient(hourly, denying)})
	for range 15 {
		for i := range 2 {
			if !f.Ask(key, func() bool { return f.Limiters[i].Allow(key) }) {
				t.Fatal("denied")
			}
		}
	}
	for i := range 2 {
		if err := f.Limiters[i].Shutdown(ctx); err != nil {
			t.Fatal(err)
		}
	}
	before, stored := f.State(key), contents(t, client(t, server.Addr))
	if before.Levels[0] != hourly.Tokens-30 || before.Ledger != 0 {
		t.Fatalf("30 of %d were spent: %+v", hourly.Tokens, before)
	}
	written(t, client(t, server.Addr))
	// when the server is killed and starts again,
	server.Kill()
	server.Restart(t)
	// then it has what it had, to the last byte,
	if now := contents(t, client(t, server.Addr)); now != stored {
		t.Errorf("before:\n%s\nafter:\n%s", stored, now)
	}
	if after := f.State(key); after.Levels != before.Levels || after.Epoch != before.Epoch || after.Counter != before.Counter {
		t.Errorf("before %+v, after %+v", before, after)
	}
	// and a process that never knew the bucket finds what is left, and no more.
	takeAll(t, f, 2, before.Levels[0])
	f.CheckBound(key, hourly, 0)
}

func TestRow13ARestartFromTheAppendOnlyFileUnderLoadContinues(t *testing.T) {
	t.Parallel()
	for name, file := range map[string][]string{"always": syncAlways, "everysec": everySecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Given four processes that ask for more than the rate,
			server := redistest.Start(t, file...)
			f, load := saturated(t, Options{Size: 4, Addr: server.Addr, Config: hybrid.Config{Policy: denying}})
			rdb := client(t, server.Addr)
			before := rawOf(t, rdb, key)
			// when the server is killed in the midst of it and starts again,
			server.Kill()
			server.Restart(t)
			took := f.AwaitRecovery(busy.Tokens)
			took.CheckInTime(f.State(key).Config.TTL)
			load.Stop()
			// then it is the same bucket,
			after := rawOf(t, rdb, key)
			if after.created != before.created {
				t.Errorf("before %+v, after %+v", before, after)
			}
			// and nobody had to wait for a T, unless a postponed write was lost and somebody proved it;
			if after.epoch != before.epoch && (name == "always" || after.frozen == 0) {
				t.Errorf("before %+v, after %+v", before, after)
			}
			t.Logf("the second at the rate began %v after the server answered again; writes lost: %v", took.After, after.epoch != before.epoch)
			// the promise held all the time.
			f.CheckBound(key, busy, 0)
		})
	}
}

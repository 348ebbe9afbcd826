package faults

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// With "everysec" Redis hands every write to the system before it answers, so that a killed server
// loses nothing; only while a sync of the disk is under way it may postpone that, by 2 s at most.
// With "always" it never does.
var (
	everySecond = []string{"--appendonly", "yes", "--appendfsync", "everysec"}
	everyWrite  = []string{"--appendonly", "yes", "--appendfsync", "always"}
)

// written returns when nothing is postponed.
func written(t *testing.T, rdb *redis.Client) {
	t.Helper()
	testkit.Eventually(t, "everything in the file", func() bool {
		info := rdb.Info(context.Background(), "persistence").Val()
		return strings.Contains(info, "aof_enabled:0\r\n") || strings.Contains(info,
			"aof_buffer_length:0\r\n")
	})
}

// TestRow13ARestartFromTheAppendOnlyFileKeepsEveryToken: what was written before kill -9 is there,
// again and again, though the file is synced to the disk once a second only.
func TestRow13ARestartFromTheAppendOnlyFileKeepsEveryToken(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, everySecond...)
	f := NewFleet(t, Options{Size: 3, Addr: server.Addr, Config: patient(hourly, denying)})
	for round := range 8 {
		// Given two processes that have drawn, spent and given back,
		f.SpendAndSettle(round%2, 5)
		before, stored, refilled := f.State(key), contents(t, client(t, server.Addr)),
			int64(f.Now().Hours()*100)
		gone := int64(5*(round+1)) + f.Stats().Burnt
		if left := before.Levels[0] + gone; left < hourly.Tokens || left > hourly.Tokens+refilled ||
			before.Ledger != 0 {
			t.Fatalf("%d of %d were spent: %+v", gone, hourly.Tokens, before)
		}
		written(t, client(t, server.Addr))
		// when the server is killed and starts again,
		server.Kill()
		server.Restart(t)
		// then it has what it had, to the last byte (records expire after a while, the bucket does not).
		now := contents(t, client(t, server.Addr))
		for line := range strings.Lines(now) {
			if !strings.Contains(stored, line) {
				t.Errorf("%s was not there before:\n%s", line, stored)
			}
		}
		if !strings.Contains(now, fmt.Sprintf("%q", bucketOf(key))) {
			t.Errorf("no bucket:\n%s", now)
		}
		if after := f.State(key); after.Levels != before.Levels || after.Epoch != before.Epoch ||
			after.Counter != before.Counter {
			t.Errorf("before %+v, after %+v", before, after)
		}
	}
	// And a process that never knew the bucket finds what is left, and no more.
	f.TakeAll(2, f.State(key).Levels[0])
	f.CheckBound(key, hourly, 0)
}

func TestRow13ARestartFromTheAppendOnlyFileUnderLoadContinues(t *testing.T) {
	t.Parallel()
	for name, file := range map[string][]string{"always": everyWrite, "everysec": everySecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Given four processes that ask for more than the rate,
			server := redistest.Start(t, file...)
			f, load := saturated(t, 4, server.Addr)
			rdb := client(t, server.Addr)
			before := rawOf(t, rdb, key)
			// when the server is killed in the midst of it and starts again,
			server.Kill()
			server.Restart(t)
			took := f.CheckRecovers(key, busy.Tokens)
			load.Stop()
			// then it is the same bucket,
			after := rawOf(t, rdb, key)
			if after.created != before.created {
				t.Errorf("before %+v, after %+v", before, after)
			}
			// and nobody had to wait for a T, unless a postponed write was lost and somebody proved it;
			lost := after.epoch != before.epoch
			if lost && (name == "always" || after.frozen == 0) {
				t.Errorf("before %+v, after %+v", before, after)
			}
			t.Logf("the second at the rate began %v after the server answered again; writes lost: %v",
				took.After, lost)
			// the promise held all the time.
			f.CheckBound(key, busy, 0)
		})
	}
}

// TestWhatAKilledServerStillKnows: 100 tokens an hour; 40 are spent, a snapshot is taken, 30 more
// are spent, and then the server is killed and starts again. One central bucket would have 30 left.
func TestWhatAKilledServerStillKnows(t *testing.T) {
	t.Parallel()
	const nothing, whatIsLeft, whatTheSnapshotHas, everything = 0, 1, 2, 3
	for _, c := range []struct {
		name     string
		args     []string
		newcomer int // what finds a process that never knew the bucket and asks first
		knower   int // and one that knew it
	}{
		// The file has everything that was answered.
		{"append-only file, fsync everysec", everySecond, whatIsLeft, whatIsLeft},
		// The snapshot is older: what was granted since is there again, unless somebody proves that it
		// was. Then the bucket starts empty.
		{"snapshots only", nil, whatTheSnapshotHas, nothing},
		// Without either, it is a new bucket, or one that starts empty.
		{"nothing", nil, everything, nothing},
	} {
		for who, first := range []string{"one that knew asks first", "a newcomer asks first"} {
			t.Run(c.name+", "+first, func(t *testing.T) {
				t.Parallel()
				server := redistest.Start(t, c.args...)
				rdb := client(t, server.Addr)
				f := NewFleet(t, Options{Size: 2, Addr: server.Addr, Config: patient(hourly, denying)})
				f.SpendAndSettle(0, 40)
				found := map[int]int64{everything: hourly.Tokens, whatTheSnapshotHas: f.State(key).Levels[0]}
				if c.name == "snapshots only" {
					do(t, rdb, "SAVE")
				}
				f.SpendAndSettle(0, 30)
				left := f.State(key).Levels[0]
				found[whatIsLeft] = left
				written(t, rdb)
				// when the server is killed and starts again,
				server.Kill()
				server.Restart(t)
				// then the first to ask finds what the server still knows,
				want := found[[]int{c.knower, c.newcomer}[who]]
				f.TakeAll(who, want)
				// and (1) holds but for what the server forgot and nobody proved.
				f.CheckBound(key, hourly, max(0, want-left))
			})
		}
	}
}

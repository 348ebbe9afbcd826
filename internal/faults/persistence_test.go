package faults

import (
	"context"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/redistest"
)

const (
	nothing = iota
	whatIsLeft
	whatTheSnapshotHas
	everything
)

// TestWhatAKilledServerStillKnows: 100 tokens an hour; 40 are spent, a snapshot is taken, 30 more are spent, and then
// the server is killed and starts again. One central bucket would have 30 left.
func TestWhatAKilledServerStillKnows(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		args     []string
		newcomer int // what finds a process that never knew the bucket and asks first
		knower   int // and one that knew it
	}{
		// The file has everything that was answered.
		{"append-only file, fsync everysec", []string{"--appendonly", "yes", "--appendfsync", "everysec"}, whatIsLeft, whatIsLeft},
		// The snapshot is older: what was granted since is there again, unless somebody proves that it was. Then
		// the bucket starts empty.
		{"snapshots only", nil, whatTheSnapshotHas, nothing},
		// Without either, it is a new bucket, or one that starts empty.
		{"nothing", nil, everything, nothing},
	} {
		for _, newcomer := range []bool{true, false} {
			name := c.name + ", one that knew asks first"
			if newcomer {
				name = c.name + ", a newcomer asks first"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				server := redistest.Start(t, c.args...)
				rdb := client(t, server.Addr)
				f := NewFleet(t, Options{Size: 2, Addr: server.Addr, Config: patient(hourly, denying)})
				spend(t, f, 0, 40)
				found := map[int]int64{everything: hourly.Tokens, whatTheSnapshotHas: f.State(key).Levels[0]}
				if c.name == "snapshots only" {
					do(t, rdb, "SAVE")
				}
				spend(t, f, 0, 30)
				left := f.State(key).Levels[0]
				found[whatIsLeft] = left
				written(t, rdb)
				// when the server is killed and starts again,
				server.Kill()
				server.Restart(t)
				// then the first to ask finds what the server still knows.
				who, want := 0, found[c.knower]
				if newcomer {
					who, want = 1, found[c.newcomer]
				}
				takeAll(t, f, who, want)
				// and (1) holds but for what the server forgot and nobody proved.
				f.CheckBound(key, hourly, max(0, want-left))
			})
		}
	}
}

// TestTheAppendOnlyFileOfAKilledServerIsWhole: what was written before kill -9 is there, again and again, though the file
// is synced to the disk once a second only.
func TestTheAppendOnlyFileOfAKilledServerIsWhole(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "everysec")
	f := NewFleet(t, Options{Size: 1, Addr: server.Addr, Config: patient(hourly, denying)})
	for i := range 8 {
		spend(t, f, 0, 5)
		want := f.State(key).Levels[0]
		written(t, client(t, server.Addr))
		server.Kill()
		server.Restart(t)
		st, err := storeOn(t, client(t, server.Addr)).Inspect(ctx, key)
		if err != nil || st.Levels[0] != want {
			t.Fatalf("%d left after kill %d, want %d (%v)", st.Levels[0], i+1, want, err)
		}
	}
	f.CheckBound(key, hourly, 0)
}

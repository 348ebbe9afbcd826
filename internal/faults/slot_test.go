package faults

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// awkward are keys that users make of their input. (Random ones: FuzzBucketKey in redisbucket.)
var awkward = []string{"{", "}", "{}", "}{", "a{b}c{d}", "{a}", "{a}}", "%", "%7D", "%e", "\x00", "a\x00b", "\r\n", "*1\r\n$4\r\nPING\r\n", "\xff\xfe", ":", "a:b",
	"用户:{1}", " ", strings.Repeat("k", 1024), strings.Repeat("k", 1025), strings.Repeat("}", 10_000), strings.Repeat("{", 10_000)}

func TestRow21AnyBytesAsAKeyAreServedByACluster(t *testing.T) {
	t.Parallel()
	// Given a server that checks, as every node of a cluster does, that the keys of a script are in one slot,
	ctx := context.Background()
	server := redistest.Start(t, "--cluster-enabled", "yes")
	admin := client(t, server.Addr)
	if err := admin.ClusterAddSlotsRange(ctx, 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "a cluster of one", func() bool { return strings.Contains(admin.ClusterInfo(ctx).Val(), "cluster_state:ok") })
	err := admin.Eval(ctx, "return 1", []string{"yuzhi:k", "yuzhi:k:holder"}).Err()
	if !redis.HasErrorPrefix(err, "CROSSSLOT") {
		t.Fatalf("it does not: %v", err)
	}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr}})
	t.Cleanup(func() { cluster.Close() })
	store, err := redisbucket.New(cluster, redisbucket.Config{})
	if err != nil {
		t.Fatal(err)
	}
	f := NewFleetOn(t, patient(hourly, denying), lease.Store(store), store)
	for _, name := range awkward {
		// when two processes use keys of any bytes,
		for i, l := range f.Limiters {
			// then each is served by the store,
			if r, err := l.Take(ctx, name, 1); err != nil || !r.OK || r.Source != hybrid.SourceStore {
				t.Errorf("%.20q at process %d: %+v, %v", name, i, r, err)
			}
		}
	}
	if s := f.Stats(); s.Errors != 0 {
		t.Errorf("%d calls failed", s.Errors)
	}
	for _, name := range awkward {
		// and no two keys share a bucket: two tokens of each are gone.
		if st, err := store.Inspect(ctx, name); err != nil || st.Levels[0]+st.Ledger != hourly.Tokens-2 {
			t.Errorf("%.20q: %+v, %v", name, st, err)
		}
	}
}

package faults

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/lease"
)

// awkward are keys that users make of their input. (Random ones: FuzzBucketKey in redisbucket.)
var awkward = []string{"{", "}", "{}", "}{", "a{b}c{d}", "{a}", "{a}}", "%", "%7D", "%e", "\x00", "a\x00b",
	"\r\n", "*1\r\n$4\r\nPING\r\n", "\xff\xfe", ":", "a:b",
	"用户:{1}", " ", strings.Repeat("k", 1024), strings.Repeat("k", 1025), strings.Repeat("}", 10_000),
	strings.Repeat("{", 10_000)}

func TestRow21AnyBytesAsAKeyAreServedByACluster(t *testing.T) {
	t.Parallel()
	// Given a server that checks, as every node of a cluster does, that the keys of a script are in
	// one slot,
	ctx := context.Background()
	server := redistest.StartCluster(t, 1, false).Masters[0]
	err := client(t, server.Addr).Eval(ctx, "return 1", []string{"yuzhi:k", "yuzhi:k:holder"}).Err()
	if !redis.HasErrorPrefix(err, "CROSSSLOT") {
		t.Fatalf("it does not: %v", err)
	}
	store := storeOn(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr}}))
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

package redisbucket

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/redistest"
)

// FuzzBucketKey: whatever bytes users put into their keys, different keys never share anything in Redis, and
// everything of one key is in one slot, as computed here and as a real server computes it (where there is one).
//
//	go test ./redisbucket -run '^$' -fuzz FuzzBucketKey
func FuzzBucketKey(f *testing.F) {
	for i, key := range oddKeys {
		f.Add(key, oddKeys[(i+1)%len(oddKeys)], "h", "}{")
	}
	f.Add("a", "a}", ":h", "")
	f.Add("a}:h", "a", "h", "h")
	f.Add("a%7D", "a}", "h", "h")
	var server *redis.Client // one for each fuzzing process
	if redistest.Available() {
		server = redis.NewClient(&redis.Options{Addr: redistest.Start(f, "--cluster-enabled", "yes").Addr})
		f.Cleanup(func() { server.Close() })
	} else {
		f.Log("slots are computed only: redis-server is not in PATH")
	}
	s := &Store{prefix: defaultPrefix}
	f.Fuzz(func(t *testing.T, a, b, holderA, holderB string) {
		bucketA, bucketB := s.bucketKey(a), s.bucketKey(b)
		recordA, recordB := recordKey(bucketA, holderA), recordKey(bucketB, holderB)
		// then two keys share their bucket only if they are one key, and a record never is anybody's bucket,
		if (bucketA == bucketB) != (a == b) {
			t.Fatalf("%q has the bucket %q, %q has %q", a, bucketA, b, bucketB)
		}
		if (recordA == recordB) != (a == b && holderA == holderB) || recordA == bucketB || recordB == bucketA || recordA == bucketA {
			t.Fatalf("%q has %q and %q, %q has %q and %q", a, bucketA, recordA, b, bucketB, recordB)
		}
		// and bucket and record are in one slot.
		want := [...]int64{slot(bucketA), slot(bucketA), slot(bucketB), slot(bucketB)}
		names := [...]string{bucketA, recordA, bucketB, recordB}
		for i, name := range names {
			if slot(name) != want[i] {
				t.Fatalf("%q is in slot %d, its bucket in %d", name, slot(name), want[i])
			}
		}
		if server == nil {
			return
		}
		pipe := server.Pipeline()
		var answers [len(names)]*redis.IntCmd
		for i, name := range names {
			answers[i] = pipe.ClusterKeySlot(context.Background(), name)
		}
		if _, err := pipe.Exec(context.Background()); err != nil {
			t.Fatal(err)
		}
		for i, name := range names {
			if got := answers[i].Val(); got != want[i] {
				t.Fatalf("the server puts %q in slot %d, computed %d", name, got, want[i])
			}
		}
	})
}

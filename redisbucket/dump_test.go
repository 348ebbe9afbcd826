package redisbucket

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/lease"
)

// stored reads what Redis holds of one bucket into the form of lease.Bucket.Dump, so that both can be compared.
// The records of all given holders are read, live or not.
func stored(t testing.TB, rdb redis.UniversalClient, s *Store, key string, holders []string) lease.BucketDump {
	t.Helper()
	ctx := context.Background()
	bucket := s.bucketKey(key)
	pipe := rdb.Pipeline()
	hash := pipe.HGetAll(ctx, bucket)
	texts := make([]*redis.StringCmd, len(holders))
	for i, h := range holders {
		texts[i] = pipe.Get(ctx, recordKey(bucket, h))
	}
	if _, err := pipe.Exec(ctx); err != nil && err != redis.Nil {
		t.Fatal(err)
	}
	if len(hash.Val()) == 0 {
		return lease.BucketDump{}
	}
	d := dumpState(t, hash.Val()["c"], hash.Val()["s"])
	for i, h := range holders {
		if text := texts[i].Val(); text != "" {
			d.Records[h] = dumpRecord(t, text)
		}
	}
	return d
}

func dumpState(t testing.TB, config, state string) lease.BucketDump {
	t.Helper()
	parts := strings.Split(state, "|")
	if len(parts) != 3 {
		t.Fatalf("state %q", state)
	}
	f := strings.Fields(parts[0])
	n := ints(t, f[:13])
	d := lease.BucketDump{
		Exists: true, Epoch: n[1], Counter: n[2], Created: n[3], Now: n[4], Frozen: n[5],
		Width: n[7], Gen: n[8], MovedAt: n[9], Landing: n[10], Updated: n[11], ContendedUntil: n[12],
		Share: float(t, f[13]), Records: make(map[string]lease.RecordDump),
	}
	var err error
	if d.Config, err = parseConfig(config, time.Duration(n[6])*time.Microsecond); err != nil {
		t.Fatal(err)
	}
	levels := ints(t, strings.Fields(parts[1]))
	for k := range len(levels) / 2 {
		d.Level[k], d.Rest[k] = levels[2*k], levels[2*k+1]
	}
	ring := ints(t, strings.Fields(parts[2]))
	for i := 0; i < len(ring); i += 3 {
		d.Held[ring[i]], d.Weight[ring[i]] = ring[i+1], ring[i+2]
	}
	return d
}

// dumpRecord leaves out the birth and the epoch, which only say whether the record counts.
func dumpRecord(t testing.TB, text string) lease.RecordDump {
	t.Helper()
	f := strings.Fields(text)
	n := ints(t, f[:11])
	return lease.RecordDump{
		Seq: n[2], Gen: n[3], Slice: n[4], Ends: n[5], Held: n[6], Weight: n[7], Granted: n[8], Void: n[9] == 1, Last: n[10],
		Allowance: float(t, f[11]),
	}
}

// diffDump says where the stored bucket differs from the reference. A record that the reference does not know is
// as good as absent.
func diffDump(want, got lease.BucketDump) string {
	var b strings.Builder
	for h, r := range want.Records {
		if g, ok := got.Records[h]; !ok || g != r {
			fmt.Fprintf(&b, "record %q: want %+v, got %+v\n", h, r, g)
		}
	}
	want.Records, got.Records = nil, nil
	if w, g := fmt.Sprintf("%+v %b", want, want.Share), fmt.Sprintf("%+v %b", got, got.Share); w != g {
		fmt.Fprintf(&b, "state:\nwant %s\ngot  %s\n", w, g)
	}
	return b.String()
}

func ints(t testing.TB, fields []string) []int64 {
	t.Helper()
	out := make([]int64, len(fields))
	for i, f := range fields {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		out[i] = n
	}
	return out
}

func float(t testing.TB, text string) float64 {
	t.Helper()
	x, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

package redisbucket

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/lease"
)

// stored reads what Redis holds of one bucket into the form of lease.Bucket.Dump, so that both can
// be compared. The records of all given holders are read, live or not.
func stored(t testing.TB, rdb redis.UniversalClient, s *Store, key string,
	holders []string) lease.BucketDump {
	t.Helper()
	ctx := context.Background()
	bucket := s.bucketKey(key)
	pipe := rdb.Pipeline()
	state := pipe.Get(ctx, bucket)
	texts := make([]*redis.StringCmd, len(holders))
	for i, h := range holders {
		texts[i] = pipe.Get(ctx, recordKey(bucket, h))
	}
	if _, err := pipe.Exec(ctx); err != nil && err != redis.Nil {
		t.Fatal(err)
	}
	if state.Val() == "" {
		return lease.BucketDump{}
	}
	d := dumpState(t, state.Val())
	for i, h := range holders {
		if text := texts[i].Val(); text != "" {
			d.Records[h] = dumpRecord(t, text)
		}
	}
	return d
}

// stateNumbers and recordNumbers are how many numbers begin a bucket and make up a record; see
// common.lua and lease.lua.
const stateNumbers, recordNumbers = 35, 13

func dumpState(t testing.TB, text string) lease.BucketDump {
	t.Helper()
	limits := (len(text)/8 - stateNumbers - 5 + 2) / 9
	config := text[8*stateNumbers:][:configSize(limits)]
	f := floats(t, text[:8*stateNumbers], stateNumbers)
	n := ints(t, append(f[:16:16], f[17:]...))
	d := lease.BucketDump{
		Exists: true, Created: n[0], Epoch: n[1], Counter: n[2], Clock: n[3], Now: n[4], Frozen: n[5],
		SetAt: n[6], Keep: n[7],
		Proposed: n[9], ProposedAt: n[10], Width: n[11], Gen: n[12], MovedAt: n[13], Updated: n[14],
		ContendedUntil: n[15],
		Share:          f[16], Records: make(map[string]lease.RecordDump),
	}
	d.Level[0], d.Rest[0] = n[16], n[17]
	copy(d.Held[:], n[18:26])
	copy(d.Weight[:], n[26:])
	var err error
	if d.Config, err = parseConfig(config, time.Duration(n[8])*time.Microsecond); err != nil {
		t.Fatal(err)
	}
	levels := ints(t, floats(t, text[8*stateNumbers+len(config):], 2*(limits-1)))
	for k := 1; k < limits; k++ {
		d.Level[k], d.Rest[k] = levels[2*k-2], levels[2*k-1]
	}
	return d
}

// dumpRecord leaves out the birth and the epoch, which only say whether the record counts.
func dumpRecord(t testing.TB, text string) lease.RecordDump {
	t.Helper()
	f := floats(t, text, recordNumbers)
	n := ints(t, f[:12])
	return lease.RecordDump{
		Seq: n[2], Gen: n[3], Slice: n[4], Ends: n[5], Held: n[6], Weight: n[7], Granted: n[8],
		Void: n[9] == 1, Since: n[10], Last: n[11],
		Allowance: f[12],
	}
}

// diffDump says where the stored bucket differs from the reference. A record that the reference
// does not know is as good as absent.
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

// floats reads n doubles, which must be all of text.
func floats(t testing.TB, text string, n int) []float64 {
	t.Helper()
	if len(text) != 8*n {
		t.Fatalf("%d bytes, want %d doubles: %q", len(text), n, text)
	}
	out := make([]float64, n)
	for i := range out {
		out[i] = math.Float64frombits(binary.LittleEndian.Uint64([]byte(text[8*i:])))
	}
	return out
}

func ints(t testing.TB, values []float64) []int64 {
	t.Helper()
	out := make([]int64, len(values))
	for i, x := range values {
		if out[i] = int64(x); float64(out[i]) != x {
			t.Fatalf("%v is not a whole number: %v", x, values)
		}
	}
	return out
}

// doubles writes values as the scripts store them.
func doubles(values ...float64) string {
	var b []byte
	for _, x := range values {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
	}
	return string(b)
}

// setNumber is text with its i-th number replaced.
func setNumber(text string, i int, x float64) string {
	return text[:8*i] + doubles(x) + text[8*i+8:]
}

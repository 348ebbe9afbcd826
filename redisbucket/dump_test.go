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

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// texts is what Redis holds of one bucket and of the records of some holders; what is not there is
// empty.
type texts struct {
	state   string
	records map[string]string
}

func textsOf(t testing.TB, s *Store, key string, holders ...string) texts {
	t.Helper()
	ctx, bucket, pipe := context.Background(), s.bucketKey(key), s.rdb.Pipeline()
	state, records := pipe.Get(ctx, bucket), make(map[string]*redis.StringCmd)
	for _, h := range holders {
		records[h] = pipe.Get(ctx, recordKey(bucket, h))
	}
	_, err := pipe.Exec(ctx)
	testkit.Must(t, err == nil || err == redis.Nil, "%v", err)
	x := texts{state.Val(), make(map[string]string)}
	for h, text := range records {
		x.records[h] = text.Val()
	}
	return x
}

// put stores x where nothing is.
func (x texts) put(t testing.TB, s *Store, key string) {
	t.Helper()
	values, bucket := map[string]string{s.bucketKey(key): x.state}, s.bucketKey(key)
	for h, text := range x.records {
		values[recordKey(bucket, h)] = text
	}
	for k, text := range values {
		if text != "" {
			testkit.NoErr(t, s.rdb.Set(context.Background(), k, text, 0).Err())
		}
	}
}

// stateNumbers and recordNumbers are how many numbers begin a bucket and make up a record; see
// common.lua and lease.lua.
const stateNumbers, recordNumbers = 35, 13

// dump reads x into the form of lease.Bucket.Dump, with the records of all holders, live or not.
func (x texts) dump(t testing.TB) lease.BucketDump {
	t.Helper()
	if x.state == "" {
		return lease.BucketDump{}
	}
	limits := (len(x.state)/8 - stateNumbers - 5 + 2) / 9
	config := x.state[8*stateNumbers:][:configSize(limits)]
	f := floats(t, x.state[:8*stateNumbers], stateNumbers)
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
	d.Config, err = parseConfig(config, time.Duration(n[8])*time.Microsecond)
	testkit.NoErr(t, err)
	levels := ints(t, floats(t, x.state[8*stateNumbers+len(config):], 2*(limits-1)))
	for k := 1; k < limits; k++ {
		d.Level[k], d.Rest[k] = levels[2*k-2], levels[2*k-1]
	}
	for h, text := range x.records {
		if text == "" {
			continue
		}
		// the first two are the birth and the epoch, which only say whether the record counts
		f := floats(t, text, recordNumbers)
		n := ints(t, f[:12])
		d.Records[h] = lease.RecordDump{Seq: n[2], Gen: n[3], Slice: n[4], Ends: n[5], Held: n[6],
			Weight: n[7], Granted: n[8], Void: n[9] == 1, Since: n[10], Last: n[11], Allowance: f[12]}
	}
	return d
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
	testkit.Must(t, len(text) == 8*n, "%d bytes, want %d doubles: %q", len(text), n, text)
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
		out[i] = int64(x)
		testkit.Must(t, float64(out[i]) == x, "%v is not a whole number: %v", x, values)
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

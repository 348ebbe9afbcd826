package redisbucket

import (
	"context"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket/redistest"
)

// FuzzStored: whatever text stands where a bucket's state, configuration or record should be, a call either calls it
// damaged and leaves it alone, or takes it, answers with a sound grant, and stores what the next call takes
// as well. The scripts never fail half way.
//
// (Numbers at the very end of what is read may grow beyond it, as no call of this library can bring about: there, the
// next call may call the bucket damaged.)
//
//	go test ./redisbucket -run '^$' -fuzz FuzzStored
func FuzzStored(f *testing.F) {
	const config = "0 0 0 0 100000000;100 1000000000 0 100 10000 1 1"
	const state = "1700000000000000 1700000000000000 1 1700000000000000 1700000000000000 0 400000 57143 0 0 0 1700000000000000 0 0.0001|900000 0| 4 10 1"
	const record = "1700000000000000 1700000000000000 1 0 29749925612 1700000000400000 10 1 10 1 1700000000000000 0"
	const now, seq = uint64(1_700_000_000_100_000), uint64(2)
	f.Add(config, state, record, now, seq)
	f.Add(config, state, "", now, uint64(1))
	f.Add("0 0 5 1 100000000;100 1000000000 0 100 10000 1 1;7 86400000000000 9 9 86400000 7 1000", "1 1 1 -5 9 0 2 1 0 0 0 1 -3 1e-10|1 0 5 999|", record, now, seq)
	f.Add(config, "0 0 0 0 0 0 2 1 0 0 0 0 0 9007199254740991|0 0|", record, uint64(0), seq)
	f.Add(config, "9007199254740991 9007199254740991 9007199254740991 9007199254740991 4503599627370495 4503603227370495 3600000000 3600000000 "+
		"9007199254740991 9007199254740991 9007199254740991 9007199254740991 9007199254740991 1.5e-300|1000000 0| 0 4503599627370495 0", record, uint64(1<<52-1), uint64(1<<52-1))
	f.Add(config, strings.Replace(state, "0.0001", "1e1e1", 1), record, now, seq)
	f.Add(config, strings.Replace(state, "|900000", "|1000001", 1), record, now, seq)
	f.Add(config, strings.Replace(state, " 4 10 1", " 4 1 1", 1), record, now, seq)
	f.Add(config, state, strings.Replace(record, "1700000000000000 0", "1700000000000000 e", 1), now, seq)
	f.Add("", "", "", uint64(0), uint64(1))
	f.Add("nan", "inf", "-nan", uint64(0), uint64(1))
	redistest.Require(f) // miniredis is another Lua; what it makes of odd numbers says nothing about Redis
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(f).Addr})
	f.Cleanup(func() { rdb.Close() })
	f.Fuzz(func(t *testing.T, config, state, record string, now, seq uint64) {
		// given any texts in the places of one bucket
		ctx := context.Background()
		s, err := New(rdb, Config{})
		if err != nil {
			t.Fatal(err)
		}
		s.now = func() string { return strconv.FormatUint(now%(1<<52), 10) }
		bucket := s.bucketKey("k")
		pipe := rdb.TxPipeline()
		pipe.Del(ctx, bucket, recordKey(bucket, "h"))
		pipe.HSet(ctx, bucket, "c", config, "s", state)
		if record != "" {
			pipe.Set(ctx, recordKey(bucket, "h"), record, 0)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			t.Fatal(err)
		}
		before := texts{config, state, record}

		// when it is inspected, and a holder calls
		_, inspectErr := s.Inspect(ctx, "k")
		r := request(max(1, int64(seq%(1<<52))))
		r.Remaining, r.Epoch, r.Counter, r.HeardTTL = 3, 1_700_000_000_000_000, 1, 400*time.Millisecond
		g, err := exchange(s, "k", r)
		for _, e := range []error{inspectErr, err} {
			if e == nil || errors.Is(e, errDamaged) || errors.Is(e, lease.ErrStale) {
				continue
			}
			if errors.Is(e, ErrReply) {
				continue // what the script took is checked once more in Go
			}
			t.Fatalf("neither taken nor called damaged: %v", e)
		}
		after := textsOf(t, rdb, bucket)
		switch {
		case errors.Is(err, errDamaged), errors.Is(err, lease.ErrStale):
			// then nothing was touched,
			if after != before {
				t.Fatalf("%v, and yet\n%+v became\n%+v", err, before, after)
			}
		default:
			// or what was stored is taken by the next call, with a grant that can be.
			if err == nil && (g.Granted < 0 || g.Granted > r.Want) {
				t.Fatalf("%+v", g)
			}
			r.Seq++
			if _, again := exchange(s, "k", r); err == nil && again != nil && r.Validate() == nil && !before.extreme() {
				t.Fatalf("taken, and then %v:\n%+v became\n%+v", again, before, after)
			}
		}
	})
}

// texts is everything that Redis holds of the bucket "k" and its holder "h".
type texts struct{ config, state, record string }

// extreme reports whether a number is so large that it may grow beyond 2^53.
func (x texts) extreme() bool {
	for _, digits := range regexp.MustCompile(`[0-9]+`).FindAllString(x.config+" "+x.state+" "+x.record, -1) {
		if n, err := strconv.ParseUint(digits, 10, 64); err != nil || n >= 1<<52 {
			return true
		}
	}
	return false
}

func textsOf(t *testing.T, rdb *redis.Client, bucket string) texts {
	t.Helper()
	ctx := context.Background()
	pipe := rdb.Pipeline()
	hash, record := pipe.HGetAll(ctx, bucket), pipe.Get(ctx, recordKey(bucket, "h"))
	if _, err := pipe.Exec(ctx); err != nil && err != redis.Nil {
		t.Fatal(err)
	}
	return texts{hash.Val()["c"], hash.Val()["s"], record.Val()}
}

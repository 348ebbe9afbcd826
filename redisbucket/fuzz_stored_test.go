package redisbucket

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/lease"
)

// FuzzStored: whatever bytes stand where a bucket or a record should be, a call either calls it
// damaged and leaves it alone, or takes it, answers with a sound grant, and stores what the next
// call takes as well. The scripts never fail half way.
//
// (Numbers near the end of what is read may grow beyond it, as no call of this library can bring
// about: there, the next call may call the bucket damaged. It writes nothing then.)
//
//	go test ./redisbucket -run '^$' -fuzz FuzzStored
func FuzzStored(f *testing.F) {
	const now, seq = uint64(1_700_000_000_100_000), uint64(2)
	const born, last, top = 1_700_000_000_000_000, 1<<52 - 1, 1<<53 - 1
	config := textOf(f, request(1).Config)
	fields := [stateNumbers]float64{born, born, 1, born, born, 0, born, born + 2_000_000, 400_000, 400_000,
		born, 57_143, 0, 0, born, 0,
		0.0001, 900_000, 0, 4 + 19: 10, 4 + 27: 1}
	good := doubles(fields[:]...) + config
	record := doubles(born, born, 1, 0, 29_749_925_612, born+400_000, 10, 1, 10, 1, 1, born, 0)
	two := request(1).Config
	two.Limits = append(two.Limits, lease.Limit{Tokens: 7, Per: 24 * time.Hour, Burst: 9})
	two.Overcommit, two.StartEmpty = 5, true
	f.Add(good, record, now, seq)
	f.Add(good, "", now, uint64(1))
	ring := doubles(make([]float64, 16)...) // that is empty
	f.Add(doubles(1, 1, 1, 5, 9, 0, 3, 20, 2, 2, 4, 1, 0, 0, 1, 0, 1e-10, 1, 0)+ring+textOf(f, two)+doubles(5, 0),
		record, now, seq)
	f.Add(doubles(0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 0, 1, 0, 0, 0, 0, top, 0, 0)+ring+config,
		record, uint64(0), seq)
	f.Add(doubles(last, last, last, top, last, last+7_200_000_000, last, top, 3_600_000_000, 3_600_000_000,
		last, 3_600_000_000, top, last, last, top, 1.5e-300, 1_000_000, 0, last)+ring[8:]+config,
		record, uint64(last), uint64(last))
	for _, bad := range []float64{math.NaN(), math.Inf(1), -1, 0.5, 1 << 60} {
		for _, i := range []int{0, 3, 4, 5, 7, 8, 10, 11, 16, 17, 18, 23} {
			f.Add(setNumber(good, i, bad), record, now, seq)
		}
		f.Add(good, setNumber(record, 12, bad), now, seq)
	}
	f.Add(setNumber(good, 17, 1_000_001), record, now, seq)
	f.Add(setNumber(good, 23, 1), record, now, seq)
	f.Add("", "", uint64(0), uint64(1))
	f.Add(good[:len(good)-1], record[:103], uint64(0), uint64(1))
	redistest.Require(f) // miniredis is another Lua; what it makes of odd numbers says nothing about Redis
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(f).Addr})
	f.Cleanup(func() { rdb.Close() })
	f.Fuzz(func(t *testing.T, state, record string, now, seq uint64) {
		// given any texts in the places of one bucket
		ctx := context.Background()
		s := storeOn(t, rdb)
		s.now = func() string { return strconv.FormatUint(now%(1<<52), 10) }
		bucket := s.bucketKey("k")
		pipe := rdb.TxPipeline()
		pipe.Del(ctx, bucket, recordKey(bucket, "h"))
		pipe.Set(ctx, bucket, state, 0)
		if record != "" {
			pipe.Set(ctx, recordKey(bucket, "h"), record, 0)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			t.Fatal(err)
		}
		before := texts{state, record}

		// when it is inspected, and a holder calls
		_, inspectErr := s.Inspect(ctx, "k")
		r := request(max(1, int64(seq%(1<<52))))
		r.Remaining, r.Epoch, r.Counter, r.LeaseMax = 3, 1_700_000_000_000_000, 1, 400*time.Millisecond
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
			if _, again := exchange(s, "k", r); err == nil && again != nil && r.Validate() == nil &&
				!before.extreme() {
				t.Fatalf("taken, and then %v:\n%+v became\n%+v", again, before, after)
			}
		}
	})
}

// texts is everything that Redis holds of the bucket "k" and its holder "h".
type texts struct{ state, record string }

// extreme reports whether a number is so large that it may grow beyond 2^52.
func (x texts) extreme() bool {
	for _, text := range []string{x.state, x.record} {
		for ; len(text) >= 8; text = text[8:] {
			if n := math.Float64frombits(binary.LittleEndian.Uint64([]byte(text))); !(n < 1<<51) {
				return true
			}
		}
	}
	return false
}

func textsOf(t *testing.T, rdb *redis.Client, bucket string) texts {
	t.Helper()
	ctx := context.Background()
	pipe := rdb.Pipeline()
	state, record := pipe.Get(ctx, bucket), pipe.Get(ctx, recordKey(bucket, "h"))
	if _, err := pipe.Exec(ctx); err != nil && err != redis.Nil {
		t.Fatal(err)
	}
	return texts{state.Val(), record.Val()}
}

package faults

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// damage is what somebody else does to the key of a bucket.
type damage struct {
	name string
	do   func(rdb *redis.Client, bucket string) error
}

func damages() []damage {
	ctx := context.Background()
	change := func(name string, change func(old string) string) damage {
		return damage{name, func(rdb *redis.Client, bucket string) error {
			old, err := rdb.Get(ctx, bucket).Result()
			if err != nil {
				return err
			}
			return rdb.Set(ctx, bucket, change(old), redis.KeepTTL).Err()
		}}
	}
	number := func(i int, to float64) func(string) string {
		return func(old string) string {
			return old[:8*i] + string(binary.LittleEndian.AppendUint64(nil,
				math.Float64bits(to))) + old[8*i+8:]
		}
	}
	const counter, level, config = 2, 17, 35 // of the numbers of a bucket, see common.lua
	all := []damage{
		{"WRONGTYPE, a hash", func(rdb *redis.Client, bucket string) error {
			return errors.Join(rdb.Del(ctx, bucket).Err(), rdb.HSet(ctx, bucket, "tokens", "5").Err())
		}},
		{"WRONGTYPE, a list", func(rdb *redis.Client, bucket string) error {
			return errors.Join(rdb.Del(ctx, bucket).Err(), rdb.RPush(ctx, bucket, "5").Err())
		}},
		change("configuration missing", func(old string) string { return old[:8*config] }),
		change("cut off", func(old string) string { return old[:len(old)/2] }),
		change("zeros", func(old string) string { return strings.Repeat("\x00", len(old)) }),
	}
	for _, bad := range []string{"", "5", "nan", "-1", "99999999999999999999"} {
		all = append(all, change(fmt.Sprintf("it is %q", bad), func(string) string { return bad }))
	}
	for _, bad := range []float64{math.NaN(), math.Inf(1), -1, 0.5, 1e300, 1 << 53} {
		all = append(all, change(fmt.Sprintf("counter is %v", bad), number(counter, bad)),
			change(fmt.Sprintf("level is %v", bad), number(level, bad)),
			change(fmt.Sprintf("version is %v", bad), number(config, bad)))
	}
	return all
}

func TestRow25DamagedBucketsAreNamedNeverServedAndNeverRepaired(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := redistest.Start(t)
	rdb := client(t, server.Addr)
	store := storeOn(t, client(t, server.Addr))
	var log diary
	cfg := patient(hourly, denying)
	cfg.Logger = log.logger()
	f := NewFleet(t, Options{Size: 1, Addr: server.Addr, Config: cfg})
	l := f.Limiters[0]
	names := make(map[string]damage)
	for i, d := range damages() {
		name := fmt.Sprint("damaged-", i)
		names[name] = d
		// Given a bucket in use
		if !l.Allow(name) {
			t.Fatal("denied")
		}
	}
	testkit.Eventually(t, "nothing that is held", func() bool { return l.Stats().Held == 0 })
	for name, d := range names {
		// when somebody else writes into it,
		must(t, d.do(rdb, bucketOf(name)))
	}
	stored, admitted := contents(t, rdb), l.Stats().Admitted
	for name, d := range names {
		// then whoever asks is denied, and told that no store answered for it,
		var r hybrid.Result
		var err error
		testkit.Eventually(t, "a verdict", func() bool {
			r, err = l.Take(ctx, name, 1)
			return err != nil || r.OK || r.Source == hybrid.SourceFallback
		})
		if r.OK || err != nil {
			t.Errorf("%s: %+v, %v", d.name, r, err)
		}
		// the operator reads which key it is in the error of a tool,
		_, err = store.Inspect(ctx, name)
		if !errors.Is(err, lease.ErrPermanent) || !strings.Contains(err.Error(), fmt.Sprintf("%q", name)) {
			t.Errorf("%s: Inspect says %v", d.name, err)
		}
		// nobody can make it worse by asking for a reset,
		if _, err := store.Configure(ctx, name, lease.OpReset, lease.Config{}); !errors.Is(err,
			lease.ErrPermanent) {
			t.Errorf("%s: a reset says %v", d.name, err)
		}
	}
	// and nothing has been served, or repaired behind the operator's back.
	if now := contents(t, rdb); now != stored {
		t.Errorf("before:\n%s\nafter:\n%s", stored, now)
	}
	testkit.Eventually(t, "the log to name one of the damaged keys", func() bool {
		return strings.Contains(log.String(), "key=damaged-") && strings.Contains(log.String(),
			"stored state is damaged")
	})
	if s := l.Stats(); s.Admitted != admitted {
		t.Errorf("%d admitted from damaged buckets", s.Admitted-admitted)
	}
	// When the operator has deleted the bucket, its key is served again: as a lost one, which starts
	// empty.
	for name, d := range names {
		must(t, rdb.Del(ctx, bucketOf(name)).Err())
		testkit.Eventually(t, "a verdict of the store on "+d.name, func() bool {
			r, err := l.Take(ctx, name, 1)
			return err == nil && r.Source != hybrid.SourceFallback
		})
		if st, err := store.Inspect(ctx, name); err != nil || !st.Exists || st.Levels[0] != 0 {
			t.Errorf("%s: after the key was deleted: %+v, %v", d.name, st, err)
		}
	}
}

// TestRow25ADamagedBucketIsNotAskedInALoop: what no retry cures is asked at the pace of a probe,
// however many want it.
func TestRow25ADamagedBucketIsNotAskedInALoop(t *testing.T) {
	t.Parallel()
	// Given a process under load whose bucket becomes a string,
	ctx := context.Background()
	server := redistest.Start(t)
	rdb := client(t, server.Addr)
	f, _ := saturated(t, 1, server.Addr)
	l := f.Limiters[0]
	must(t, errors.Join(rdb.Del(ctx, bucketOf(key)).Err(), rdb.Set(ctx, bucketOf(key), "x", 0).Err()))
	testkit.Eventually(t, "a failed call", func() bool { return l.Stats().Errors > 0 })
	// when it goes on asking thousands of times,
	from, calls := f.Now(), l.Stats().Calls
	f.Next(key, 5000)
	took := f.Now() - from
	// then Redis hears of a few of them: a probe every half T (200 ms) on average, and sooner at
	// first.
	made := l.Stats().Calls - calls
	if most := 10 + int64(took/(20*1e6)); made > most {
		t.Errorf("%d calls in %v, at most %d were to be expected", made, took, most)
	}
	t.Logf("%d calls in %v for %d requests", made, took, 5000)
}

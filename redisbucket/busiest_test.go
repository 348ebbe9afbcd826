package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/keyhash"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// readings returns what a walk reads of the keys with a prefix, by key and holder.
func readings(t *testing.T, s *Store, of string) map[string]reading {
	t.Helper()
	all := map[string]reading{}
	w := walk{Store: s, of: of, count: 10, each: func(r reading) { all[r.key+"|"+r.holder] = r }}
	testkit.NoErr(t, w.all(t.Context()))
	return all
}

func TestAWalkReadsEveryBucketAndEveryLease(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		// given buckets of odd keys, each with two holders, and keys of others
		want := map[string]bool{}
		for _, key := range oddKeys {
			if lease.ShortKey(key) != key || len(tag(key)) > lease.KeyMax {
				continue
			}
			for _, holder := range []string{"a", "b:}{"} {
				r := request(1)
				r.Holder, r.Want, r.Waiting, r.Denied, r.Config.TTL = holder, 3, 5, 7, time.Minute
				g := granted(t, s, key, r)
				r.Seq, r.Epoch, r.Counter, r.Remaining, r.Waiting, r.Want = 2, g.Epoch, g.Counter, 0, 0, 4
				granted(t, s, key, r)
				if name := strings.TrimPrefix(tag(key), "%h:"); name == tag(key) {
					want[key+"|"], want[key+"|"+holder] = true, true
				}
			}
		}
		for _, other := range []string{"yuzhi", "yuzhi:",
			"yuzhi:{", "yuzhi:{}", "yuzhi:{a}b", "yuzhi:{a}:", "other"} {
			testkit.NoErr(t, s.rdb.Set(ctx, other, "x", 0).Err())
		}
		testkit.NoErr(t, s.rdb.RPush(ctx, "yuzhi:{list}", "x").Err())
		testkit.NoErr(t, s.rdb.Set(ctx, "yuzhi:{text}", "x", 0).Err())
		// when they are read
		all := readings(t, s, "")
		// then each has its counters, and those that are no buckets an error
		for name := range want {
			r, ok := all[name]
			testkit.Check(t, ok && r.err == nil, "%q: %+v", name, r)
			if r.holder == "" {
				testkit.Check(t, r.epoch > 0 && r.counter == 4 && r.spent == 6 && r.denied == 28, "%q: %+v", name, r)
			} else {
				testkit.Check(t, r.waiting == 0 && r.spent == 0, "%q: %+v", name, r)
			}
		}
		for _, none := range []string{"list|", "text|"} {
			testkit.Check(t, all[none].err != nil, "%s: %+v", none, all[none])
		}
		for name, r := range all {
			hashed := keyhash.Is(r.key)
			testkit.Check(t, want[name] || r.err != nil || hashed, "%q is read, and is no bucket", name)
		}
		// When those of a Limiter are asked for, then no others are read,
		granted(t, s, "@api:x", request(1))
		granted(t, s, "@ap?:y", request(1))
		granted(t, s, "@draw:z", drawOf(1, 3))
		for _, of := range []string{"@api:", "@ap?:"} {
			all = readings(t, s, of)
			testkit.Check(t, len(all) == 2, "of %s: %v", of, all)
		}
		// also of a bucket at rest, in the short form.
		r := readings(t, s, "@draw:")["@draw:z|"]
		testkit.Check(t, r.spent == 3 && r.counter == 1 && r.epoch > 0 && r.err == nil, "%+v", r)
	})
}

// TestBusiestReturnsTheKeysThatAreUsedMeanwhile on a server with other keys, and with a value that is no
// bucket.
func TestBusiestReturnsTheKeysThatAreUsedMeanwhile(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *Store) {
		for i := range 30 {
			granted(t, s, fmt.Sprint("k", i), request(1))
		}
		testkit.NoErr(t, s.rdb.Set(t.Context(), "yuzhi:{text}", "x", 0).Err())
		// given two keys that are denied all the time, by holders that come once
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() {
			for n := 0; ctx.Err() == nil; n++ {
				for i, denied := range []int64{5, 20} {
					r := request(1)
					r.Holder, r.Denied, r.Want = fmt.Sprint("h", n), denied, 0
					_, _ = exchange(s, fmt.Sprint("k", 7+i), r)
				}
			}
		}()
		testkit.EventuallyNil(t, func() error {
			b, err := s.Busiest(ctx, BusiestOptions{By: ByDenied, Count: 3, Interval: 200 * time.Millisecond})
			if err != nil || b.Read != 30 || b.LeftOut != 0 || b.Unreadable != 1 || len(b.Keys) != 3 {
				return fmt.Errorf("%+v, %w", b, err)
			}
			// then they come first, with their rates, limits and levels
			first, second, third := b.Keys[0], b.Keys[1], b.Keys[2]
			if first.Key != "k8" || second.Key != "k7" || first.Denied <= 2*second.Denied || second.Calls <= 0 ||
				first.Holders < 2 || third.Denied != 0 || third.Key != "k0" ||
				!slices.Equal(first.Limits, request(1).Config.Limits) || len(first.Levels) != 1 {
				return fmt.Errorf("%+v", b.Keys)
			}
			return nil
		})
	})
}

func TestBusiestEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s := newStore(t, redistest.Start(t).Addr)
	for i := range 100 {
		granted(t, s, fmt.Sprint("k", i), request(1))
	}
	// given a walk that has to wait because of its pace, and a reading that waits for the next one
	ctx, cancel := context.WithCancel(t.Context())
	read := 0
	w := walk{Store: s, count: 10, perSecond: 1, each: func(reading) { read++; cancel() }}
	err := w.all(ctx)
	testkit.Check(t, errors.Is(err, context.Canceled) && read < 100, "%v after %d readings", err, read)
	ctx, cancel = context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = s.Busiest(ctx, BusiestOptions{Interval: time.Hour})
	testkit.Check(t, errors.Is(err, context.DeadlineExceeded), "%v", err)
	_, err = s.Busiest(t.Context(), BusiestOptions{By: "name"})
	testkit.Check(t, errors.Is(err, lease.ErrInvalidConfig), "%v", err)
}

// usesOf returns the uses after two readings, a second apart.
func usesOf(keysMax int, first, second []reading) *uses {
	u := &uses{keysMax: keysMax, keys: map[string]*use{}}
	for i, readings := range [][]reading{first, second} {
		u.pass, u.leftOut, u.unreadable = i+1, 0, 0
		for _, r := range readings {
			r.at = time.Unix(int64(i), 0)
			u.add(r)
		}
	}
	return u
}

func TestRatesFollowFromTwoReadings(t *testing.T) {
	bad := errors.New("WRONGTYPE")
	u := usesOf(100, []reading{
		{key: "a", epoch: 1, spent: 100, denied: 5, counter: 7},
		{key: "end", epoch: 1, spent: 1<<48 - 10, denied: 1<<48 - 1, counter: 5},
		{key: "lost", epoch: 1, spent: 50, counter: 10}, {key: "behind", epoch: 1, spent: 50, counter: 10},
		{key: "a", holder: "h", waiting: 9}, {key: "list", err: bad},
	}, []reading{
		{key: "a", holder: "g", waiting: 2},
		{key: "a", epoch: 1, spent: 130, denied: 6, counter: 9},
		{key: "a", epoch: 1, spent: 131, denied: 6, counter: 9}, // a scan may return a key twice
		{key: "a", holder: "h", waiting: 1},
		{key: "end", epoch: 1, spent: 5, denied: 3, counter: 6},
		{key: "lost", epoch: 2, spent: 60, counter: 11}, {key: "behind", epoch: 1, spent: 40, counter: 9},
		{key: "new", epoch: 3, spent: 1000},
		{key: "list", err: bad}, {key: "text", holder: "h", err: bad},
	})
	got := u.top(BySpent, 50)
	want := []KeyUse{
		{Key: "a", Spent: 30, Denied: 1, Calls: 2, Holders: 2, Waiting: 3},
		{Key: "end", Spent: 15, Denied: 4, Calls: 1}, // a counter that begins anew
		{Key: "behind", New: true},                   // a replica that lacked calls was promoted
		{Key: "lost", New: true},                     // another epoch
		{Key: "new", New: true},
	}
	testkit.Check(t, reflect.DeepEqual(got, want) && u.unreadable == 2, "%+v, %d unreadable", got, u.unreadable)
	for by, want := range map[Order]string{ByDenied: "end a", ByCalls: "a end", ByWaiting: "a behind"} {
		top := u.top(by, 2)
		got := top[0].Key + " " + top[1].Key
		testkit.Check(t, got == want, "by %s: %s, want %s", by, got, want)
	}
	// and the number of keys is bounded
	var all []reading
	for i := range 30 {
		all = append(all, reading{key: fmt.Sprint(i), epoch: 1}, reading{key: fmt.Sprint(i), holder: "h"})
	}
	u = usesOf(20, all, all)
	testkit.Check(t, len(u.keys) == 20 && u.leftOut == 10, "%d keys, %d left out", len(u.keys), u.leftOut)
}

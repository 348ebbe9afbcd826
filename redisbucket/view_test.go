package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// looks compares what plain reads find with what the script says, st, and with the reference.
func (x *trio) looks(st lease.State) {
	x.t.Helper()
	s := x.stores[0]
	v, err := s.Look(context.Background(), x.key)
	st.Changed = false
	want, _ := x.bucket.Dump().At(x.now)
	holders := len(want.Records)
	for _, h := range v.Holders {
		r := want.Records[h.ID]
		want := Holder{ID: h.ID, Held: r.Held, Waiting: r.Waiting, Weight: r.Weight,
			Granted: r.Granted, Void: r.Void,
			Heard:  time.Duration(want.Now-r.Last) * time.Microsecond,
			Expiry: time.Duration(r.Ends-want.Now) * time.Microsecond}
		if h != want {
			x.fatalf("a look at %s: %+v, want %+v", h.ID, h, want)
		}
	}
	if err != nil || !reflect.DeepEqual(v.State, st) || len(v.Holders) != holders {
		x.fatalf("a look says otherwise:\nwant %+v, %d holders\ngot  %+v, %d holders, %v", st, holders, v.State,
			len(v.Holders), err)
	}
	both, err := s.Views(context.Background(), []string{"no such key", x.key})
	if err != nil || both[0].Exists || !reflect.DeepEqual(both[1].State, st) {
		x.fatalf("Views says otherwise:\nwant %+v\ngot  %+v, %v", st, both, err)
	}
}

// readings returns the Readings of a Scan, by key and holder.
func readings(t *testing.T, s *Store, o Scan) map[string]Reading {
	t.Helper()
	all := map[string]Reading{}
	begun := time.Now()
	testkit.NoErr(t, s.Scan(t.Context(), o, func(r Reading) {
		testkit.Check(t, !r.At.Before(begun) && !r.At.After(time.Now()), "read at %v", r.At)
		r.At = time.Time{}
		all[r.Key+"|"+r.Holder] = r
	}))
	return all
}

func TestAScanTellsEveryBucketAndEveryLease(t *testing.T) {
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
		// when they are scanned
		all := readings(t, s, Scan{Count: 10})
		// then each is told with what it counts, also that two are none
		for name := range want {
			r, ok := all[name]
			testkit.Check(t, ok && r.Err == nil && r.Epoch > 0, "%q: %+v", name, r)
			if r.Holder == "" {
				testkit.Check(t, r.Counter == 4 && r.Spent == 6 && r.Denied == 28 && r.Held == 0, "%q: %+v", name, r)
			} else {
				testkit.Check(t, r.Held == 4 && r.Weight == 1 && r.Waiting == 0 && r.Spent == 0, "%q: %+v", name, r)
			}
		}
		for _, none := range []string{"list|", "text|"} {
			testkit.Check(t, all[none].Err != nil, "%s: %+v", none, all[none])
		}
		for name, r := range all {
			hashed := lease.IsKeyHash(r.Key)
			testkit.Check(t, want[name] || r.Err != nil || hashed, "%q is told, and nobody's", name)
		}
		// when only those of a Limiter are asked for, then only they are told
		granted(t, s, "@api:x", request(1))
		granted(t, s, "@ap?:y", request(1))
		granted(t, s, "@draw:z", drawOf(1, 3))
		for _, of := range []string{"@api:", "@ap?:"} {
			all = readings(t, s, Scan{Of: of})
			testkit.Check(t, len(all) == 2, "of %s: %v", of, all)
		}
		// also of a bucket at rest, in the short form
		r := readings(t, s, Scan{Of: "@draw:"})["@draw:z|"]
		testkit.Check(t, r.Spent == 3 && r.Counter == 1 && r.Epoch > 0 && r.Created == r.Epoch && r.Err == nil,
			"%+v", r)
	})
}

// A look or a scan writes nothing. A read-only user and a replica can do both.
func TestLooksAreReads(t *testing.T) {
	ctx := t.Context()
	server := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	s, begun := newStore(t, server.Addr), time.Now()
	for i := range 50 {
		r := request(1)
		r.Want, r.Waiting, r.Config.TTL = 500, 500, time.Minute
		granted(t, s, fmt.Sprint("k", i), r)
	}
	// given a user with permission to read and to ask for the time
	testkit.NoErr(t, s.rdb.Do(ctx, "ACL", "SETUSER", "reader",
		"on", ">secret", "~yuzhi:*", "+@read", "+time").Err())
	replica := redistest.Start(t, "--replicaof", "127.0.0.1", strconv.Itoa(server.Port))
	user := patient(server.Addr)
	user.Username, user.Password = "reader", "secret"
	for name, options := range map[string]*redis.Options{
		"a user who may read": user, "a replica": patient(replica.Addr),
	} {
		rdb := redis.NewClient(options)
		reader := storeOver(t, rdb)
		testkit.Eventually(t, "the replica has the keys", func() bool { return rdb.DBSize(ctx).Val() == 100 })
		testkit.NoErr(t, s.rdb.ConfigResetStat(ctx).Err())
		before := contents(s)
		// when everything is looked at
		v, err := reader.Look(ctx, "k7")
		testkit.Check(t, err == nil && v.Exists && len(v.Holders) == 1 && v.Holders[0].Waiting == 400 &&
			v.Spent == 100 && v.Called > 0 && v.Called <= time.Since(begun)+time.Second, "%s: %+v, %v", name, v, err)
		views, err := reader.Views(ctx, []string{"k8"})
		testkit.Check(t, err == nil && views[0].Exists, "%s: %+v, %v", name, views, err)
		all := readings(t, reader, Scan{})
		testkit.Check(t, len(all) >= 50, "%s: %d readings", name, len(all))
		// then nothing has changed but the time that passed, by reads alone
		testkit.Check(t, contents(s) == before, "%s: a look has changed what is stored", name)
		if options.Username != "" {
			stats := s.rdb.Info(ctx, "commandstats").Val()
			for _, c := range []string{"cmdstat_set:", "cmdstat_eval", "cmdstat_del", "cmdstat_expire"} {
				testkit.Check(t, !strings.Contains(stats, c), "%s was sent: %s", c, stats)
			}
			_, err := reader.Inspect(ctx, "k7")
			testkit.Check(t, errors.Is(err, lease.ErrPermanent), "a user who may only read runs a script: %v", err)
		}
	}
}

func TestALookSaysWhatIsWrong(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		v, err := s.Look(ctx, "absent")
		testkit.Check(t, err == nil && !v.Exists, "absent: %+v, %v", v, err)
		r := request(1)
		granted(t, s, "other", r)
		text := s.rdb.Get(ctx, s.bucketKey("other")).Val()
		testkit.NoErr(t, s.rdb.RPush(ctx, s.bucketKey("list"), "x").Err())
		testkit.NoErr(t, s.rdb.Set(ctx, s.bucketKey("other"), text[:len(text)-16], 0).Err())
		for key, want := range map[string]string{"list": "WRONGTYPE",
			"other": fmt.Sprintf("unknown format of stored state: the length is %d bytes", len(text)-16-layoutMark)} {
			_, err := s.Look(ctx, key)
			testkit.Check(t, err != nil && strings.Contains(err.Error(), want) && errors.Is(err, lease.ErrPermanent) &&
				strings.Contains(err.Error(), "yuzhi:{"+key+"}"), "%s: %v", key, err)
		}
		// A long key is looked at by its hash.
		long := strings.Repeat("x", 2000)
		granted(t, s, lease.ShortKey(long), r)
		v, err = s.Look(ctx, long)
		testkit.Check(t, err == nil && v.Exists && len(v.Holders) == 1, "a long key: %+v, %v", v, err)
	})
}

// A scan that has to wait, because of its pace, ends with its context.
func TestAScanEndsWithItsContext(t *testing.T) {
	s := newStore(t, redistest.Start(t).Addr)
	for i := range 100 {
		granted(t, s, fmt.Sprint("k", i), request(1))
	}
	ctx, cancel := context.WithCancel(t.Context())
	told := 0
	err := s.Scan(ctx, Scan{Count: 10, PerSecond: 1}, func(Reading) { told++; cancel() })
	testkit.Check(t, errors.Is(err, context.Canceled) && told < 100, "%v after %d readings", err, told)
}

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
}

// A look or a scan writes nothing. A read-only user and a replica can do both.
func TestLooksAreReads(t *testing.T) {
	t.Parallel()
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
		busy, err := reader.Busiest(ctx, BusiestOptions{Interval: time.Millisecond})
		testkit.Check(t, err == nil && busy.Read == 50 && len(busy.Keys[0].Levels) == 1, "%s: %+v, %v", name, busy, err)
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
	t.Parallel()
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

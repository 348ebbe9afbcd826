package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket/redistest"
)

// onEach runs f against miniredis and, where it is installed, a real server.
func onEach(t *testing.T, f func(t *testing.T, s *Store)) {
	t.Run("miniredis", func(t *testing.T) { f(t, newStore(t, miniredis.RunT(t).Addr())) })
	t.Run("redis", func(t *testing.T) { f(t, newStore(t, redistest.Start(t).Addr)) })
}

func newStore(t *testing.T, addr string) *Store {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { rdb.Close() })
	s, err := New(rdb, Config{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// request is a plausible call of holder "h".
func request(seq int64) lease.Request {
	return lease.Request{Holder: "h", Seq: seq, Want: 10, Weight: 1, Config: lease.Config{
		Limits: []lease.Limit{lease.PerSecond(100)}, TTL: 400 * time.Millisecond, Target: 100 * time.Millisecond,
	}}
}

// contents is everything in the database but the remaining time of keys.
func contents(t *testing.T, s *Store) string {
	t.Helper()
	ctx := context.Background()
	var b strings.Builder
	keys := s.rdb.Keys(ctx, "*").Val()
	for _, k := range keys {
		fmt.Fprintf(&b, "%q: %s %v %q %v\n", k, s.rdb.Type(ctx, k).Val(), s.rdb.HGetAll(ctx, k).Val(), s.rdb.Get(ctx, k).Val(),
			s.rdb.LRange(ctx, k, 0, -1).Val())
	}
	return fmt.Sprint(len(keys), b.String())
}

// stateFields are the places of the state's first part, for damage.
const stateFields = 14

func TestDamagedStateIsAnErrorAndIsNotTouched(t *testing.T) {
	type damage struct {
		name string
		do   func(s *Store, bucket, record string)
	}
	ctx := context.Background()
	state := func(change func(string) string) func(s *Store, bucket, record string) {
		return func(s *Store, bucket, _ string) {
			s.rdb.HSet(ctx, bucket, "s", change(s.rdb.HGet(ctx, bucket, "s").Val()))
		}
	}
	field := func(i int, to string) func(string) string {
		return func(text string) string {
			parts := strings.SplitN(text, "|", 2)
			f := strings.Split(parts[0], " ")
			f[i] = to
			return strings.Join(f, " ") + "|" + parts[1]
		}
	}
	var cases []damage
	for i := range stateFields {
		for _, bad := range []string{"nan", "inf", "-inf", "", "x", "1e400", "9007199254740993", "99999999999999999999", "0x10", "--1"} {
			cases = append(cases, damage{fmt.Sprintf("state field %d is %q", i, bad), state(field(i, bad))})
		}
	}
	for name, change := range map[string]func(string) string{
		"level above the burst":   func(s string) string { return replacePart(s, 1, "1000001 0") },
		"level missing":           func(s string) string { return replacePart(s, 1, "") },
		"level negative":          func(s string) string { return replacePart(s, 1, "-5 0") },
		"two levels":              func(s string) string { return replacePart(s, 1, "5 0 5 0") },
		"rest too large":          func(s string) string { return replacePart(s, 1, "5 1") },
		"ring slot 8":             func(s string) string { return replacePart(s, 2, " 8 1 1") },
		"ring slot twice":         func(s string) string { return replacePart(s, 2, " 1 1 1 1 1 1") },
		"ring cut off":            func(s string) string { return replacePart(s, 2, " 1 1") },
		"ring huge":               func(s string) string { return replacePart(s, 2, " 1 99999999999999999999 1") },
		"ledger without holder":   func(s string) string { return replacePart(s, 2, "") },
		"cut in half":             func(s string) string { return s[:len(s)/2] },
		"empty":                   func(string) string { return "" },
		"share zero":              field(13, "0"),
		"ttl zero":                field(6, "0"),
		"width zero":              field(7, "0"),
		"frozen for a day":        field(5, "4000000000000000"),
		"share with many letters": field(13, "1e1e1"),
	} {
		cases = append(cases, damage{"state: " + name, state(change)})
	}
	config := func(text string) func(s *Store, bucket, record string) {
		return func(s *Store, bucket, _ string) { s.rdb.HSet(ctx, bucket, "c", text) }
	}
	for _, bad := range []string{"", "nan", "0 0 0 0 100000000", "0 0 0 2 100000000;100 1000000000 0 100 10000 1 1",
		"0 0 0 0 100000000;100 1000000000 0 0 10000 1 1", "0 0 0 0 100000000;100 1000000000 0 100 99999999999999 1 1",
		"0 0 0 0 0;100 1000000000 0 100 10000 1 1", "0 0 0 0 100000000;100 1000000000 0 100 10000 1 7",
		"0 0 0 0 100000000;" + strings.Repeat(";100 1000000000 0 100 10000 1 1", 5)} {
		cases = append(cases, damage{fmt.Sprintf("configuration is %q", bad), config(bad)})
	}
	cases = append(cases,
		damage{"the bucket is a string", func(s *Store, bucket, _ string) { s.rdb.Del(ctx, bucket); s.rdb.Set(ctx, bucket, "x", 0) }},
		damage{"the bucket is a list", func(s *Store, bucket, _ string) { s.rdb.Del(ctx, bucket); s.rdb.LPush(ctx, bucket, "x") }},
		damage{"configuration missing", func(s *Store, bucket, _ string) { s.rdb.HDel(ctx, bucket, "c") }},
		damage{"state missing", func(s *Store, bucket, _ string) { s.rdb.HDel(ctx, bucket, "s") }},
		damage{"a stranger's hash", func(s *Store, bucket, _ string) { s.rdb.Del(ctx, bucket); s.rdb.HSet(ctx, bucket, "f", "x") }},
		damage{"the record is a list", func(s *Store, _, record string) { s.rdb.Del(ctx, record); s.rdb.LPush(ctx, record, "x") }},
	)
	for i := range 12 {
		for _, bad := range []string{"nan", "inf", "-2", "", "x", "99999999999999999999"} {
			cases = append(cases, damage{fmt.Sprintf("record field %d is %q", i, bad), func(s *Store, _, record string) {
				f := strings.Split(s.rdb.Get(ctx, record).Val(), " ")
				f[i] = bad
				s.rdb.Set(ctx, record, strings.Join(f, " "), 0)
			}})
		}
	}
	onEach(t, func(t *testing.T, s *Store) {
		for i, c := range cases {
			// given a bucket in use, and then damage
			key := fmt.Sprintf("key }%d", i)
			bucket := s.bucketKey(key)
			first, err := exchange(s, key, request(1))
			if err != nil {
				t.Fatal(err)
			}
			c.do(s, bucket, recordKey(bucket, "h"))
			s.rdb.Persist(ctx, bucket)
			before := contents(t, s)
			// when the holder calls
			r := request(2)
			r.Remaining, r.Epoch, r.Counter = 5, first.Epoch, first.Counter
			g, err := exchange(s, key, r)
			// then it is told which key is damaged, and nothing was written
			if !errors.Is(err, lease.ErrPermanent) || !errors.Is(err, lease.ErrRefused) || g.Granted != 0 {
				t.Errorf("%s: %+v, %v", c.name, g, err)
			} else if !strings.Contains(err.Error(), fmt.Sprintf("%q", key)) || !strings.HasPrefix(err.Error(), "redisbucket: ") {
				t.Errorf("%s: the error does not name the key: %v", c.name, err)
			}
			if after := contents(t, s); after != before {
				t.Errorf("%s: written to:\n%s\n%s", c.name, before, after)
			}
			s.rdb.Del(ctx, bucket, recordKey(bucket, "h"))
		}
	})
}

func replacePart(text string, i int, to string) string {
	parts := strings.Split(text, "|")
	parts[i] = to
	return strings.Join(parts, "|")
}

// TestBadArgumentsWriteNothing goes past the checks in Go, as another client would.
func TestBadArgumentsWriteNothing(t *testing.T) {
	const good = "400000 2 0 0 0 0 10 0 0 1 0 0 0"
	const config = "0 0 0 0 100000000;100 1000000000 0 100 10000 1 1"
	limit := ";100 1000000000 0 100 10000 1 1"
	numbers := func(i int, to string) string {
		f := strings.Split(good, " ")
		f[i] = to
		return strings.Join(f, " ")
	}
	type arguments struct{ config, request, now string }
	cases := []arguments{
		{"", good, ""}, {config + limit + limit + limit + limit, good, ""}, {"-1" + config[1:], good, ""},
		{"0 0 0 0 100000000;100 1000000000 0 4503599627370496 1 1 1", good, ""},
		{"0 0 0 0 100000000;100 1000000000 0 67108864 67108864 1 1", good, ""},
		{"0 0 4503599627370495 0 100000000;100 1000000000 0 1 1 1 1", good, ""},
		{"0 0 0 0 100000000;100 1000000000 0 100 10000 0 1", good, ""},
		{"0 0 0 0 100000000;100 1000000000 0 100 10000 nan 1", good, ""},
		{"0 0 0 0 100000000;100 1000000000 0 100 10000 1 1000001", good, ""},
		{"0 0 0 0 100000000;1 1 0 4503599627 1000000 1 1000000", good, ""},
		{"0 0 0 0 999;100 1000000000 0 100 10000 1 1", good, ""},
		{"4503599627370496 0 0 0 100000000" + limit, good, ""},
		{config, "", ""}, {config, good + " 1", ""}, {config, good + "\n", ""}, {config, strings.TrimSuffix(good, " 0"), ""},
		{config, numbers(7, "11"), ""}, // need above want
		{config, numbers(1, "0"), ""},  // seq
		{config, numbers(9, "0"), ""},  // weight
		{config, numbers(9, "2000000"), ""},
		{config, numbers(0, "199999"), ""}, // ttl below twice the target
		{config, numbers(0, "3600000001"), ""},
		{config, numbers(12, "3600000001"), ""},
		{config, good, "nan"}, {config, good, "-1"}, {config, good, "4503599627370496"}, {config, good, "1.5"}, {config, good, "1e3"},
	}
	for i := range 13 {
		for _, bad := range []string{"-1", "1.5", "nan", "inf", "-nan", "1e3", "0x5", " 5", "", "4503599627370496", "99999999999999999999"} {
			cases = append(cases, arguments{config, numbers(i, bad), ""})
		}
	}
	onEach(t, func(t *testing.T, s *Store) {
		bucket := s.bucketKey("k")
		for _, exists := range []bool{false, true} {
			if exists {
				if _, err := exchange(s, "k", request(1)); err != nil {
					t.Fatal(err)
				}
				s.rdb.Persist(context.Background(), bucket)
				s.rdb.Persist(context.Background(), recordKey(bucket, "h"))
			}
			before := contents(t, s)
			for _, c := range cases {
				v, err := s.leaseScript.run(context.Background(), s.rdb, [][]any{{2, bucket, recordKey(bucket, "h"), c.config, c.request, c.now}})[0].Result()
				if err == nil {
					r := request(2)
					_, err = decodeGrant(v, &r)
				}
				if !errors.Is(err, lease.ErrInvalidRequest) {
					t.Errorf("%q: %v", c, err)
				}
				if after := contents(t, s); after != before {
					t.Fatalf("%q wrote:\n%s\n%s", c, before, after)
				}
			}
			for _, args := range [][]any{{"nonsense", config, "400000"}, {"set", "", "400000"}, {"set", config, ""}, {"set", config, "1e3"},
				{"set", config, "-1"}, {"set-if-absent", config, "3600000001"}} {
				v, err := s.configureScript.run(context.Background(), s.rdb, [][]any{append([]any{1, bucket}, append(args, "")...)})[0].Result()
				if err == nil {
					_, err = decodeState(v)
				}
				if !errors.Is(err, lease.ErrInvalidRequest) || contents(t, s) != before {
					t.Errorf("%v: %v", args, err)
				}
			}
		}
	})
}

func TestInvalidCallsNeverReachTheServer(t *testing.T) {
	// given a server that is not there
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	s, err := New(rdb, Config{})
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[error]func(*lease.Request){
		lease.ErrInvalidRequest: func(r *lease.Request) { r.Want = -1 },
		lease.ErrInvalidConfig:  func(r *lease.Request) { r.Config.Limits = nil },
	} {
		r := request(1)
		change(&r)
		if _, err := exchange(s, "k", r); !errors.Is(err, want) || errors.Is(err, lease.ErrUnavailable) {
			t.Errorf("%v, want %v", err, want)
		}
	}
}

package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/lease"
)

// notWhole are numbers that no field holds that counts something.
var notWhole = []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0.5, 1e300, -1e300, 1 << 53, -1 << 53, 5e-324}

func TestDamagedStateIsAnErrorAndIsNotTouched(t *testing.T) {
	type damage struct {
		name string
		do   func(s *Store, bucket, record string)
	}
	ctx := context.Background()
	state := func(change func(string) string) func(s *Store, bucket, record string) {
		return func(s *Store, bucket, _ string) {
			s.rdb.Set(ctx, bucket, change(s.rdb.Get(ctx, bucket).Val()), 0)
		}
	}
	field := func(i int, to float64) func(string) string {
		return func(text string) string { return setNumber(text, i, to) }
	}
	// where they begin
	const share, level, held, weight, config, end = 16, 17, 19, 27, stateNumbers, stateNumbers + 12
	var cases []damage
	for i := range end {
		if i > config+4 && i < config+8 {
			continue // of the limit as it was written the scripts know the scale only; Go looks at the rest
		}
		for _, bad := range notWhole {
			if i == share && bad > 0 && bad < 1<<53 {
				continue
			}
			cases = append(cases, damage{fmt.Sprintf("number %d is %v", i, bad), state(field(i, bad))})
		}
	}
	for i := range end {
		if i > config+4 && i < config+8 {
			continue
		}
		cases = append(cases, damage{fmt.Sprintf("number %d is negative", i), state(field(i, -1))})
	}
	for name, change := range map[string]func(string) string{
		"level above the burst": field(level, 1_000_001),
		"rest too large":        field(level+1, 1),
		"two levels":            func(s string) string { return s + s[8*level:8*held] },
		"one byte more":         func(s string) string { return s + "\x00" },
		"one byte less":         func(s string) string { return s[:len(s)-1] },
		"ledger huge":           field(held+1, 1<<52),
		"weights huge":          field(weight+1, 1<<52),
		"ledger without holder": func(s string) string {
			return s[:8*held] + strings.Repeat("\x00",
				8*16) + s[8*config:]
		},
		"cut in half":             func(s string) string { return s[:len(s)/2] },
		"empty":                   func(string) string { return "" },
		"text":                    func(string) string { return "x" },
		"text as long":            func(s string) string { return strings.Repeat("x", len(s)) },
		"zeros as long":           func(s string) string { return strings.Repeat("\x00", len(s)) },
		"share zero":              field(share, 0),
		"ttl zero":                field(8, 0),
		"ttl of an hour and a µs": field(8, 3_600_000_001),
		"proposed ttl zero":       field(9, 0),
		"width zero":              field(11, 0),
		"born after now":          field(0, 1<<52-1),
		"set after now":           field(6, 1<<52-1),
		"proposed after now":      field(10, 1<<52-1),
		"moved after now":         field(13, 1<<52-1),
		"updated after now":       field(14, 1<<52-1),
		"epoch beyond 2^52":       field(1, 1<<52),
		"counter beyond 2^52":     field(2, 1<<52),
		"frozen for a day":        field(5, 4e15),
		"now beyond 2^52":         field(4, 1<<52),
		"empty flag is 2":         field(config+3, 2),
		"target zero":             field(config+4, 0),
		"capacity zero":           field(config+8, 0),
		"unit too large":          field(config+9, 99_999_999_999_999),
		"step zero":               field(config+10, 0),
		"tick is 7":               field(config+11, 7),
		"configuration missing":   func(s string) string { return s[:8*config] },
		"five limits": func(s string) string {
			return s + strings.Repeat(s[8*(config+5):], 4) + strings.Repeat(s[8*level:8*held], 4)
		},
	} {
		cases = append(cases, damage{"state: " + name, state(change)})
	}
	cases = append(cases,
		damage{"the bucket is a hash", func(s *Store, bucket, _ string) {
			s.rdb.Del(ctx, bucket)
			s.rdb.HSet(ctx, bucket, "f", "x")
		}},
		damage{"the bucket is a list", func(s *Store, bucket, _ string) {
			s.rdb.Del(ctx, bucket)
			s.rdb.LPush(ctx, bucket, "x")
		}},
		damage{"the record is a list", func(s *Store, _, record string) {
			s.rdb.Del(ctx, record)
			s.rdb.LPush(ctx, record, "x")
		}},
	)
	record := func(change func(string) string) func(s *Store, bucket, record string) {
		return func(s *Store, _, record string) {
			s.rdb.Set(ctx, record, change(s.rdb.Get(ctx, record).Val()), 0)
		}
	}
	for i := range recordNumbers {
		for _, bad := range append(slices.Clone(notWhole), -2) {
			if i == recordNumbers-1 && bad >= -1<<52 && bad < 1<<53 {
				continue // an allowance
			}
			cases = append(cases, damage{fmt.Sprintf("record number %d is %v", i, bad),
				record(field(i, bad))})
		}
	}
	for name, change := range map[string]func(string) string{
		"empty": func(string) string { return "" }, "text": func(string) string { return "x" },
		"cut off":   func(s string) string { return s[:len(s)-1] },
		"longer":    func(s string) string { return s + s },
		"void is 2": field(9, 2),
	} {
		cases = append(cases, damage{"record: " + name, record(change)})
	}
	onEach(t, func(t *testing.T, s *Store) {
		for i, c := range cases {
			// given a bucket in use, and then damage
			key := fmt.Sprintf("key }%d", i)
			bucket := s.bucketKey(key)
			first, err := exchange(s, key, request(1))
			must(t, err)
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
			} else if !strings.Contains(err.Error(), fmt.Sprintf("%q", key)) ||
				!strings.HasPrefix(err.Error(), "redisbucket: ") {
				t.Errorf("%s: the error does not name the key: %v", c.name, err)
			}
			if after := contents(t, s); after != before {
				t.Errorf("%s: written to:\n%s\n%s", c.name, before, after)
			}
			s.rdb.Del(ctx, bucket, recordKey(bucket, "h"))
		}
	})
}

// TestBadArgumentsWriteNothing goes past the checks in Go, as another client would.
func TestBadArgumentsWriteNothing(t *testing.T) {
	r := request(2)
	r.Epoch, r.Unused = 1, 1 // so that what comes with these is looked at
	good, config := string(appendRequest(nil, &r)), textOf(t, r.Config)
	limit := config[configSize(0):]
	numbers := func(i int, to float64) string { return setNumber(good, i, to) }
	changed := func(changes ...float64) string { // of the configuration: a place and a number, and so on
		text := config
		for ; len(changes) > 0; changes = changes[2:] {
			text = setNumber(text, int(changes[0]), changes[1])
		}
		return text
	}
	const deploy, overcommit, empty, target, capacity, unit, step, tick = 0, 2, 3, 4, 8, 9, 10, 11
	type arguments struct{ config, now, request string }
	cases := []arguments{
		{"", "", good}, {"x", "", good}, {config[1:], "", good}, {config + "x", "", good},
		{config[:configSize(0)], "", good},
		{config + limit + limit + limit + limit, "", good},
		{changed(capacity, 1<<52, unit, 1), "", good},
		{changed(capacity, 1<<26, unit, 1<<26), "", good},
		{changed(overcommit, 1<<52-1, capacity, 1, unit, 1), "", good},
		{changed(tick, 1_000_001), "", good},
		{changed(capacity, 4_503_599_627, unit, 1_000_000, tick, 1_000_000), "", good},
		{changed(target, 999), "", good}, {changed(target, 3_600_000_001_000), "", good},
		{changed(empty, 2), "", good},
		{changed(deploy, 1<<52), "", good}, {changed(step, 0), "", good},
		{config, "", ""}, {config, "", good + good[:8]}, {config, "", good + "\n"},
		{config, "", good[:len(good)-8]}, {config, "", good[1:]},
		{config, "", numbers(8, 11)}, // need above want
		{config, "", numbers(1, 0)},  // seq
		{config, "", numbers(10, 0)}, // weight
		{config, "", numbers(10, 2_000_000)},
		{config, "", numbers(0, 199_999)}, // ttl below twice the target
		{config, "", numbers(0, 3_600_000_001)},
		{config, "", numbers(14, 7_200_000_001)}, // the longest lease
		{config, "nan", good}, {config, "-1", good}, {config, "4503599627370496", good},
		{config, "1.5", good}, {config, "1e3", good},
		{config, "0x5", good}, {config, " 5", good}, {config, "99999999999999999999", good},
	}
	for _, bad := range append(slices.Clone(notWhole), -1, 1<<52) {
		for i := range requestSize / 8 {
			cases = append(cases, arguments{config, "", numbers(i, bad)})
		}
		for i := range 12 {
			if i < 5 || i > 7 {
				cases = append(cases, arguments{changed(float64(i), bad), "", good})
			}
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
				v, err := s.leaseScript.run(context.Background(), s.rdb,
					[][]any{{2, bucket, recordKey(bucket, "h"), c.config, c.now, c.request}})[0].Result()
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
			for _, args := range [][]any{{config, "", good, "nonsense"}, {"", "", good, "set"},
				{config, "", "", "set"}, {config, "x", good, "set"},
				{config, "", numbers(0, 0.5), "set"}, {config, "", numbers(0, -1), "set"},
				{config, "", numbers(0, 3_600_000_001), "set-if-absent"},
				{changed(1, 1<<52-1), "", good, ""}, {config, "", good},
				{changed(step, 0), "", good, "set"}} {
				v, err := s.configureScript.run(context.Background(), s.rdb,
					[][]any{append([]any{1, bucket}, args...)})[0].Result()
				if err == nil {
					_, err = decodeState(v)
				}
				if !errors.Is(err, lease.ErrInvalidConfig) || contents(t, s) != before {
					t.Errorf("%v: %v", args, err)
				}
			}
		}
	})
}

func TestInvalidCallsNeverReachTheServer(t *testing.T) {
	// given a server that is not there
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	s := storeOver(t, rdb)
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

package redisbucket

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
)

func grantReply() []any {
	return []any{"ok", int64(7), int64(5), int64(0), int64(1000), int64(0), int64(11), int64(3), int64(2),
		int64(1), int64(1_800_000),
		int64(457_000), int64(1_700_000_000_000_001), int64(1_700_000_000_000_000), int64(60), int64(400_000),
		"", int64(40), int64(7000)}
}

func TestGrantIsRead(t *testing.T) {
	r := request(7)
	r.Waiting = 2
	g, err := decodeGrant(grantReply(), &r)
	want := lease.Grant{
		Seq: 7, Granted: 5, Waited: 2, Short: true, Delay: time.Millisecond, Config: r.Config, Epoch: 11,
		Counter: 3,
		Levels:  [lease.LimitsMax]int64{40}, Next: [lease.LimitsMax]time.Duration{7 * time.Millisecond},
		ActiveWeight: 2, Contended: true, Expiry: 1800 * time.Millisecond,
		LeaseMax: 457 * time.Millisecond, Running: 1_700_000_000_000_001, ServerTime: 1_700_000_000_000_000,
		Ledger: 60,
	}
	if err != nil || fmt.Sprint(g) != fmt.Sprint(want) {
		t.Errorf("%+v, %v\nwant %+v", g, err, want)
	}
}

// TestForeignRepliesAreErrors: whatever stands where a reply should be, the answer is a typed error
// and no grant.
func TestForeignRepliesAreErrors(t *testing.T) {
	r := request(7)
	r.Need = 4
	var replies []any
	replies = append(replies, nil, "OK", int64(1), []any{}, []any{nil}, []any{"ok"}, map[any]any{}, true, 1.5,
		[]any{[]any{"ok"}}, []any{"hello"})
	good := grantReply()
	for n := range good {
		replies = append(replies, good[:n])
	}
	replies = append(replies, append(slices.Clone(good), int64(1)))
	for i := range good {
		for _, v := range []any{nil, "x", "5", int64(-1), int64(math.MinInt64), int64(math.MaxInt64), 1.5,
			[]any{}, errors.New("x")} {
			bad := slices.Clone(good)
			bad[i] = v
			replies = append(replies, bad)
		}
	}
	for i, v := range map[int]int64{1: 6, 2: 11, 3: 2, 6: 0, 9: 2, 8: 0, 10: 0, 11: 399_999, 12: 1 << 52,
		13: 1 << 52, 15: 0, 17: 101} {
		bad := slices.Clone(good)
		bad[i] = v
		replies = append(replies, bad)
	}
	short, long, leases := slices.Clone(good), slices.Clone(good), slices.Clone(good)
	short[2] = int64(3)                                   // below Need
	long[11], long[15] = int64(4e9), int64(3_600_000_001) // a T above an hour
	leases[11] = int64(7_200_000_001)
	replies = append(replies, short, long, leases)
	for _, v := range replies {
		g, err := decodeGrant(v, &r)
		if !errors.Is(err, ErrReply) || fmt.Sprint(g) != fmt.Sprint(lease.Grant{}) {
			t.Errorf("%v: %+v, %v", v, g, err)
		}
		if wrapped := wrap("k", err); !errors.Is(wrapped, lease.ErrUnavailable) ||
			errors.Is(wrapped, lease.ErrRefused) {
			t.Errorf("%v: %v", v, wrapped)
		}
		if _, err := decodeState(v); err == nil {
			t.Errorf("%v was taken for a state", v)
		}
	}
}

func TestConfigTextSurvivesTheWire(t *testing.T) {
	for _, c := range []lease.Config{
		request(1).Config,
		{Limits: []lease.Limit{{Tokens: 3, Per: 7 * time.Microsecond, Burst: 9},
			lease.Every(30 * 24 * time.Hour), {Tokens: 5, Per: time.Second, Burst: 5}},
			Overcommit: 4, TTL: time.Hour, Target: time.Second, StartEmpty: true,
			Version: lease.Version{Deploy: 1 << 51, Revision: 3}},
		{Limits: []lease.Limit{lease.PerSecond(1_000_000_000)}, TTL: 2 * time.Microsecond,
			Target: time.Microsecond},
	} {
		text, err := appendConfig(nil, &c)
		must(t, err)
		got, err := parseConfig(string(text), c.TTL)
		if err != nil || fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", c) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
		// and no text that differs is taken
		for i := range text {
			for _, b := range []byte("0\x00\x01\x7f\xff") {
				bad := slices.Clone(text)
				bad[i] = b
				if back, err := parseConfig(string(bad), c.TTL); err == nil {
					back.TTL = time.Hour // the given one may be too short for the Target that was read
					if again, _ := appendConfig(nil, &back); string(again) != string(bad) {
						t.Errorf("%q was read as %+v", bad, back)
					}
				}
			}
		}
	}
}

func FuzzParseConfigNeverPanics(f *testing.F) {
	good := textOf(f, request(1).Config)
	f.Add(good)
	f.Add("")
	f.Add(good[1:])
	f.Add(setNumber(good, 0, math.NaN()))
	f.Add(setNumber(good, 2, 0.5))
	f.Add(setNumber(good, 4, math.Inf(1)))
	f.Fuzz(func(t *testing.T, text string) {
		if c, err := parseConfig(text, time.Hour); err == nil {
			if again, err := appendConfig(nil, &c); err != nil || string(again) != text {
				t.Errorf("%q became %q, %v", text, again, err)
			}
		}
	})
}

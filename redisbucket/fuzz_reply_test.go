package redisbucket

import (
	"errors"
	"math"
	"math/big"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
)

// stateReply is a good answer of configure.lua.
func stateReply(t testing.TB) []any {
	return []any{"ok", int64(1), int64(0), int64(60), int64(2), int64(11), int64(3), int64(1_700_000_000_000_000), int64(400_000),
		textOf(t, request(1).Config), int64(40), int64(10_000)}
}

// fuzzedRequest asks for little, so that a grant that is too large is easily met.
func fuzzedRequest() lease.Request {
	r := request(7)
	r.Need, r.Waiting = 4, 2
	return r
}

// soundGrant fails t unless g is what the bucket could have answered to r: a peer that is broken or
// hostile can make tokens in no other way than through these fields.
func soundGrant(t *testing.T, r *lease.Request, g lease.Grant) {
	t.Helper()
	const most = 1 << 53
	switch {
	case g.Seq != r.Seq, g.Granted < 0, g.Granted > r.Want, g.Granted > 0 && g.Granted < r.Need,
		g.Waited != min(g.Granted, r.Waiting), g.Short != (g.Granted < r.Want),
		g.Delay < 0, g.RetryAfter < 0, g.Expiry <= 0, g.Epoch < 1, g.Epoch > lease.WaitingMax, g.Counter < 0, g.Counter > lease.WaitingMax,
		g.Ledger < 0, g.Ledger > most, g.ActiveWeight < 1, g.ActiveWeight > most, g.ServerTime < 0, g.ServerTime > lease.WaitingMax,
		g.Config.TTL <= 0, g.Config.TTL > time.Hour, g.LeaseMax < g.Config.TTL, g.LeaseMax > 2*time.Hour, g.Running < 0, g.Running > lease.WaitingMax:
		t.Fatalf("taken: %+v", g)
	}
	soundLevels(t, g.Config, g.Levels)
}

func soundLevels(t *testing.T, c lease.Config, levels [lease.LimitsMax]int64) {
	t.Helper()
	whole := c
	whole.Target = c.Target.Truncate(time.Microsecond)
	whole.TTL = max(c.TTL, 2*whole.Target) // a T in force may be shorter until it has grown
	if err := whole.Validate(); err != nil {
		t.Fatalf("a configuration was taken that cannot be used: %v", err)
	}
	for k, n := range levels {
		if k >= len(c.Limits) && n != 0 || k < len(c.Limits) && (n < 0 || n > c.Limits[k].Capacity()) {
			t.Fatalf("level %d is %d: %+v", k, n, c)
		}
	}
}

// valueFrom makes a value as go-redis may hand it over, from bytes that say which.
func valueFrom(data *[]byte, depth int) any {
	next := func() int64 {
		if len(*data) == 0 {
			return 0
		}
		b := (*data)[0]
		*data = (*data)[1:]
		return int64(b)
	}
	number := func() int64 {
		n := next()
		for range next() % 8 {
			n = n<<8 | next()
		}
		return n
	}
	text := func() string {
		n := min(int(next()), len(*data))
		s := string((*data)[:n])
		*data = (*data)[n:]
		return s
	}
	switch kind := next() % 16; kind {
	case 0:
		return nil
	case 1, 2, 3, 4:
		return number()
	case 5:
		return -number()
	case 6:
		return text()
	case 7:
		return math.Float64frombits(uint64(number()))
	case 8:
		return number()%2 == 0
	case 9:
		return errors.New(text())
	case 10:
		return new(big.Int).Lsh(big.NewInt(number()), uint(next()))
	case 11:
		return []int64{math.MaxInt64, math.MinInt64, 1 << 52, 1<<52 + 1, 1 << 53, 1<<53 + 1}[next()%6]
	case 12:
		return []string{"ok", "stale", "invalid", "damaged", "", "5"}[next()%6]
	case 13:
		return strconv.FormatInt(number(), 10)
	case 14:
		return map[any]any{text(): number()}
	default:
		items := []any{}
		for range next() % 24 {
			if depth == 0 {
				break
			}
			items = append(items, valueFrom(data, depth-1))
		}
		return items
	}
}

// FuzzReply: of whatever value stands where a reply should be, nothing but a grant that the bucket
// could have given is taken, and everything else is a typed error without one.
//
//	go test ./redisbucket -run '^$' -fuzz FuzzReply
func FuzzReply(f *testing.F) {
	// The first byte says where the good reply is changed (255: not at all, and the data is the whole
	// reply), the second how often; each change is a position and a value.
	f.Add([]byte{255})
	f.Add([]byte{255, 15, 18, 12, 0, 1, 7, 1, 5})
	f.Add([]byte{255, 15, 2, 12, 3, 6, 3, 'k', 'e', 'y'})
	for i := range byte(18) {
		f.Add([]byte{1, i, 0})
		f.Add([]byte{1, i, 1, 11, 0, 5, 3})
		f.Add([]byte{1, i, 11, 0})
		f.Add([]byte{1, i, 5, 1, 0})
	}
	f.Add([]byte{2, 2, 1, 11, 0, 1, 1, 7, 0})
	other := request(1).Config
	other.Limits[0], other.Version.Revision = lease.PerSecond(200), 1
	f.Add(append([]byte{1, 16, 6, byte(configSize(1))}, textOf(f, other)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		changes := byte(255)
		if len(data) > 0 {
			changes, data = data[0], data[1:]
		}
		make := func(good []any, data []byte) any {
			if changes == 255 {
				return valueFrom(&data, 3)
			}
			for range changes % 8 {
				if len(data) == 0 {
					break
				}
				at := int(data[0]) % (len(good) + 1)
				data = data[1:]
				if v := valueFrom(&data, 1); at < len(good) {
					good[at] = v
				} else {
					good = append(good, v)
				}
			}
			return good
		}
		r := fuzzedRequest()
		if g, err := decodeGrant(make(grantReply(), data), &r); err == nil {
			soundGrant(t, &r, g)
		} else {
			typed(t, err)
			if !reflect.ValueOf(g).IsZero() {
				t.Fatalf("an error came with %+v", g)
			}
		}
		if st, err := decodeState(make(stateReply(t), data)); err == nil {
			if st.Exists || st.Changed {
				soundLevels(t, st.Config, st.Levels)
			}
			if st.Ledger < 0 || st.ActiveWeight < 0 || st.Epoch < 0 || st.Counter < 0 || st.ServerTime < 0 {
				t.Fatalf("taken: %+v", st)
			}
		} else {
			typed(t, err)
			if !reflect.ValueOf(st).IsZero() {
				t.Fatalf("an error came with %+v", st)
			}
		}
	})
}

// typed fails t unless err is one that callers know by name, before and after it was wrapped.
func typed(t *testing.T, err error) {
	t.Helper()
	known := false
	for _, sentinel := range []error{ErrReply, lease.ErrStale, lease.ErrInvalidRequest, lease.ErrInvalidConfig, errDamaged} {
		known = known || errors.Is(err, sentinel)
	}
	wrapped := wrap("the key", err)
	if !known || wrapped == nil || wrapped.Error() == "" {
		t.Fatalf("unknown error %v", err)
	}
}

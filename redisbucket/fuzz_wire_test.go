package redisbucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/lease"
)

// stateReply is a good answer of configure.lua.
func stateReply(t testing.TB) []any {
	return []any{"ok", int64(1), int64(0), int64(60), int64(2), int64(11), int64(3),
		int64(1_700_000_000_000_000), int64(400_000),
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
		g.Delay < 0, g.RetryAfter < 0, g.Expiry <= 0, g.Epoch < 1, g.Epoch > lease.WaitingMax, g.Counter < 0,
		g.Counter > lease.WaitingMax,
		g.Ledger < 0, g.Ledger > most, g.ActiveWeight < 1, g.ActiveWeight > most, g.ServerTime < 0,
		g.ServerTime > lease.WaitingMax,
		g.Config.TTL <= 0, g.Config.TTL > time.Hour, g.LeaseMax < g.Config.TTL, g.LeaseMax > 2*time.Hour,
		g.Running < 0, g.Running > lease.WaitingMax:
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

// announces finds lengths of a million and more.
var announces = regexp.MustCompile(`[*$%~>|!=][+]?[0-9]{7}`)

// onTheWire is items as a server sends them.
func onTheWire(items []any) []string {
	words := []string{fmt.Sprintf("*%d\r\n", len(items))}
	for _, item := range items {
		if n, ok := item.(int64); ok {
			words = append(words, fmt.Sprintf(":%d\r\n", n))
		} else {
			words = append(words, fmt.Sprintf("$%d\r\n%s\r\n", len(item.(string)), item))
		}
	}
	return words
}

// FuzzWire: whatever bytes stand where a reply should be, read by go-redis, nothing but a grant or
// a state that the bucket could have given is taken, and everything else is a typed error without
// one. Nothing panics and nothing hangs.
//
//	go test ./redisbucket -run '^$' -fuzz FuzzWire
func FuzzWire(f *testing.F) {
	for _, s := range []string{
		"", "\r\n", "+OK\r\n", "-ERR x\r\n", "-NOSCRIPT x\r\n", "-MOVED 1 127.0.0.1:1\r\n", ":5\r\n",
		"$-1\r\n",
		"$5\r\nab", "*-1\r\n", "*2\r\n$2\r\nok\r\n", "*99999\r\n", "$99999\r\n", "_\r\n", ",nan\r\n",
		"(123456789012345678901234567890\r\n", "%1\r\n+a\r\n:1\r\n", "~1\r\n+ok\r\n", "#t\r\n",
		">2\r\n+a\r\n+b\r\n",
		"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", "*2\r\n$7\r\ndamaged\r\n$1\r\nk\r\n",
		"*1\r\n$5\r\nstale\r\n", "|1\r\n+k\r\n+v\r\n+x\r\n", "*3\r\n$2\r\nok\r\n:0\r\n:0\r\n",
	} {
		f.Add([]byte(s))
	}
	other := request(1).Config
	other.Limits[0], other.Version.Revision = lease.PerSecond(200), 1
	changed := grantReply()
	changed[16] = textOf(f, other)
	for _, items := range [][]any{grantReply(), stateReply(f), changed} {
		good := onTheWire(items)
		f.Add([]byte(strings.Join(good, "")))
		for i := range good {
			f.Add([]byte(strings.Join(good[:i], "")))
			// one item is another one, of every type that go-redis reads
			for _, bad := range []string{":0\r\n", ":3\r\n", ":11\r\n", ":-5\r\n", ":9007199254740993\r\n",
				":9223372036854775807\r\n",
				"$0\r\n\r\n", "$1\r\n5\r\n", "$-1\r\n", "_\r\n", "*0\r\n", "*1\r\n:5\r\n", ",1.5\r\n",
				"#t\r\n", "-ERR x\r\n",
				"(340282366920938463463374607431768211456\r\n", "%1\r\n+a\r\n:1\r\n"} {
				f.Add([]byte(strings.Join(good[:i], "") + bad + strings.Join(good[i+1:], "")))
			}
		}
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		if announces.Match(wire) {
			t.Skip("go-redis allocates as much as is announced")
		}
		answered := func() *Store {
			return storeOver(t, redis.NewClient(&redis.Options{
				Addr: "127.0.0.1:1", Protocol: 2, DisableIdentity: true, MaxRetries: -1, PoolSize: 1,
				DialerRetries: 1,
				Dialer: func(context.Context, string, string) (net.Conn, error) {
					return &scripted{wire: wire}, nil
				},
			}))
		}
		r := fuzzedRequest()
		if g, err := exchange(answered(), "k", r); err == nil {
			soundGrant(t, &r, g)
		} else {
			typed(t, err, g)
		}
		if st, err := answered().Inspect(t.Context(), "k"); err != nil {
			typed(t, err, st)
		} else if st.Exists || st.Changed {
			soundLevels(t, st.Config, st.Levels)
			if st.Ledger < 0 || st.ActiveWeight < 0 || st.Epoch < 0 || st.Counter < 0 || st.ServerTime < 0 {
				t.Fatalf("taken: %+v", st)
			}
		}
	})
}

// typed fails t unless err is one that callers know by name, and nothing came with it.
func typed(t *testing.T, err error, with any) {
	t.Helper()
	known := false
	for _, sentinel := range []error{lease.ErrUnavailable, lease.ErrStale, lease.ErrInvalidRequest,
		lease.ErrInvalidConfig} {
		known = known || errors.Is(err, sentinel)
	}
	if !known || err.Error() == "" {
		t.Fatalf("unknown error %v", err)
	}
	if !reflect.ValueOf(with).IsZero() {
		t.Fatalf("an error came with %+v", with)
	}
}

// scripted is a connection whose peer refuses the handshake, as old servers do, and answers the
// first script call with wire and then nothing more.
type scripted struct {
	net.Conn
	wire   []byte
	answer []byte
}

func (c *scripted) Write(p []byte) (int, error) {
	if bytes.Contains(bytes.ToLower(p), []byte("evalsha")) || bytes.Contains(p, []byte("redis.call")) {
		c.answer, c.wire = append(c.answer, c.wire...), nil
	} else {
		c.answer = append(c.answer, "-ERR unknown command\r\n"...)
	}
	return len(p), nil
}

func (c *scripted) Read(p []byte) (int, error) {
	if len(c.answer) == 0 {
		return 0, net.ErrClosed // the peer has gone
	}
	n := copy(p, c.answer)
	c.answer = c.answer[n:]
	return n, nil
}

func (*scripted) Close() error                     { return nil }
func (*scripted) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (*scripted) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (*scripted) SetDeadline(time.Time) error      { return nil }
func (*scripted) SetReadDeadline(time.Time) error  { return nil }
func (*scripted) SetWriteDeadline(time.Time) error { return nil }

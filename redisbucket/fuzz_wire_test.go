package redisbucket

import (
	"bytes"
	"context"
	"errors"
	"net"
	"reflect"
	"regexp"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/lease"
)

// announces finds lengths of a million and more.
var announces = regexp.MustCompile(`[*$%~>|!=][+]?[0-9]{7}`)

// FuzzWire goes one layer lower: arbitrary bytes on the connection, read by go-redis, come out of
// Exchange as a sound grant or an error that says that the store could not be used; nothing panics
// and nothing hangs.
//
//	go test ./redisbucket -run '^$' -fuzz FuzzWire
func FuzzWire(f *testing.F) {
	good := []byte("*18\r\n$2\r\nok\r\n:7\r\n:5\r\n:0\r\n:1000\r\n:0\r\n:11\r\n:3\r\n:2\r\n:1\r\n:1800000\r\n:457000\r\n:1700000000000000\r\n:1700000000000000\r\n:60\r\n:400000\r\n$0\r\n\r\n:40\r\n")
	f.Add(good)
	for _, s := range []string{"", "\r\n", "+OK\r\n", "-ERR x\r\n", "-NOSCRIPT x\r\n", "-MOVED 1 127.0.0.1:1\r\n", ":5\r\n", "$-1\r\n", "$5\r\nab", "*-1\r\n", "*2\r\n$2\r\nok\r\n",
		"*99999\r\n", "$99999\r\n", "_\r\n", ",nan\r\n", "(123456789012345678901234567890\r\n", "%1\r\n+a\r\n:1\r\n", "~1\r\n+ok\r\n", "#t\r\n", ">2\r\n+a\r\n+b\r\n",
		"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", "*2\r\n$7\r\ndamaged\r\n$1\r\nk\r\n", "*1\r\n$5\r\nstale\r\n", "|1\r\n+k\r\n+v\r\n+x\r\n"} {
		f.Add([]byte(s))
	}
	for _, cut := range []int{1, 5, 20, len(good) - 1} {
		f.Add(good[:cut])
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		if announces.Match(wire) {
			t.Skip("go-redis allocates as much as is announced")
		}
		rdb := redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:1", Protocol: 2, DisableIdentity: true, MaxRetries: -1, PoolSize: 1, DialerRetries: 1,
			Dialer: func(context.Context, string, string) (net.Conn, error) { return &scripted{wire: wire}, nil },
		})
		s := storeOver(t, rdb)
		r := fuzzedRequest()
		g, err := exchange(s, "k", r)
		if err == nil {
			soundGrant(t, &r, g)
			return
		}
		if !reflect.ValueOf(g).IsZero() {
			t.Fatalf("an error came with %+v", g)
		}
		if !errors.Is(err, lease.ErrUnavailable) && !errors.Is(err, lease.ErrStale) && !errors.Is(err, lease.ErrInvalidRequest) {
			t.Fatalf("unknown error %v", err)
		}
	})
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

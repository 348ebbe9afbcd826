package redisbucket

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/lease"
)

// farOff is a round trip of the tests' slow link.
const farOff = 50 * time.Millisecond

// overALink is a store whose server is farOff.
func overALink(t *testing.T, change func(*redis.Options)) (*Store, *redistest.Proxy) {
	t.Helper()
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr)
	proxy.Set(redistest.Fate{Far: farOff})
	o := &redis.Options{Addr: proxy.Addr}
	if change != nil {
		change(o)
	}
	rdb := redis.NewClient(o)
	s := storeOver(t, rdb)
	return s, proxy
}

func TestAHandshakeIsNoRoundTrip(t *testing.T) {
	s, proxy := overALink(t, nil)
	trip := func(seq int64) (all time.Duration, c *lease.Call) {
		c = &lease.Call{Key: "k", Request: request(seq)}
		start := time.Now()
		s.Exchange(t.Context(), []*lease.Call{c}, func([]*lease.Call) {})
		if c.Err != nil {
			t.Fatal(c.Err)
		}
		return time.Since(start), c
	}
	// When the first call opens a connection and brings the script,
	all, c := trip(1)
	// then what it says took no round trip is at least HELLO and the first sending of the script,
	// and one round trip is left.
	if c.Before < 2*farOff || all-c.Before < farOff {
		t.Errorf("%v, of which before the last sending %v", all, c.Before)
	}
	// When the next goes over the same connection, then all of it is a round trip.
	if all, c := trip(2); c.Before != 0 || all < farOff || c.Unsent() != nil {
		t.Errorf("%v, of which before the last sending %v, %v", all, c.Before, c.Unsent())
	}
	// When the connection was lost, its successor's handshake is none again.
	proxy.Cut()
	if _, c := trip(3); c.Before < farOff {
		t.Errorf("after the connection was cut: %v before the last sending", c.Before)
	}
}

func TestPingLeavesNothingToTheFirstCall(t *testing.T) {
	s, proxy := overALink(t, nil)
	// Given a store that was warmed,
	must(t, s.Ping(t.Context()))
	if n := s.rdb.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("Ping wrote %d keys", n)
	}
	conns, calls := proxy.Accepted(), proxy.Calls()
	// when the first calls are made, then they open no connection and send no script a second time.
	if _, err := exchange(s, "k", request(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Inspect(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	pair := []*lease.Call{{Key: "a", Request: request(1)}, {Key: "b", Request: request(1)}}
	s.Exchange(t.Context(), pair, func([]*lease.Call) {})
	if proxy.Accepted() != conns || proxy.Calls() != calls+4 {
		t.Errorf("%d connections more, %d calls", proxy.Accepted()-conns, proxy.Calls()-calls)
	}
}

func TestPingReachesEveryMasterOfACluster(t *testing.T) {
	servers, s := startCluster(t)
	must(t, s.Ping(t.Context()))
	for _, server := range servers {
		one := redis.NewClient(&redis.Options{Addr: server.Addr})
		defer one.Close()
		if known := one.ScriptExists(t.Context(), s.leaseScript.sha,
			s.configureScript.sha).Val(); len(known) != 2 || !known[0] || !known[1] {
			t.Errorf("%s knows %v", server.Addr, known)
		}
	}
}

// refusing is a dial that fails, and counts.
func refusing(dials *atomic.Int64, err error) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		dials.Add(1)
		return nil, &net.OpError{Op: "dial", Err: err}
	}
}

// TestWhatRefusesIsNamedAtTheFirstDial: the client would try four times more before it said so, an
// hour apart.
func TestWhatRefusesIsNamedAtTheFirstDial(t *testing.T) {
	var dials atomic.Int64
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetryTimeout: time.Hour,
		Dialer: refusing(&dials, syscall.ECONNREFUSED)})
	s := storeOver(t, rdb)
	for what, do := range map[string]func() error{
		"a call":  func() error { _, err := exchange(s, "k", request(1)); return err },
		"inspect": func() error { _, err := s.Inspect(t.Context(), "k"); return err },
		"ping":    func() error { return s.Ping(t.Context()) },
	} {
		before := dials.Load()
		err := do()
		if !errors.Is(err, syscall.ECONNREFUSED) || !errors.Is(err, lease.ErrRefused) ||
			errors.Is(err, lease.ErrPermanent) {
			t.Errorf("%s: %v", what, err)
		}
		if n := dials.Load() - before; n != 1 {
			t.Errorf("%s: %d dials", what, n)
		}
	}
}

// TestACallThatWaitsForItsConnectionSaysSo, so that its caller can tell a slow handshake from a
// slow server.
func TestACallThatWaitsForItsConnectionSaysSo(t *testing.T) {
	dialing, open := make(chan bool), make(chan bool)
	addr := redistest.Start(t).Addr
	rdb := redis.NewClient(&redis.Options{Addr: addr, Dialer: func(ctx context.Context, network,
		addr string) (net.Conn, error) {
		dialing <- true
		<-open
		return net.Dial(network, addr)
	}})
	s := storeOver(t, rdb)
	c, finished := &lease.Call{Key: "k", Request: request(1)}, make(chan bool)
	go s.Exchange(t.Context(), []*lease.Call{c}, func([]*lease.Call) { close(finished) })
	<-dialing
	for c.Unsent() == nil { // it is told by the dial's own goroutine
		time.Sleep(time.Millisecond)
	}
	if why := c.Unsent(); !errors.Is(why, errConnecting) {
		t.Errorf("%v", why)
	}
	open <- true
	<-finished
	if c.Err != nil || c.Unsent() != nil {
		t.Errorf("%v, %v", c.Err, c.Unsent())
	}
}

// TestACallThatIsGivenUpBeforeItIsSentNeverIs: its tokens would be drawn for nobody.
func TestACallThatIsGivenUpBeforeItIsSentNeverIs(t *testing.T) {
	// Given a call whose connection is in the middle of its handshake,
	connected, goOn := make(chan bool), make(chan bool)
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr)
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr, PoolSize: 1,
		OnConnect: func(context.Context, *redis.Conn) error {
			connected <- true
			<-goOn
			return nil
		}})
	s := storeOver(t, rdb)
	c := &lease.Call{Key: "k", Request: request(1)}
	ctx, cancel := context.WithCancel(t.Context())
	finished := make(chan bool)
	go s.Exchange(ctx, []*lease.Call{c}, func([]*lease.Call) { close(finished) })
	<-connected
	// when its caller gives up,
	cancel()
	<-finished
	// then it is told that the call was not executed,
	if !errors.Is(c.Err, lease.ErrRefused) || !errors.Is(c.Err, context.Canceled) {
		t.Errorf("%v", c.Err)
	}
	// and when the connection is there at last, the call does not go out over it: only the next one
	// does.
	goOn <- true
	finished = make(chan bool)
	next := &lease.Call{Key: "k", Request: request(2)}
	go s.Exchange(t.Context(), []*lease.Call{next}, func([]*lease.Call) { close(finished) })
	select {
	case <-connected: // the half-written first connection is not used again
		goOn <- true
		<-finished
	case <-finished:
	}
	if next.Err != nil || next.Grant.Counter != 1 {
		t.Errorf("%+v, %v", next.Grant, next.Err)
	}
	// What has been written cannot be taken back.
	p := &pipeline{begun: time.Now()}
	if _, err := (&payload{p, nil}).MarshalBinary(); err != nil || p.withdraw() {
		t.Errorf("%v; withdrawn", err)
	}
}

func TestTheReasonIsNamedInOneLine(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	s := storeOver(t, rdb)
	if err := s.Ping(t.Context()); err == nil || strings.Contains(err.Error(), "\n") ||
		!strings.HasPrefix(err.Error(), "redisbucket: ping: ") {
		t.Errorf("%v", err)
	}
}

func TestARingIsRefusedUnlessAskedFor(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": redistest.Start(t).Addr,
		"b": redistest.Start(t).Addr}})
	defer ring.Close()
	// Nobody gets a ring by accident: the error says what it costs, beside all other violations.
	if _, err := New(ring, Config{InFlight: -1}); !errors.Is(err, ErrInvalidConfig) ||
		!strings.Contains(err.Error(), "a full burst") || !strings.Contains(err.Error(), "InFlight") {
		t.Errorf("%v", err)
	}
	// Whoever asks for it is served, and told of its dials as with any client.
	s, err := New(ring, Config{AllowRing: true})
	must(t, err)
	must(t, s.Ping(t.Context()))
	for _, k := range []string{"a", "b", "c", "d"} {
		if _, err := exchange(s, k, request(1)); err != nil {
			t.Error(err)
		}
	}
}

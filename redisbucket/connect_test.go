package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// pair returns a call for each key.
func pair(seq int64, keys ...string) (calls []*lease.Call) {
	for _, k := range keys {
		calls = append(calls, &lease.Call{Key: k, Request: request(seq)})
	}
	return calls
}

// farOff is a round trip of the tests' slow link.
const farOff = 50 * time.Millisecond

// overALink returns a store whose server is farOff, and the proxy between them.
func overALink(t *testing.T) (*Store, *redistest.Proxy) {
	t.Helper()
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr)
	proxy.Set(redistest.Fate{Far: farOff})
	return newStore(t, proxy.Addr), proxy
}

func TestAHandshakeIsNoRoundTrip(t *testing.T) {
	t.Parallel()
	s, proxy := overALink(t)
	trip := func(seq int64) (all time.Duration, c *lease.Call) {
		calls, start := pair(seq, "k"), time.Now()
		s.Exchange(t.Context(), calls, func([]*lease.Call) {})
		testkit.NoErr(t, calls[0].Err)
		return time.Since(start), calls[0]
	}
	// When the first call opens a connection and brings the script,
	all, c := trip(1)
	// then what it says took no round trip is at least HELLO and the sending with the script, and one
	// round trip is left,
	testkit.Check(t, c.Before >= 2*farOff && all-c.Before >= farOff, "%v, of which before %v", all, c.Before)
	// and its answer's time begins when it was sent with the script.
	testkit.Check(t, c.SentAfter() >= 2*farOff && all-c.SentAfter() >= farOff,
		"sent after %v of %v", c.SentAfter(), all)
	// When the next goes over the same connection, then all of it is a round trip.
	all, c = trip(2)
	whole := c.Before == 0 && all >= farOff
	testkit.Check(t, whole && c.Unsent() == nil, "%v, of which before %v, %v", all, c.Before, c.Unsent())
	// When the server has lost the script, its answer's time begins with that again, and no
	// connection is opened.
	s.rdb.ScriptFlush(t.Context())
	all, c = trip(3)
	testkit.Check(t, c.SentAfter() >= farOff && all-c.SentAfter() >= farOff,
		"sent after %v of %v", c.SentAfter(), all)
	// When the connection was lost, its successor's handshake is none again.
	proxy.Cut()
	_, c = trip(4)
	testkit.Check(t, c.Before >= farOff, "after the connection was cut: %v before the last sending", c.Before)
}

// A script is more than TCP sends at once over a new connection, so on a slow link it takes several
// round trips to bring it. If they counted as one, leases would be long for nothing.
func TestBringingAScriptIsNoRoundTrip(t *testing.T) {
	t.Parallel()
	// Given a call that a server will refuse, as it does not know the script,
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr)
	s, calls := newStore(t, proxy.Addr), pair(1, "k")
	release, done := proxy.Hold(), make(chan struct{})
	go func() {
		defer close(done)
		s.Exchange(t.Context(), calls, func([]*lease.Call) {})
	}()
	testkit.Eventually(t, "a call", func() bool { return proxy.Calls() > 0 })
	// when it takes long to bring that,
	const takes = 200 * time.Millisecond
	proxy.Set(redistest.Fate{Delay: takes})
	release()
	<-done
	// then the round trip is that of the refusal.
	testkit.NoErr(t, calls[0].Err)
	testkit.Check(t, calls[0].Before >= takes, "%v were no round trip, want %v", calls[0].Before, takes)
}

func TestPingLeavesNothingToTheFirstCall(t *testing.T) {
	t.Parallel()
	s, proxy := overALink(t)
	// Given a store that was warmed,
	testkit.NoErr(t, s.Ping(t.Context()))
	n := s.rdb.DBSize(t.Context()).Val()
	testkit.Check(t, n == 0, "Ping wrote %d keys", n)
	conns, calls := proxy.Accepted(), proxy.Calls()
	// when the first calls are made, then they open no connection and send no script a second time.
	granted(t, s, "k", request(1))
	_, err := s.Inspect(t.Context(), "k")
	testkit.NoErr(t, err)
	s.Exchange(t.Context(), pair(1, "a", "b"), func([]*lease.Call) {})
	testkit.Check(t, proxy.Accepted() == conns && proxy.Calls() == calls+4, "%d connections more, %d calls",
		proxy.Accepted()-conns, proxy.Calls()-calls)
}

// TestARefusedConnectionIsNamedAtTheFirstDial: the client would try four times more before it said so, an
// hour apart.
func TestARefusedConnectionIsNamedAtTheFirstDial(t *testing.T) {
	var dials atomic.Int64
	s := storeOver(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetryTimeout: time.Hour,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			dials.Add(1)
			return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		}}))
	for what, do := range map[string]func() error{
		"a call":  func() error { _, err := exchange(s, "k", request(1)); return err },
		"inspect": func() error { _, err := s.Inspect(t.Context(), "k"); return err },
		"ping":    func() error { return s.Ping(t.Context()) },
	} {
		before := dials.Load()
		checkError(t, what, do(), map[error]bool{syscall.ECONNREFUSED: true, lease.ErrRefused: true,
			lease.ErrPermanent: false})
		testkit.Check(t, dials.Load() == before+1, "%s: %d dials", what, dials.Load()-before)
	}
	// and in one line
	said := fmt.Sprint(s.Ping(t.Context()))
	testkit.Check(t, !strings.Contains(said, "\n") && strings.HasPrefix(said, "redisbucket: ping: "), "%s", said)
}

// TestACallThatWaitsForItsConnectionSaysSo, so that its caller can tell a slow handshake from a
// slow server.
func TestACallThatWaitsForItsConnectionSaysSo(t *testing.T) {
	dialing, open, finished := make(chan bool), make(chan bool), make(chan bool)
	options := patient(redistest.Start(t).Addr)
	options.Dialer = func(_ context.Context, network, addr string) (net.Conn, error) {
		dialing <- true
		<-open
		return net.Dial(network, addr)
	}
	s, calls := storeOver(t, redis.NewClient(options)), pair(1, "k")
	go s.Exchange(t.Context(), calls, func([]*lease.Call) { close(finished) })
	<-dialing
	// the dial's own goroutine tells it
	testkit.Eventually(t, "a reason", func() bool { return errors.Is(calls[0].Unsent(), errConnecting) })
	open <- true
	<-finished
	testkit.Check(t, calls[0].Err == nil && calls[0].Unsent() == nil, "%v, %v", calls[0].Err, calls[0].Unsent())
}

// TestACallThatIsGivenUpBeforeItIsSentNeverIs: no caller would use the tokens that it draws.
func TestACallThatIsGivenUpBeforeItIsSentNeverIs(t *testing.T) {
	// Given a call whose connection is in the middle of its handshake,
	connected, goOn := make(chan bool), make(chan bool)
	options := patient(redistest.Start(t).Addr)
	options.PoolSize, options.OnConnect = 1, func(context.Context, *redis.Conn) error {
		connected <- true
		<-goOn
		return nil
	}
	s := storeOver(t, redis.NewClient(options))
	send := func(ctx context.Context, calls []*lease.Call) <-chan bool {
		finished := make(chan bool)
		go s.Exchange(ctx, calls, func([]*lease.Call) { close(finished) })
		return finished
	}
	ctx, cancel := context.WithCancel(t.Context())
	given := pair(1, "k")
	finished := send(ctx, given)
	<-connected
	// when its caller gives up,
	cancel()
	<-finished
	// then it is told that the call was not executed,
	checkError(t, "given up", given[0].Err, map[error]bool{lease.ErrRefused: true, context.Canceled: true})
	// and when the connection is there at last, the call does not go out over it: only the next one
	// does.
	goOn <- true
	next := pair(2, "k")
	finished = send(t.Context(), next)
	select {
	case <-connected: // the half-written first connection is not used again
		goOn <- true
		<-finished
	case <-finished:
	}
	testkit.Check(t, next[0].Err == nil && next[0].Grant.Counter == 1, "%+v, %v", next[0].Grant, next[0].Err)
}

// A dial fails at the moment at which the call goes out over another connection, and its caller has
// stopped waiting: it may have been executed.
func TestASentCallIsNotRefusedByADialThatFails(t *testing.T) {
	s := storeOver(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := s.pipeline(ctx, s.node(""), nil, func(p *pipeline) error {
		_, _ = (&payload{p: p}).MarshalBinary() // sent
		p.dialFailed(&net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")})
		cancel()
		<-t.Context().Done()
		return nil
	})
	checkError(t, "sent", wrap("k", err), map[error]bool{lease.ErrRefused: false, lease.ErrUnavailable: true})
}

// TestALostReplyIsOneExecution: neither the client nor the Store sends a call again whose reply is lost.
func TestALostReplyIsOneExecution(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	s, direct := newStore(t, proxy.Addr), newStore(t, server.Addr)
	s.found.Store(foundEnough)
	executed := func(key string) int64 {
		st, err := direct.Inspect(t.Context(), key)
		testkit.NoErr(t, err)
		return st.Counter
	}
	// given a client with go-redis's default retries, and buckets that have served a call
	exchangeAll(s, pair(1, "a", "b", "c"))
	exchangeAll(s, drawing(1, 1, "x", "y", "z"))
	for n, calls := range [][]*lease.Call{pair(2, "a"), pair(3, "a", "b", "c"), drawing(2, 1, "x"),
		drawing(3, 1, "x", "y", "z")} {
		first := calls[0].Key
		before := executed(first)
		proxy.Set(redistest.Fate{LoseReply: true})
		// when the replies to calls get lost after the script ran
		exchangeAll(s, calls)
		// then the first was executed once (in a pipeline the proxy may cut off the rest), and the error
		// leaves open whether it was.
		testkit.Check(t, executed(first) == before+1, "%d: executed %d times", n, executed(first)-before)
		for _, c := range calls {
			checkError(t, c.Key, c.Err, map[error]bool{lease.ErrUnavailable: true, lease.ErrRefused: false,
				lease.ErrPermanent: false})
		}
	}
	// An ordinary command is repeated: the proxy can tell.
	before, one := executed("a"), newGroup(nil, 1)
	testkit.NoErr(t, one.build(s, pair(6, "a")[0], "", false))
	one.parts[0].request().p = new(pipeline)
	_ = s.rdb.Process(t.Context(), one.parts[0].command(t.Context(), false).Cmd)
	testkit.Check(t, executed("a") >= before+2, "an ordinary command is not repeated: the proxy proves nothing")
}

// TestAServerThatForgotTheScriptsMakesEachCallOnce: lease calls, and draws that travel with them.
func TestAServerThatForgotTheScriptsMakesEachCallOnce(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store) {
		s.found.Store(foundEnough)
		for seq := int64(1); seq < 4; seq++ {
			for _, calls := range [][]*lease.Call{pair(seq, "one"), drawing(seq, 1, numbered(6)...)} {
				s.rdb.ScriptFlush(t.Context())
				if len(calls) > 1 {
					calls[2].Request.Draw, calls[4].Request.Draw = false, false
				}
				exchangeAll(s, calls)
				for _, c := range calls {
					testkit.Check(t, c.Err == nil && c.Grant.Granted == c.Request.Want && c.Grant.Counter == seq,
						"%q: %+v, %v", c.Key, c.Grant, c.Err)
				}
			}
		}
	})
}

func TestTheContextEndsACallToAHungServer(t *testing.T) {
	// given a server whose answers do not come, and calls that it has got
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr)
	s, calls, groups := newStore(t, proxy.Addr), pair(1, "a", "b"), make(chan int, 2)
	testkit.NoErr(t, s.Ping(t.Context())) // so that there is a connection
	before, release := proxy.Calls(), proxy.Hold()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go s.Exchange(ctx, calls, func(group []*lease.Call) { groups <- len(group) })
	testkit.Eventually(t, "both calls", func() bool { return proxy.Calls() == before+2 })
	// when their context ends
	cancel()
	// then they come back with it, all as one group, though the client still waits
	n := <-groups
	testkit.Check(t, n == len(calls) && len(groups) == 0, "%d calls came back", n)
	for _, c := range calls {
		checkError(t, c.Key, c.Err, map[error]bool{lease.ErrUnavailable: true, lease.ErrRefused: false,
			context.Canceled: true})
	}
	// and the caller may reuse them while the answer arrives (the race detector watches)
	proxy.Pass()
	release()
	for _, c := range calls {
		c.Request = request(2)
	}
	s.Exchange(context.Background(), calls, func([]*lease.Call) {})
	for _, c := range calls {
		testkit.Check(t, c.Err == nil, "%q: %v", c.Key, c.Err)
	}
}

func TestAnEndedContextSendsNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	calls := pair(1, "k")
	newStore(t, "127.0.0.1:1").Exchange(ctx, calls, func([]*lease.Call) {})
	checkError(t, "ended", calls[0].Err, map[error]bool{lease.ErrRefused: true, lease.ErrUnavailable: true,
		context.Canceled: true})
}

// TestServerErrorsAreTyped puts real servers into states in which they refuse a lease call.
func TestServerErrorsAreTyped(t *testing.T) {
	t.Parallel()
	do := func(args ...any) func(*testing.T, *Store) {
		return func(t *testing.T, s *Store) {
			testkit.NoErr(t, s.rdb.(*redis.Client).Do(t.Context(), args...).Err())
		}
	}
	deny := func(command string) func(*testing.T, *Store) { return do("ACL", "SETUSER", "default", "-"+command) }
	replica := []string{"--slaveof", "127.0.0.1", "1"}
	for _, c := range []struct {
		name  string
		since int // the version of Redis that refuses
		args  []string
		do    func(*testing.T, *Store)
		// of the error
		refused, permanent bool
	}{
		{name: "READONLY", args: replica, refused: true},
		{name: "MASTERDOWN", args: append(replica, "--slave-serve-stale-data", "no"), refused: true},
		{name: "OOM", do: do("CONFIG", "SET", "maxmemory", "1"), refused: true},
		{name: "NOREPLICAS", since: 6, do: do("CONFIG", "SET", "min-replicas-to-write", "1"), refused: true},
		{name: "CLUSTERDOWN", args: []string{"--cluster-enabled", "yes"}, refused: true},
		{name: "NOAUTH", args: []string{"--requirepass", "secret"}, refused: true, permanent: true},
		{name: "NOPERM", since: 6, do: deny("evalsha"), refused: true, permanent: true},
		{name: "NOPERM inside the script, set", since: 6, do: deny("set"), permanent: true},
		{name: "NOPERM inside the script, get", since: 6, do: deny("get"), permanent: true},
		{name: "NOPERM inside the script, time", since: 6, do: deny("time"), permanent: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			redistest.RequireVersion(t, c.since, "this refusal of a script")
			s := newStore(t, redistest.Start(t, c.args...).Addr)
			if c.do != nil {
				c.do(t, s)
			}
			g, err := exchange(s, "the key", request(1))
			checkError(t, c.name, err, map[error]bool{lease.ErrUnavailable: true, lease.ErrStale: false,
				lease.ErrRefused: c.refused, lease.ErrPermanent: c.permanent})
			testkit.Check(t, g.Granted == 0 && strings.Contains(fmt.Sprint(err), `"the key"`), "%+v, %v", g, err)
			n := s.rdb.DBSize(t.Context()).Val()
			testkit.Check(t, n == 0, "%d keys were written", n)
		})
	}
}

func TestErrorsOfAllServersAreClassified(t *testing.T) {
	const running = "ERR Error running script (call to f_abc): @user_script:12: "
	for text, want := range map[string]error{
		running + "@user_script: 12: -OOM command not allowed when used memory > 'maxmemory'.": errRefused,
		running + "@user_script: 12: -READONLY You can't write against a read only replica.":   errRefused,
		running + "WRONGTYPE Operation against a key holding the wrong kind of value":          errForbidden,
		"ERR max number of clients reached":                                                    errRefused,
		"LOADING Redis is loading the dataset in memory":                                       errRefused,
		"BUSY Redis is busy running a script.":                                                 errRefused,
		"TRYAGAIN Multiple keys request during rehashing of slot":                              errRefused,
		"MISCONF Redis is configured to save RDB snapshots":                                    errRefused,
		"CROSSSLOT Keys in request don't hash to the same slot":                                errForbidden,
		"WRONGPASS invalid username-password pair or user is disabled.":                        errForbidden,
		"ERR something else": errUnknown,
		"ERR user_script:1: attempt to compare nil with number script: abc":                    errUnknown,
		"ERR unknown command 'evalsha'":                                                        errForbidden,
		"@user_script: 42: The user executing the script can't run this command or subcommand": errHopeless,
		running + "@user_script: 19: The user executing the script can't access a key":         errHopeless,
		"ERR The user executing the script is lacking the permissions for the command":         errHopeless,
		"ERR ACL failure in script: User yuzhi has no permissions to run the 'get' command":    errHopeless,
		"@user_script: 42: something else":                                                     errUnknown,
	} {
		got := classify(serverError(text))
		testkit.Check(t, got == want, "%q is %v, want %v", text, got, want)
	}
	for err, want := range map[error]error{
		io.EOF: errUnknown, context.DeadlineExceeded: errUnknown,
		redis.Nil: errUnknown, redis.ErrClosed: errRefused, redis.ErrPoolTimeout: errRefused,
		&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}: errRefused,
		&net.OpError{Op: "read", Err: syscall.ECONNRESET}:   errUnknown,
	} {
		got := classify(err)
		testkit.Check(t, got == want, "%v is %v, want %v", err, got, want)
	}
	_, err := exchange(newStore(t, "127.0.0.1:1"), "k", request(1))
	checkError(t, "no server", err, map[error]bool{lease.ErrRefused: true, lease.ErrPermanent: false})
}

type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}

package redisbucket

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/lease"
)

func TestALostReplyIsOneExecution(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	direct := newStore(t, server.Addr)
	for _, calls := range []int{1, 5} {
		// given a client with go-redis's default retries, whose replies get lost after the script ran
		s := newStore(t, proxy.Addr)
		keys := []string{"a", "b", "c", "d", "e"}[:calls]
		batch := make([]*lease.Call, calls)
		proxy.Pass()
		for i, k := range keys {
			if _, err := exchange(s, k, request(int64(10*calls+1))); err != nil {
				t.Fatal(err)
			}
			batch[i] = &lease.Call{Key: k, Request: request(int64(10*calls + 2))}
		}
		before, _ := direct.Inspect(context.Background(), "a")
		proxy.Set(redistest.Fate{LoseReply: true})
		// when a call is made
		s.Exchange(context.Background(), batch, func([]*lease.Call) {})
		// then it was executed at most once (in a pipeline the proxy may cut off the rest), and the error
		// leaves open whether it was
		after, err := direct.Inspect(context.Background(), "a")
		if err != nil || after.Counter != before.Counter+1 {
			t.Errorf("%d calls: executed %d times, want once (%v)", calls, after.Counter-before.Counter, err)
		}
		for _, c := range batch {
			if !errors.Is(c.Err, lease.ErrUnavailable) || errors.Is(c.Err, lease.ErrRefused) ||
				errors.Is(c.Err, lease.ErrPermanent) {
				t.Errorf("%d calls: %v, want indeterminate", calls, c.Err)
			}
		}
		// and an ordinary command would have been repeated: the test can tell
		sum := func() int64 { st, _ := direct.Inspect(context.Background(), "a"); return st.Counter }
		was := sum()
		r := request(int64(10*calls + 3))
		args, err := s.leaseArgs("a", &r, "")
		must(t, err)
		ordinary := redis.NewCmd(context.Background(), append([]any{"evalsha", s.leaseScript.sha},
			args...)...)
		_ = s.rdb.Process(context.Background(), ordinary)
		if n := sum() - was; n < 2 {
			t.Errorf("an ordinary command was executed %d times: the proxy proves nothing", n)
		}
	}
}

func TestAnUnknownScriptIsSentOnce(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store) {
		for seq := int64(1); seq < 4; seq++ {
			// given a server that forgot the scripts
			s.rdb.ScriptFlush(context.Background())
			// when a call is made
			g, err := exchange(s, "k", request(seq))
			// then it is answered, and was executed once
			if err != nil || g.Counter != seq {
				t.Fatalf("seq %d: %+v, %v", seq, g, err)
			}
			if st, err := s.Inspect(context.Background(), "k"); err != nil || st.Counter != seq {
				t.Fatalf("seq %d: %+v, %v", seq, st, err)
			}
		}
	})
}

func TestTheContextBoundsACallToAHungServer(t *testing.T) {
	// given a server that has stopped answering, and a client that would wait for 5 s
	server := redistest.Start(t)
	s := newStore(t, server.Addr)
	if err := s.Ping(t.Context()); err != nil { // so that there is a connection
		t.Fatal(err)
	}
	calls := []*lease.Call{{Key: "a", Request: request(1)}, {Key: "b", Request: request(1)}}
	must(t, server.Signal(syscall.SIGSTOP))
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	// when calls are made
	start, groups := time.Now(), 0
	s.Exchange(ctx, calls, func(group []*lease.Call) { groups++ })
	// then they come back with the context
	if took := time.Since(start); took > 2*time.Second || groups != 1 {
		t.Errorf("took %v, %d groups", took, groups)
	}
	for _, c := range calls {
		if !errors.Is(c.Err, lease.ErrUnavailable) || errors.Is(c.Err, lease.ErrRefused) ||
			!errors.Is(c.Err, context.DeadlineExceeded) {
			t.Errorf("%q: %v", c.Key, c.Err)
		}
	}
	// and the caller may reuse them while the answer arrives (the race detector watches)
	must(t, server.Signal(syscall.SIGCONT))
	for _, c := range calls {
		c.Request = request(2)
	}
	s.Exchange(context.Background(), calls, func([]*lease.Call) {})
	for _, c := range calls {
		if c.Err != nil {
			t.Errorf("%q: %v", c.Key, c.Err)
		}
	}
}

func TestAnEndedContextSendsNothing(t *testing.T) {
	s := newStore(t, "127.0.0.1:1")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	c := &lease.Call{Key: "k", Request: request(1)}
	s.Exchange(ctx, []*lease.Call{c}, func([]*lease.Call) {})
	if !errors.Is(c.Err, lease.ErrRefused) || !errors.Is(c.Err, lease.ErrUnavailable) ||
		!errors.Is(c.Err, context.Canceled) {
		t.Errorf("%v", c.Err)
	}
}

// TestServerErrorsAreTyped puts real servers into states in which they refuse a lease call.
func TestServerErrorsAreTyped(t *testing.T) {
	ctx := context.Background()
	config := func(name, value string) func(*testing.T, *redis.Client) {
		return func(t *testing.T, admin *redis.Client) {
			must(t, admin.ConfigSet(ctx, name, value).Err())
		}
	}
	deny := func(command string) func(*testing.T, *redis.Client) {
		return func(t *testing.T, admin *redis.Client) {
			must(t, admin.Do(ctx, "ACL", "SETUSER", "default", "-"+command).Err())
		}
	}
	for _, c := range []struct {
		name  string
		since int // the version of Redis that refuses
		args  []string
		do    func(*testing.T, *redis.Client)
		// of the error
		refused, permanent bool
	}{
		{name: "READONLY", args: []string{"--slaveof", "127.0.0.1", "1"}, refused: true},
		{name: "MASTERDOWN", args: []string{"--slaveof", "127.0.0.1", "1", "--slave-serve-stale-data", "no"}, refused: true},
		{name: "OOM", do: config("maxmemory", "1"), refused: true},
		{name: "NOREPLICAS", since: 6, do: config("min-replicas-to-write", "1"), refused: true},
		{name: "CLUSTERDOWN", args: []string{"--cluster-enabled", "yes"}, refused: true},
		{name: "NOAUTH", args: []string{"--requirepass", "secret"}, refused: true, permanent: true},
		{name: "NOPERM", since: 6, do: deny("evalsha"), refused: true, permanent: true},
		{name: "NOPERM inside the script, set", since: 6, do: deny("set"), permanent: true},
		{name: "NOPERM inside the script, get", since: 6, do: deny("get"), permanent: true},
		{name: "NOPERM inside the script, time", since: 6, do: deny("time"), permanent: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			redistest.RequireVersion(t, c.since, "this refusal of a script")
			server := redistest.Start(t, c.args...)
			s := newStore(t, server.Addr)
			if c.do != nil {
				c.do(t, s.rdb.(*redis.Client))
			}
			g, err := exchange(s, "the key", request(1))
			for is, want := range map[error]bool{
				lease.ErrUnavailable: true, lease.ErrStale: false,
				lease.ErrRefused: c.refused, lease.ErrPermanent: c.permanent,
			} {
				if errors.Is(err, is) != want {
					t.Errorf("%v, is %v: want %v", err, is, want)
				}
			}
			if g.Granted != 0 || err == nil || !bytes.Contains([]byte(err.Error()), []byte(`"the key"`)) {
				t.Errorf("%+v, %v", g, err)
			}
		})
	}
	t.Run("not there", func(t *testing.T) {
		_, err := exchange(newStore(t, "127.0.0.1:1"), "k", request(1))
		if !errors.Is(err, lease.ErrRefused) || errors.Is(err, lease.ErrPermanent) {
			t.Errorf("%v", err)
		}
	})
}

func TestErrorsOfAllServersAreClassified(t *testing.T) {
	for text, want := range map[string]error{
		"ERR Error running script (call to f_abc): @user_script:12: @user_script: 12: -OOM command not allowed when used memory > 'maxmemory'.": refused,
		"ERR Error running script (call to f_abc): @user_script:12: @user_script: 12: -READONLY You can't write against a read only replica.":   refused,
		"ERR Error running script (call to f_abc): @user_script:12: WRONGTYPE Operation against a key holding the wrong kind of value":          forbidden,
		"ERR max number of clients reached":                                                    refused,
		"LOADING Redis is loading the dataset in memory":                                       refused,
		"BUSY Redis is busy running a script.":                                                 refused,
		"TRYAGAIN Multiple keys request during rehashing of slot":                              refused,
		"MISCONF Redis is configured to save RDB snapshots":                                    refused,
		"CROSSSLOT Keys in request don't hash to the same slot":                                forbidden,
		"ERR something else":                                                                   unknown,
		"ERR user_script:1: attempt to compare nil with number script: abc":                    unknown,
		"ERR unknown command 'evalsha'":                                                        forbidden,
		"@user_script: 42: The user executing the script can't run this command or subcommand": hopeless,
		"ERR Error running script (call to f_abc): @user_script:19: @user_script: 19: The user executing the script can't access at least one of the keys mentioned in the command arguments": hopeless,
		"ERR The user executing the script is lacking the permissions for the command":                                                                                                        hopeless,
		"ERR ACL failure in script: User yuzhi has no permissions to run the 'get' command":                                                                                                   hopeless,
		"@user_script: 42: something else": unknown,
	} {
		if got := classify(serverError(text)); got != want {
			t.Errorf("%q is %d, want %d", text, got, want)
		}
	}
	for err, want := range map[error]error{
		io.EOF: unknown, context.DeadlineExceeded: unknown, redis.Nil: unknown, redis.ErrClosed: refused,
		redis.ErrPoolTimeout: refused,
		&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}: refused,
		&net.OpError{Op: "read", Err: syscall.ECONNRESET}:   unknown,
	} {
		if got := classify(err); got != want {
			t.Errorf("%v is %d, want %d", err, got, want)
		}
	}
}

type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}

package faults

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

func TestRow02DownAtStartColdStartDecides(t *testing.T) {
	testkit.LongOnly(t)
	type story struct {
		cold hybrid.ColdStart
		want bool
	}
	each(t, map[string]story{
		"Deny":  {hybrid.ColdStartDeny, false},
		"Allow": {hybrid.ColdStartAllow, true},
	}, func(t *testing.T, c story) {
		// given a server that is down
		server := start(t)
		server.Kill()
		// when a fleet is started and asked
		cfg := ordinary(strict)
		cfg.Policy.ColdStart = c.cold
		f := server.fleet(size, cfg)
		for _, l := range f.limiters {
			k := l.Key(key)
			for verb, allow := range map[string]func() bool{"Allow": k.Allow, "TryAllow": k.TryAllow} {
				got := f.ask(key, allow)
				testkit.Check(t, got == c.want, "%s is %v, want %v", verb, got, c.want)
			}
		}
		// then no request waits for the client, whatever number of them comes
		load := f.load(key, perEach)
		seen := f.next(key, 1000)
		testkit.Check(t, c.want && seen.denied == 0 || !c.want && seen.admitted == 0, "%v", seen)
		f.checkAnswered(key, 0, f.now())
		// and when the server comes, it serves
		server.Restart(t)
		f.awaitLeased(limit.Tokens)
		load.stop()
		if !c.want {
			f.checkBound(key, limit, 0)
		}
	})
}

func TestRow09AnotherProgramOnThatPortIsAnOutage(t *testing.T) {
	testkit.LongOnly(t)
	t.Parallel()
	// given an HTTP server where Redis should be
	stub := httptest.NewServer(http.NotFoundHandler())
	defer stub.Close()
	server := start(t)
	server.addr = stub.Listener.Addr().String()
	f := server.fleet(size, ordinary(strict))
	// when it is asked
	load := f.load(key, perEach)
	testkit.Eventually(t, "1000 requests, and an error", func() bool {
		return f.seen(key, 0, f.now()).denied >= 1000 && f.heard().failed > 0
	})
	// then every request is denied, none waits for the client, and the error has a type
	f.checkAnswered(key, 0, f.now())
	load.stop()
	st, err := f.stats(), f.heard().err
	testkit.Check(t, st.Admitted == 0 && st.Leased == 0, "%+v", st)
	testkit.Check(t, errors.Is(err, lease.ErrUnavailable), "%v", err)
}

// behindTLS puts TLS before a server, under the name example.com, as a proxy of a cloud does. It
// returns the address, and the authority that clients must trust.
func behindTLS(
	t *testing.T, server *redistest.Server, auth tls.ClientAuthType,
) (addr string, authority *x509.CertPool) {
	t.Helper()
	stub := httptest.NewTLSServer(nil) // it has a certificate
	stub.Close()
	authority = x509.NewCertPool()
	authority.AddCert(stub.Certificate())
	cfg := &tls.Config{ClientAuth: auth, Certificates: stub.TLS.Certificates}
	l, err := tls.Listen("tcp", "127.0.0.1:0", cfg)
	testkit.NoErr(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				s, err := net.Dial("tcp", server.Addr)
				if err != nil {
					return
				}
				wg.Go(func() { _, _ = io.Copy(c, s); c.Close() })
				_, _ = io.Copy(s, c)
				s.Close()
			})
		}
	})
	t.Cleanup(func() { l.Close(); server.Kill(); wg.Wait() })
	return l.Addr().String(), authority
}

// TestRow26WhyThereIsNoConnectionIsSaid: Ping, the store's error and the log say so, with the
// client's default dials.
func TestRow26WhyThereIsNoConnectionIsSaid(t *testing.T) {
	testkit.LongOnly(t)
	t.Parallel()
	server := redistest.Start(t)
	addr, authority := behindTLS(t, server, tls.NoClientCert)
	wantsCertificate, _ := behindTLS(t, server, tls.RequireAnyClientCert)
	client := func(addr string, c *tls.Config) redis.UniversalClient {
		return redis.NewClient(&redis.Options{Addr: addr, TLSConfig: c,
			DialTimeout: operatorTimeout, ReadTimeout: operatorTimeout})
	}
	for _, c := range []struct {
		name      string
		rdb       redis.UniversalClient
		cause     func(error) bool // nil: there is a connection
		permanent bool
		says      string
	}{
		{name: "a good certificate", rdb: client(addr, &tls.Config{RootCAs: authority, ServerName: "example.com"})},
		{"an authority that is not known", client(addr, &tls.Config{ServerName: "example.com"}),
			func(err error) bool { return errors.As(err, new(x509.UnknownAuthorityError)) }, true,
			"unknown authority"},
		{"a certificate for another name", client(addr, &tls.Config{RootCAs: authority, ServerName: "other.name"}),
			func(err error) bool { return errors.As(err, new(x509.HostnameError)) }, true, "other.name"},
		{"a server that wants a certificate", client(wantsCertificate, &tls.Config{InsecureSkipVerify: true}),
			func(err error) bool { return strings.Contains(err.Error(), "certificate required") }, true,
			"certificate required"},
		{"a port that refuses", client("127.0.0.1:1", nil),
			func(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }, false, "connection refused"},
		{"a cluster that refuses", redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}}),
			func(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }, false, "connection refused"},
		{"a name that nobody knows", client("no.such.host.invalid:6379", nil),
			func(err error) bool { return errors.As(err, new(*net.DNSError)) }, false, "no.such.host.invalid"},
	} {
		t.Run(c.name, func(t *testing.T) {
			// Given a client of go-redis that dials as by default,
			store := storeOn(t, c.rdb)
			cfg := with(busy, denying)
			cfg.CallTimeout = 500 * time.Millisecond
			l, err := hybrid.New(store, cfg)
			testkit.NoErr(t, err)
			defer l.Close()
			// when a connection is opened, then the error gives the reason of the failure,
			for _, err := range []error{call(t.Context(), store, key), l.Ping(t.Context())} {
				if c.cause == nil {
					testkit.Check(t, err == nil, "%v", err)
					continue
				}
				permanent := errors.Is(err, lease.ErrPermanent)
				testkit.Check(t, errors.Is(err, lease.ErrUnavailable) && c.cause(err) && permanent == c.permanent,
					"permanent %v: %v", permanent, err)
			}
			// and so does the log.
			if c.cause == nil {
				testkit.Eventually(t, "an admission", func() bool { return l.Allow(key) })
				return
			}
			// The log has the first call's error: one limiter's call fails once before it is given up.
			testkit.Eventually(t, "the reason in a log", func() bool {
				var log diary
				cfg.Logger = log.logger()
				l, err := hybrid.New(store, cfg)
				testkit.NoErr(t, err)
				defer l.Close()
				testkit.Check(t, !l.Allow(key), "admitted without a connection")
				testkit.Eventually(t, "a log", func() bool { return log.String() != "" })
				return strings.Contains(log.String(), c.says)
			})
		})
	}
}

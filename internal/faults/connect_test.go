package faults

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
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

// behindTLS puts TLS before a server, under the name buckets.internal, as a proxy of a cloud does.
// It returns where to connect, and the authority that whoever connects must trust.
func behindTLS(
	t *testing.T, server *redistest.Server, change func(*tls.Config),
) (addr string, authority *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "yuzhi test"},
		DNSNames:  []string{"buckets.internal"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	own, err := x509.ParseCertificate(raw)
	must(t, err)
	authority = x509.NewCertPool()
	authority.AddCert(own)
	cfg := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{raw}, PrivateKey: key}}}
	if change != nil {
		change(cfg)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", cfg)
	must(t, err)
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

// TestRow26WhyThereIsNoConnectionIsSaid: by Ping, by the store's error, and in the log, with the
// client's default dials.
func TestRow26WhyThereIsNoConnectionIsSaid(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	addr, authority := behindTLS(t, server, nil)
	wantsCertificate, _ := behindTLS(t, server,
		func(c *tls.Config) { c.ClientAuth = tls.RequireAnyClientCert })
	for _, c := range []struct {
		name      string
		addr      string
		tls       *tls.Config
		cause     func(error) bool
		permanent bool
		says      string
	}{
		{name: "a good certificate", addr: addr, tls: &tls.Config{RootCAs: authority,
			ServerName: "buckets.internal"}},
		{name: "an authority that is not known", addr: addr, tls: &tls.Config{ServerName: "buckets.internal"},
			permanent: true, says: "unknown authority",
			cause: func(err error) bool { var e x509.UnknownAuthorityError; return errors.As(err, &e) }},
		{name: "a certificate for another name", addr: addr, tls: &tls.Config{RootCAs: authority,
			ServerName: "other.internal"}, permanent: true, says: "other.internal",
			cause: func(err error) bool { var e x509.HostnameError; return errors.As(err, &e) }},
		{name: "a server that wants a certificate", addr: wantsCertificate,
			tls: &tls.Config{InsecureSkipVerify: true}, permanent: true, says: "certificate required",
			cause: func(err error) bool { return strings.Contains(err.Error(), "certificate required") }},
		{name: "a port that refuses", addr: "127.0.0.1:1", says: "connection refused",
			cause: func(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }},
		{name: "a name that nobody knows", addr: "no.such.host.invalid:6379", says: "no.such.host.invalid",
			cause: func(err error) bool { var e *net.DNSError; return errors.As(err, &e) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			// Given a client of go-redis with its defaults,
			store := storeOn(t, redis.NewClient(&redis.Options{Addr: c.addr, TLSConfig: c.tls}))
			var log diary
			l, err := hybrid.New(store, hybrid.Config{Limits: []hybrid.Limit{busy}, Policy: denying,
				Logger: log.logger()})
			must(t, err)
			defer l.Close()
			// when a connection is to be opened, then whoever asks is told why there is none,
			for what, err := range map[string]error{"a call": direct(store, "k"),
				"Ping": l.Ping(context.Background())} {
				if c.cause == nil {
					if err != nil {
						t.Errorf("%s: %v", what, err)
					}
					continue
				}
				if !errors.Is(err, lease.ErrUnavailable) || !c.cause(err) ||
					errors.Is(err, lease.ErrPermanent) != c.permanent {
					t.Errorf("%s: permanent %v: %v", what, errors.Is(err, lease.ErrPermanent), err)
				}
			}
			// and so is whoever reads the log.
			if admitted := l.Allow("k"); admitted != (c.cause == nil) {
				t.Errorf("admitted: %v", admitted)
			}
			if c.says != "" {
				testkit.Eventually(t, "a line of the log", func() bool { return log.String() != "" })
				if !strings.Contains(log.String(), c.says) || strings.Contains(log.String(),
					"no answer in time") {
					t.Error(log.String())
				}
			}
		})
	}
}

func TestAClusterThatRefusesSaysSo(t *testing.T) {
	t.Parallel()
	store := storeOn(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}}))
	var log diary
	l, err := hybrid.New(store, hybrid.Config{Limits: []hybrid.Limit{busy}, Policy: denying,
		Logger: log.logger()})
	must(t, err)
	defer l.Close()
	if l.Allow("k") {
		t.Error("admitted")
	}
	testkit.Eventually(t, "a line of the log", func() bool { return log.String() != "" })
	if !strings.Contains(log.String(), "connection refused") {
		t.Error(log.String())
	}
	if err := l.Ping(t.Context()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Error(err)
	}
}

package faults

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// TestRow26WhyThereIsNoConnectionIsSaid by the errors of the store and of Ping, with the client's default
// dials. (That the log says it too: TestNoConnectionIsAnOutageThatSaysWhy in hybrid.)
func TestRow26WhyThereIsNoConnectionIsSaid(t *testing.T) {
	t.Parallel()
	// Given servers behind TLS, under the name example.com, of which one wants a certificate,
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	wants := httptest.NewUnstartedServer(http.NotFoundHandler())
	wants.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Config.ErrorLog = wants.Config.ErrorLog
	wants.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	wants.StartTLS()
	defer wants.Close()
	authority := x509.NewCertPool()
	authority.AddCert(server.Certificate())
	addr := server.Listener.Addr().String()
	for name, c := range map[string]struct {
		addr      string
		tls       *tls.Config
		says      string
		permanent bool
	}{
		"an authority that is not known": {addr, &tls.Config{ServerName: "example.com"}, "unknown authority", true},
		"a certificate for another name": {addr, &tls.Config{RootCAs: authority, ServerName: "other.name"},
			"other.name", true},
		"a server that wants a certificate": {wants.Listener.Addr().String(),
			&tls.Config{InsecureSkipVerify: true}, "certificate required", true},
		"a port that refuses":      {"127.0.0.1:1", nil, "connection refused", false},
		"a name that nobody knows": {"no.such.host.invalid:6379", nil, "no.such.host.invalid", false},
	} {
		// when a client of go-redis connects, then the error says why there is no connection, and whether
		// retries are of use.
		store := storeOn(t, redis.NewClient(&redis.Options{Addr: c.addr, TLSConfig: c.tls,
			DialTimeout: operatorTimeout, ReadTimeout: operatorTimeout}))
		l, err := hybrid.New(store, with(busy, denying))
		testkit.NoErr(t, err)
		defer l.Close()
		for _, err := range []error{call(t.Context(), store, key), l.Ping(t.Context())} {
			testkit.Check(t, errors.Is(err, lease.ErrUnavailable) && strings.Contains(err.Error(), c.says) &&
				errors.Is(err, lease.ErrPermanent) == c.permanent, "%s: %v", name, err)
		}
	}
}

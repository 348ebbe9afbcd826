package httplimit_test

import (
	"cmp"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

var (
	check = testkit.Check
	must  = testkit.Must
	noErr = testkit.NoErr
)

// newLimiter returns a limiter with a store of its own.
func newLimiter(t testing.TB, cfg hybrid.Config) *hybrid.Limiter {
	t.Helper()
	return limiterOn(t, memory.New(nil), cfg)
}

func limiterOn(t testing.TB, store lease.Store, cfg hybrid.Config) *hybrid.Limiter {
	t.Helper()
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	l, err := hybrid.New(store, cfg)
	noErr(t, err)
	t.Cleanup(func() {
		check(t, l.Stats().Conserved(), "tokens are lost: %+v", l.Stats())
		_ = l.Close()
	})
	return l
}

// limiterOf returns a limiter with these limits.
func limiterOf(t testing.TB, limits ...hybrid.Limit) *hybrid.Limiter {
	t.Helper()
	return newLimiter(t, hybrid.Config{Limits: limits})
}

// realTime is a CallTimeout for tests outside a bubble: a slow machine must turn no wait for a lease into a
// denial.
const realTime = 30 * time.Second

// served counts the requests that it has served.
type served struct{ requests int }

func (s *served) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s.requests++
	_, _ = w.Write([]byte("served"))
}

// ask returns the answer of h to a request, after each change.
func ask(h http.Handler, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// from sets the address of a request, and the lines of X-Forwarded-For, if any.
func from(address string, forwardedFor ...string) func(*http.Request) {
	return func(r *http.Request) {
		r.RemoteAddr = net.JoinHostPort(address, "4711")
		if len(forwardedFor) > 0 {
			r.Header["X-Forwarded-For"] = forwardedFor
		}
	}
}

func user(name string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("X-User", name) }
}

// zero is an invalid prefix.
var zero netip.Prefix

func prefixes(all ...string) (ps []netip.Prefix) {
	for _, p := range all {
		ps = append(ps, netip.MustParsePrefix(p))
	}
	return ps
}

package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/httplimit"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// sink is a ResponseWriter without a cost of its own.
type sink struct{ header http.Header }

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }
func (s *sink) WriteHeader(int)             {}

// cases bound the allocations of a request, by its kind of key.
var cases = []struct {
	name   string
	limit  hybrid.Limit
	key    httplimit.KeyFunc
	change func(*http.Request)
	most   float64 // allocations
}{
	{"Header", enough, httplimit.Header("X-User"), user("ann"), 1},
	{"IPv4", enough, httplimit.ClientIP(), from("192.0.2.7"), 1},
	{"IPv4Proxy", enough, httplimit.ClientIP(prefixes("10.0.0.0/8")...),
		from("10.1.2.3", "203.0.113.9, 192.0.2.7"), 1},
	{"IPv6Proxy", enough, httplimit.ClientIP(prefixes("10.0.0.0/8")...), from("10.1.2.3", "2001:db8::7"), 2},
	{"Unlimited", hybrid.Unlimited, httplimit.Header("X-User"), user("ann"), 0},
	{"Denied", hybrid.PerHour(1), httplimit.Header("X-User"), user("ann"), 2},
	{"DeniedIPv6", hybrid.PerHour(1), httplimit.ClientIP(), from("2001:db8::7"), 2},
}

// enough for a benchmark.
var enough = hybrid.Limit{Tokens: 1e9, Per: 1e9, Burst: 1e9}

// TestARequestCostsTwoAllocationsAtMost counts the allocations beyond those of a handler without a limit.
func TestARequestCostsTwoAllocationsAtMost(t *testing.T) {
	if testkit.PlainOrRace(false, true) {
		t.Skip("the race detector allocates")
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			h, w, r := costOf(t, c.limit, c.key, c.change)
			got := testing.AllocsPerRun(1000, func() {
				clear(w.header)
				h.ServeHTTP(w, r)
			})
			check(t, got <= c.most, "%v allocations, want at most %v", got, c.most)
			check(t, c.name == "Unlimited" || w.header["Ratelimit"] != nil && w.header["Ratelimit-Policy"] != nil,
				"no fields: %v", w.header)
		})
	}
}

func costOf(
	t testing.TB, l hybrid.Limit, key httplimit.KeyFunc, change func(*http.Request),
) (http.Handler, *sink, *http.Request) {
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	h := httplimit.Middleware(newLimiter(t, hybrid.Config{Limits: []hybrid.Limit{l}, CallTimeout: realTime}),
		key)(next)
	w, r := &sink{http.Header{}}, httptest.NewRequest(http.MethodGet, "/", nil)
	change(r)
	for range 2 { // the map has its room
		h.ServeHTTP(w, r)
	}
	return h, w, r
}

// BenchmarkBare times a handler without a limit.
func BenchmarkBare(b *testing.B) {
	h := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	w, r := &sink{http.Header{}}, httptest.NewRequest(http.MethodGet, "/", nil)
	b.ReportAllocs()
	for b.Loop() {
		clear(w.header)
		h.ServeHTTP(w, r)
	}
}

func BenchmarkHandler(b *testing.B) {
	for _, c := range cases {
		b.Run(c.name, func(b *testing.B) {
			h, w, r := costOf(b, c.limit, c.key, c.change)
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				h.ServeHTTP(w, r)
			}
		})
	}
}

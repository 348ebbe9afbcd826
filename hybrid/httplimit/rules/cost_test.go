package rules

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/httplimit"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

// sink is a ResponseWriter that costs nothing.
type sink struct{ header http.Header }

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }
func (s *sink) WriteHeader(int)             {}

const costTable = `
rules: {user: {key: "header:X-User", limits: [unlimited]}}
routes: {GET /orders: {rules: [user]}, "GET /{x}/free": {rules: []}}`

// costOf is a handler with declared rules, and one with the same limit by httplimit alone.
func costOf(t testing.TB) (with, without http.Handler) {
	t.Helper()
	r, err := New(tableOf(t, costTable), Config{Store: memory.New(nil)})
	noErr(t, err)
	l, err := hybrid.New(memory.New(nil), hybrid.Config{Limits: []hybrid.Limit{hybrid.Unlimited}})
	noErr(t, err)
	t.Cleanup(func() { r.Close(); l.Close() })
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	return r.Handler(next), httplimit.Middleware(l, httplimit.Header("X-User"))(next)
}

func request() *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/orders", nil)
	r.Header.Set("X-User", "ann")
	return r
}

// TestRulesCostNoAllocation: finding the rules of a request, beside what httplimit costs with them.
func TestRulesCostNoAllocation(t *testing.T) {
	if testkit.RaceEnabled {
		t.Skip("the race detector allocates")
	}
	with, without := costOf(t)
	allocations := func(h http.Handler) float64 {
		w, r := &sink{http.Header{}}, request()
		return testing.AllocsPerRun(1000, func() { clear(w.header); h.ServeHTTP(w, r) })
	}
	a, b := allocations(with), allocations(without)
	check(t, a <= b, "%v allocations with declared rules, %v without", a, b)
}

func BenchmarkRules(b *testing.B) {
	with, without := costOf(b)
	for name, h := range map[string]http.Handler{"declared": with, "httplimit": without} {
		b.Run(name, func(b *testing.B) {
			w, r := &sink{http.Header{}}, request()
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				h.ServeHTTP(w, r)
			}
		})
	}
}

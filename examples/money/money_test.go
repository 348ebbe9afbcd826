package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/examples/internal/testnet"
	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/hybridtest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	log.SetOutput(io.Discard)
	os.Exit(m.Run())
}

// service is the paid service, without a network: it finds this number of pages in every document. With 0 it
// refuses the document, with -1 it does not answer.
type service int

func (s *service) RoundTrip(*http.Request) (*http.Response, error) {
	if *s < 0 {
		return nil, io.ErrUnexpectedEOF
	}
	w := httptest.NewRecorder()
	if *s == 0 {
		w.Code = http.StatusInternalServerError
	}
	w.Header().Set("Pages", strconv.Itoa(int(*s)))
	return w.Result(), nil
}

// fleet is gateways with one store and one service.
type fleet struct {
	*testing.T
	buckets lease.Store
	service service
	warned  []string
}

// bubble runs body with a fleet in virtual time, which begins at midnight in UTC.
func bubble(t *testing.T, body func(f *fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { body(&fleet{T: t, buckets: memory.New(nil)}) })
}

// gateway starts one more gateway.
func (f *fleet) gateway() *gateway {
	f.Helper()
	warn := func(tenant string, _ hybrid.Limit, used float64) {
		f.warned = append(f.warned, fmt.Sprintf("%s %.2f", tenant, used))
	}
	g, err := newGateway(&struct{ lease.Store }{f.buckets}, "http://service", warn)
	testkit.NoErr(f, err)
	g.client.Transport = &f.service
	f.Cleanup(func() {
		testkit.NoErr(f, g.budget.Shutdown(context.Background()))
		testkit.Check(f, g.budget.Stats().Conserved(), "the books do not balance: %+v", g.budget.Stats())
	})
	return g
}

// ask sends a request of acme through g, with a document of an estimated number of pages.
func ask(g *gateway, path string, estimate int) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", path, strings.NewReader(strings.Repeat("x", 2000*(estimate-1))))
	r.Header.Set("Authorization", "Bearer secret-of-acme")
	w := httptest.NewRecorder()
	g.ServeHTTP(w, r)
	return w
}

// must has g read a document and requires this status.
func (f *fleet) must(g *gateway, status, estimate int) *httptest.ResponseRecorder {
	f.Helper()
	w := ask(g, "/read", estimate)
	testkit.Must(f, w.Code == status, "%d, want %d: %s", w.Code, status, w.Body)
	return w
}

// left requires that so much of the day's budget is left.
func (f *fleet) left(g *gateway, want string) {
	f.Helper()
	time.Sleep(time.Second) // until every report has come to the bucket
	text := ask(g, "/budget", 1).Body.String()
	testkit.Check(f, text == want+" of 50.000000 are left today\n", "%q, want %s", text, want)
}

// TestACallCostsWhatTheServiceBills: with any estimate, and nothing if the service refuses it.
func TestACallCostsWhatTheServiceBills(t *testing.T) {
	for _, row := range []struct {
		pages  service
		status int
		left   string
	}{
		{3, 200, "49.962500"}, {10, 200, "49.875000"}, {1000, 200, "37.500000"},
		{0, 502, "50.000000"},
		{-1, 504, "49.875000"}, // The service may bill it: the estimate is spent.
	} {
		bubble(t, func(f *fleet) {
			f.service = row.pages
			g := f.gateway()
			f.must(g, row.status, 10)
			f.left(g, row.left)
		})
	}
}

// TestABudgetIsUsedUpAndComesBackAtMidnight: two gateways share it, and one of them warns once.
func TestABudgetIsUsedUpAndComesBackAtMidnight(t *testing.T) {
	bubble(t, func(f *fleet) {
		f.service = 100 // 1.25
		first, second := f.gateway(), f.gateway()
		for i := range 32 { // 40.00
			f.must([]*gateway{first, second}[i%2], 200, 110)
			time.Sleep(time.Second)
		}
		once := len(f.warned) == 1 && strings.HasPrefix(f.warned[0], "acme 0.8")
		testkit.Check(f, once, "warned: %v", f.warned)
		f.left(second, "10.000000")
		denied := f.must(first, 429, 801) // 10.0125
		f.must(first, 413, 4001)          // No day has a budget for it.
		f.must(second, 200, 800)          // A denied call has cost nothing.
		after, err := strconv.Atoi(denied.Header().Get("Retry-After"))
		testkit.NoErr(f, err)
		time.Sleep(time.Duration(after) * time.Second)
		f.must(first, 200, 801)
	})
}

// TestACostAboveTheDaysBudgetEndsWithTheDay: it denies the tenant until midnight. Settle charges at most ten
// budgets beyond the estimate.
func TestACostAboveTheDaysBudgetEndsWithTheDay(t *testing.T) {
	for found, charged := range map[service]micros{5000: 62_375_000, 100_000: 500_000_000} { // 62.50, 1250.00
		bubble(t, func(f *fleet) {
			g := f.gateway()
			f.service = found
			f.must(g, 200, 10)
			f.left(g, "0.000000")
			beyond := micros(g.budget.Stats().Charged)
			testkit.Check(f, beyond == charged, "%v beyond the estimate, want %v", beyond, charged)
			f.must(g, 429, 1)
			time.Sleep(24 * time.Hour)
			f.left(g, "50.000000")
		})
	}
}

// TestACallOverMidnightCountsOnBothDays: its estimate on the first day, and what it used beyond that on the
// second. What it did not use of the estimate is worth nothing any more.
func TestACallOverMidnightCountsOnBothDays(t *testing.T) {
	for actual, left := range map[pages]string{1200: "46.250000", 900: "48.750000"} {
		bubble(t, func(f *fleet) {
			g := f.gateway()
			reserved, err := g.budget.Key("acme").Reserve(f.Context(), int64(pages(1000).cost()))
			testkit.NoErr(f, err)
			f.left(g, "37.500000")
			time.Sleep(24 * time.Hour)
			f.service = 100 // 1.25
			f.must(g, 200, 100)
			f.left(g, "48.750000")
			testkit.NoErr(f, reserved.Settle(int64(actual.cost())))
			f.left(g, left)
		})
	}
}

// TestNothingIsSpentWithoutTheStore: the answer says that it is no matter of money.
func TestNothingIsSpentWithoutTheStore(t *testing.T) {
	bubble(t, func(f *fleet) {
		b := &hybridtest.FaultyStore{Store: f.buckets}
		f.buckets, f.service = b, 10
		g := f.gateway()
		f.must(g, 200, 10)
		b.Away()
		time.Sleep(time.Second)
		for range 5 {
			f.must(g, 503, 10)
			time.Sleep(time.Second)
		}
		b.Back()
		time.Sleep(10 * time.Second)
		f.left(g, "49.875000")
	})
}

// TestGatewaysShareABudgetInRedis: a second gateway has what the first one has left.
func TestGatewaysShareABudgetInRedis(t *testing.T) {
	testnet.OnRedis(t, func(open func() lease.Store) error {
		for i, status := range []int{200, 200, 429} {
			f := &fleet{T: t, buckets: open(), service: 1900}
			g := f.gateway()
			w := ask(g, "/read", 1900)
			if err := g.budget.Shutdown(t.Context()); err != nil {
				return err
			}
			if w.Code != status {
				return fmt.Errorf("gateway %d answers %d, want %d: %s", i+1, w.Code, status, w.Body)
			}
		}
		return nil
	})
}

// Command money is a gateway to a paid service that reads documents. A tenant may spend 50.00 on the service
// in each UTC day, through all gateways together. The cost of a call is known only afterwards, so the gateway
// reserves an estimate and settles the actual cost. Run money in the folder examples, with a Redis; the
// service is a fake in the same program:
//
//	go run ./money
//	curl -i localhost:8080/read -H 'Authorization: Bearer secret-of-acme' --data-binary @README.md
//	curl localhost:8080/budget -H 'Authorization: Bearer secret-of-acme'
//
// A token of the limit is a micro, a millionth of the currency. A limit counts up to 2^52 tokens exactly,
// which is 4.5 billion of the currency, so prices need no rounding and no float.
//
//   - If a process dies between Reserve and Settle, the estimate counts as the cost. The estimate should
//     therefore be high.
//   - Settle charges a cost above the estimate in full. If the charge uses up the day's budget, the tenant is
//     denied until midnight. If the cost exceeds the estimate by more than Policy.MaxOvershoot budgets (10),
//     Settle charges only these budgets and returns ErrOvershoot. The next day begins with its full budget.
//   - For a call over midnight, the estimate counts on the first day, and the cost above the estimate on the
//     second.
//   - With FallbackDeny, a process without Redis spends only the tokens that it has leased. The default, the
//     local share, could spend money that other processes have spent already.
//   - Without StartEmpty, a tenant can spend a day's budget twice if Redis loses the bucket. With StartEmpty,
//     a lost bucket and the bucket of a new tenant would have no tokens before midnight. A Redis that keeps
//     its data is better than both settings: docs/operations.md, "Daily quotas".
//   - The limit is not an account: bill by the records of the service.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"net/http"
	"net/http/httptest"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

type (
	micros int64 // a millionth of the currency
	pages  int32
)

const (
	perPage   micros = 12_500 // price of the service per page: 0.0125
	dayBudget micros = 50_000_000
)

func (p pages) cost() micros { return micros(p) * perPage }

func (m micros) String() string { return fmt.Sprintf("%d.%06d", m/1_000_000, m%1_000_000) }

// tenants has the known tenants by bearer token.
var tenants = map[string]string{"secret-of-acme": "acme", "secret-of-initech": "initech"}

type gateway struct {
	service string // URL of the service
	client  http.Client
	budget  *hybrid.Limiter
}

func newGateway(
	buckets lease.Store, service string, warn func(tenant string, budget hybrid.Limit, used float64),
) (*gateway, error) {
	budget, err := hybrid.New(buckets, hybrid.Config{
		Name:   "budget",
		Limits: []hybrid.Limit{hybrid.Calendar(int64(dayBudget), 24*time.Hour, 0)},
		Policy: hybrid.Policy{Fallback: hybrid.FallbackDeny},
		Events: hybrid.Events{NearlyUsed: warn},
	})
	return &gateway{service, http.Client{Timeout: time.Minute}, budget}, err
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	tenant := tenants[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	if tenant == "" {
		http.Error(w, "unknown token", http.StatusUnauthorized)
		return
	}
	if r.URL.Path == "/budget" {
		left, err := g.budget.Peek(r.Context(), tenant)
		if err != nil {
			http.Error(w, "the budget is unavailable", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintf(w, "%v of %v are left today\n", micros(left.Remaining), dayBudget)
		return
	}
	document, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 10<<20))
	if err != nil {
		http.Error(w, "the document is too large", http.StatusRequestEntityTooLarge)
		return
	}
	estimate := pages(1 + len(document)/2000).cost() // a page has 2,000 letters or more
	reserved, err := g.budget.Key(tenant).Reserve(r.Context(), int64(estimate))
	switch result := reserved.Result(); {
	case errors.Is(err, hybrid.ErrExceedsBurst):
		http.Error(w, "the document costs more than a day's budget", http.StatusRequestEntityTooLarge)
	case err != nil || !result.OK && result.Source == hybrid.SourceFallback:
		http.Error(w, "the budget is unavailable", http.StatusServiceUnavailable)
	case !result.OK:
		midnight := int(math.Ceil(result.RetryAfter.Seconds()))
		w.Header().Set("Retry-After", strconv.Itoa(midnight))
		http.Error(w, fmt.Sprintf("%v of today's budget are left, but the document may cost %v",
			micros(result.Remaining), estimate), http.StatusTooManyRequests)
	default:
		g.pass(w, string(document), reserved)
	}
}

// pass sends the document to the service, and settles the cost. A client that disconnects does not end the
// call, because the service bills every call that it has begun.
func (g *gateway) pass(w http.ResponseWriter, document string, reserved *hybrid.Reservation) {
	answer, err := g.client.Post(g.service, "text/plain", strings.NewReader(document))
	if err != nil { // The service may bill the call, so pass does not cancel the reservation.
		http.Error(w, "the service does not answer", http.StatusGatewayTimeout)
		return
	}
	defer answer.Body.Close()
	n, err := strconv.ParseInt(answer.Header.Get("Pages"), 10, 32)
	if answer.StatusCode != http.StatusOK || err != nil || n < 0 {
		reserved.Cancel() // The service does not bill a refused call.
		http.Error(w, "the service answers "+answer.Status, http.StatusBadGateway)
		return
	}
	cost := pages(n).cost()
	if err := reserved.Settle(int64(cost)); err != nil {
		log.Printf("cost %v not charged in full: %v", cost, err)
	}
	w.Header().Set("Cost", cost.String())
	_, _ = io.Copy(w, answer.Body)
}

func main() {
	url := flag.String("redis", "redis://localhost:6379?dial_timeout=500ms&read_timeout=500ms", "URL of Redis")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	client := redis.NewClient(must(redis.ParseURL(*url)))
	buckets := must(redisbucket.New(client, redisbucket.Config{Prefix: "money-example:"}))
	log.Print("ping: ", buckets.Ping(ctx)) // Without a ping, the first requests may be denied.
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		document, _ := io.ReadAll(r.Body)
		w.Header().Set("Pages", strconv.Itoa(1+len(document)/3000))
		fmt.Fprintln(w, len(strings.Fields(string(document))), "words")
	}))
	defer service.Close()
	g := must(newGateway(buckets, service.URL, func(tenant string, _ hybrid.Limit, used float64) {
		log.Printf("%s has used %.0f %% of %v", tenant, 100*used, dayBudget)
	}))
	server := &http.Server{Addr: "localhost:8080", Handler: g, ReadHeaderTimeout: 5 * time.Second}
	go func() { log.Print(server.ListenAndServe()); stop() }()
	<-ctx.Done()
	ending, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	log.Print("shutdown: ", server.Shutdown(ending), ", tokens given back: ", g.budget.Shutdown(ending))
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

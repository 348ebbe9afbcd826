package httplimit_test

import (
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/httplimit"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

// perHour is a limiter without a Redis, as a test has it.
func perHour(n int64) *hybrid.Limiter {
	l, err := hybrid.New(memory.New(nil), hybrid.Config{
		Limits: []hybrid.Limit{hybrid.PerHour(n)}, CallTimeout: time.Minute,
	})
	if err != nil {
		log.Fatal(err)
	}
	return l
}

// get prints the status of the answer to a GET, and its fields.
func get(h http.Handler, fields ...string) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-Forwarded-For", "198.51.100.1, 192.0.2.7") // the client wrote the first
	r.RemoteAddr = "10.0.0.1:4711"
	h.ServeHTTP(w, r)
	fmt.Print(w.Code)
	for _, f := range fields {
		fmt.Printf(" %s: %s", f, w.Header().Get(f))
	}
	fmt.Println()
}

var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })

// Each address may have two requests an hour. The server is behind a proxy of 10.0.0.0/8.
func ExampleMiddleware() {
	limiter := perHour(2)
	defer limiter.Close()
	limited := httplimit.Middleware(limiter, httplimit.ClientIP(netip.MustParsePrefix("10.0.0.0/8")))(hello)
	for range 3 {
		get(limited, "RateLimit-Policy")
	}
	// Output:
	// 200 RateLimit-Policy: "default";q=2;w=3600
	// 200 RateLimit-Policy: "default";q=2;w=3600
	// 429 RateLimit-Policy: "default";q=2;w=3600
}

// Everybody together may have a thousand an hour, and each address two: a request takes from both
// or from none. Health checks are not limited.
func ExampleAlso() {
	everybody, addresses := perHour(1000), perHour(2)
	defer everybody.Close()
	defer addresses.Close()
	limited := httplimit.Middleware(everybody, httplimit.OneKey,
		httplimit.Also(addresses, httplimit.ClientIP(netip.MustParsePrefix("10.0.0.0/8"))),
		httplimit.Skip(func(r *http.Request) bool { return r.URL.Path == "/healthz" }),
	)(hello)
	for range 3 {
		get(limited)
	}
	// Output:
	// 200
	// 200
	// 429
}

// A KeyFunc of one's own, for a service that knows its users.
func ExampleKeyFunc() {
	type userOf struct{}
	user := func(r *http.Request) (string, error) {
		name, ok := r.Context().Value(userOf{}).(string)
		if !ok {
			return "", fmt.Errorf("%w: who is it?", httplimit.ErrNoKey)
		}
		return name, nil
	}
	limiter := perHour(2)
	defer limiter.Close()
	get(httplimit.Middleware(limiter, httplimit.Combine(user, httplimit.Pattern))(hello))
	// Output:
	// 400
}

// Customers are limited by their API key, and other clients by address. An unknown key is refused:
// otherwise a client could make up one for each request.
func ExampleFirstOf() {
	customers := map[string]string{"secret-1": "ann"}
	unknown := errors.New("unknown API key")
	customer := func(r *http.Request) (string, error) {
		secret := r.Header.Get("X-API-Key")
		switch name := customers[secret]; {
		case secret == "":
			return "", httplimit.ErrNoKey
		case name == "":
			return "", unknown
		default:
			return name, nil
		}
	}
	limiter := perHour(1)
	defer limiter.Close()
	refuse := httplimit.OnError(func(w http.ResponseWriter, r *http.Request, err error) bool {
		if !errors.Is(err, unknown) {
			return httplimit.WriteError(w, r, err)
		}
		w.WriteHeader(http.StatusUnauthorized)
		return false
	})
	limited := httplimit.Middleware(limiter, httplimit.FirstOf(customer, httplimit.ClientIP()), refuse)(hello)
	for _, key := range []string{"secret-1", "secret-1", "", "", "made up"} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-API-Key", key)
		w := httptest.NewRecorder()
		limited.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	// Output:
	// 200
	// 429
	// 200
	// 429
	// 401
}

// The rules may depend on the request.
func ExampleSelect() {
	reads, writes := perHour(1000), perHour(1)
	defer reads.Close()
	defer writes.Close()
	rules := map[bool][]httplimit.Rule{
		true:  {{Name: "reads", Limiter: reads, Key: httplimit.OneKey}},
		false: {{Name: "writes", Limiter: writes, Key: httplimit.OneKey}},
	}
	limited := httplimit.Select(func(r *http.Request) (httplimit.Selection, error) {
		return httplimit.Selection{Rules: rules[r.Method == http.MethodGet], Cost: 1}, nil
	})(hello)
	get(limited, "RateLimit-Policy")
	// Output:
	// 200 RateLimit-Policy: "reads";q=1000;w=3600
}

// A browser is shown a page.
func ExampleOnLimit() {
	limiter := perHour(1)
	defer limiter.Close()
	limited := httplimit.Middleware(limiter, httplimit.OneKey, httplimit.OnLimit(
		func(w http.ResponseWriter, _ *http.Request, d httplimit.Denial) {
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Printf("Please come back in %v. ", d.RetryAfter.Round(time.Minute))
		}))(hello)
	get(limited)
	get(limited)
	// Output:
	// 200
	// Please come back in 1h0m0s. 429
}

// While the limiter is out of order, everybody is served.
func ExampleOnError() {
	limiter := perHour(1)
	limiter.Close()
	limited := httplimit.Middleware(limiter, httplimit.OneKey, httplimit.OnError(
		func(w http.ResponseWriter, r *http.Request, err error) (admit bool) {
			return errors.Is(err, hybrid.ErrClosed) || httplimit.WriteError(w, r, err)
		}))(hello)
	get(limited)
	// Output:
	// 200
}

// The requests of a client wait until they may be sent: here 1 after each 10 ms.
func ExampleRoundTripper() {
	server := httptest.NewServer(hello)
	defer server.Close()
	limiter, err := hybrid.New(memory.New(nil), hybrid.Config{
		Limits: []hybrid.Limit{hybrid.Every(10 * time.Millisecond)}, CallTimeout: time.Minute,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	host := func(r *http.Request) (string, error) { return r.URL.Host, nil }
	client := &http.Client{Transport: httplimit.RoundTripper(limiter, host, nil)}
	from := time.Now()
	for range 11 {
		answer, err := client.Get(server.URL)
		if err != nil {
			log.Fatal(err)
		}
		_ = answer.Body.Close()
	}
	fmt.Println("at least 100 ms:", time.Since(from) >= 100*time.Millisecond)
	// Output:
	// at least 100 ms: true
}

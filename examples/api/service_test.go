package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/examples/internal/store"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// small are limits that no test's duration refills.
const small = `
trusted: [127.0.0.1]
rules:
  address: {key: address, limits: [20/h]}
  user:    {key: "header:X-User", limits: [10/h]}
routes:
  "GET /items/{id}": {rules: [address, user]}
  "POST /items":     {rules: [address, user], cost: 3}
  "POST /reports":   {rules: [user]}
`

func write(t *testing.T, text string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "rules.yaml")
	testkit.NoErr(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// newAPI is a service that ends with the test.
func newAPI(t *testing.T, store lease.Store, rules string) *service {
	t.Helper()
	s, err := newService(store, options{rules: rules})
	testkit.NoErr(t, err)
	t.Cleanup(func() { testkit.NoErr(t, s.shutdown(context.Background())) })
	return s
}

// ask sends a request through the proxy that the rules trust, which says that it has seen address.
func ask(h http.Handler, method, path, user, address string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	r.RemoteAddr = "127.0.0.1:1234"
	r.Header.Set("X-User", user)
	r.Header.Set("X-Forwarded-For", address)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestAUserHasALimit(t *testing.T) {
	api := newAPI(t, lease.NewMemoryStore(nil), write(t, small)).api()
	for range 10 {
		w := ask(api, "GET", "/items/17", "ann", "198.51.100.1")
		testkit.Must(t, w.Code == 200 && strings.Contains(w.Body.String(), `"17"`), "%d %s", w.Code, w.Body)
	}

	w := ask(api, "GET", "/items/17", "ann", "198.51.100.1")
	var problem struct{ Type string }
	testkit.NoErr(t, json.Unmarshal(w.Body.Bytes(), &problem))
	testkit.Check(t, w.Code == 429 && strings.HasSuffix(problem.Type, "quota-exceeded") &&
		w.Header().Get("Content-Type") == "application/problem+json", "%d %s", w.Code, w.Body)
	testkit.Check(t, w.Header().Get("Retry-After") == "360", "ten an hour come back after %s s", w.Header().Get("Retry-After"))

	w = ask(api, "GET", "/items/17", "bob", "198.51.100.1")
	testkit.Check(t, w.Code == 200, "another user: %d", w.Code)
}

func TestAnAddressHasALimit(t *testing.T) {
	api := newAPI(t, lease.NewMemoryStore(nil), write(t, small)).api()
	admitted := 0
	for i := range 30 { // as many users, all of one address, which makes up where they come from
		if ask(api, "GET", "/items/17", fmt.Sprint("user-", i), fmt.Sprintf("10.0.0.%d, 198.51.100.1", i)).Code == 200 {
			admitted++
		}
	}
	testkit.Check(t, admitted == 20, "%d of an address's 20", admitted)
	w := ask(api, "GET", "/items/17", "ann", "198.51.100.2")
	testkit.Check(t, w.Code == 200, "another address: %d", w.Code)
}

func TestACostAndAMissingUser(t *testing.T) {
	api := newAPI(t, lease.NewMemoryStore(nil), write(t, small)).api()
	codes := []int{}
	for range 4 {
		codes = append(codes, ask(api, "POST", "/items", "ann", "198.51.100.1").Code)
	}
	testkit.Check(t, slices.Equal(codes, []int{201, 201, 201, 429}), "a cost of 3 of 10: %v", codes)
	w := ask(api, "POST", "/items", "", "198.51.100.1")
	testkit.Check(t, w.Code == 400, "nobody: %d", w.Code)
}

// TestReplicasShareALimit: with Redis, however many there are, and what one that ends had left over
// is there for the others.
func TestReplicasShareALimit(t *testing.T) {
	server := redistest.Start(t)
	rules := write(t, small)
	replica := func() *service {
		shared, done, err := store.Open("redis://"+server.Addr, "test:")
		testkit.NoErr(t, err)
		t.Cleanup(func() { done() })
		s, err := newService(shared, options{rules: rules})
		testkit.NoErr(t, err)
		return s
	}
	first, second := replica(), replica()
	for _, s := range []*service{first, second} {
		s.warmUp(t.Context())
		testkit.Must(t, ask(s.admin(), "GET", "/readyz", "", "").Code == 200, "it is not ready")
	}
	defer second.shutdown(context.Background())

	w := ask(first.api(), "GET", "/items/17", "ann", "198.51.100.1")
	testkit.Must(t, w.Code == 200, "%d %s", w.Code, w.Body)
	testkit.NoErr(t, first.shutdown(context.Background()))
	w = ask(first.api(), "GET", "/items/17", "ann", "198.51.100.1")
	testkit.Check(t, w.Code == 503, "a replica that has ended says %d", w.Code)
	admitted, api := 0, second.api()
	for range 20 {
		if ask(api, "GET", "/items/17", "ann", "198.51.100.1").Code == 200 {
			admitted++
		}
	}
	testkit.Check(t, admitted == 9, "%d of the 9 that the first replica had not used", admitted)
}

func TestReportsWaitInLine(t *testing.T) {
	api := newAPI(t, lease.NewMemoryStore(nil), write(t, strings.ReplaceAll(small, "/h", "/s"))).api()
	done := make(chan *httptest.ResponseRecorder)
	for i := range 30 {
		go func() { done <- ask(api, "POST", "/reports", fmt.Sprint("user-", i), "198.51.100.1") }()
	}
	codes := map[int]int{}
	for range 30 {
		w := <-done
		codes[w.Code]++
		refused := w.Code == 503 && w.Header().Get("Retry-After") != ""
		testkit.Check(t, w.Code == 201 || refused, "%d %v", w.Code, w.Header())
	}
	// Five at once, and five a second of two seconds. Who cannot have a turn in time need not wait.
	testkit.Check(t, codes[201] >= 5 && codes[201] <= 15 && codes[503] >= 15, "%v", codes)
}

func TestRulesChangeWhileItServes(t *testing.T) {
	file := write(t, small)
	s := newAPI(t, lease.NewMemoryStore(nil), file)
	api := s.api()
	testkit.NoErr(t, os.WriteFile(file, []byte("version: 1\n"+strings.Replace(small, "10/h", "19/h", 1)), 0o600))
	testkit.Eventually(t, "the file is read again", func() bool { return s.rules.Status().Reloaded == 1 })
	w := ask(api, "GET", "/items/17", "bob", "198.51.100.2")
	testkit.Check(t, w.Code == 200 && strings.Contains(w.Header().Get("RateLimit-Policy"), "q=19"),
		"the new limit is not in force: %d %v", w.Code, w.Header())
	scrape := func() string { return ask(s.admin(), "GET", "/metrics", "", "").Body.String() }
	testkit.Check(t, strings.Contains(scrape(), "\napi_rules_refused 0"), "the file is refused")
	testkit.NoErr(t, os.WriteFile(file, []byte("rules: nonsense"), 0o600))
	testkit.Check(t, s.rules.Reload() != nil && strings.Contains(scrape(), "\napi_rules_refused 1"),
		"a wrong file does not show in the metrics")
	w = ask(api, "GET", "/items/17", "cid", "198.51.100.3")
	testkit.Check(t, strings.Contains(w.Header().Get("RateLimit-Policy"), "q=19"), "the rules of before are gone: %v", w.Header())
}

// TestWhatIsShownIsMeasured: the dashboard and the alerts ask for no metric, and no label of one,
// that the API does not export.
func TestWhatIsShownIsMeasured(t *testing.T) {
	s := newAPI(t, lease.NewMemoryStore(nil), "config/rules.yaml")
	api := s.api()
	for range 200 {
		ask(api, "GET", "/items/17", "ann", "198.51.100.1")
	}
	testkit.Must(t, ask(api, "POST", "/reports", "bob", "198.51.100.2").Code == 201, "no report")
	metrics := ask(s.admin(), "GET", "/metrics", "", "").Body.String()

	for _, limiter := range []string{"everybody", "address", "user", "stricter", "reports"} {
		held := fmt.Sprintf("yuzhi_tokens_held{yuzhi_limiter=%q}", limiter)
		testkit.Check(t, strings.Contains(metrics, held), "there is no %s", held)
	}
	word := regexp.MustCompile(`\b(?:yuzhi|api)_\w+`)
	exported := map[string]bool{}
	for _, name := range word.FindAllString(metrics, -1) {
		exported[name] = true
	}
	asked := 0
	for _, file := range []string{"grafana/dashboards/yuzhi.json", "prometheus/alerts.yml"} {
		for _, name := range word.FindAllString(read(t, file), -1) {
			asked++
			testkit.Check(t, exported[name], "%s asks for %s, which is not among the metrics", file, name)
		}
	}
	testkit.Check(t, asked > 100, "only %d names were found", asked)
}

// free is an address that nobody listens on.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.NoErr(t, err)
	defer l.Close()
	return l.Addr().String()
}

// TestItStopsInOrder: it is unready first, requests under way are answered, and the limiters are
// shut down; TestReplicasShareALimit shows what that is good for.
func TestItStopsInOrder(t *testing.T) {
	server := redistest.Start(t)
	users, operators := free(t), free(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- serve(ctx, []string{"-listen", users, "-admin", operators, "-redis", "redis://" + server.Addr,
			"-rules", write(t, small)})
	}()
	get := func(url string) (status int, body string) {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		r.Header.Set("X-User", "ann")
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, err.Error()
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(text)
	}
	testkit.Eventually(t, "it is ready", func() bool {
		status, _ := get("http://" + operators + "/readyz")
		return status == 200
	})
	status, body := get("http://" + operators + "/metrics")
	testkit.Check(t, status == 200 && strings.Contains(body, `yuzhi_limiter="user"`), "%d %s", status, body)

	// Five of ten reports are made at once; the others wait while the service is told to stop.
	answers := make(chan int)
	for range 10 {
		go func() {
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+users+"/reports", nil)
			r.Header.Set("X-User", "ann")
			response, err := http.DefaultClient.Do(r)
			if err != nil {
				answers <- 0
				return
			}
			response.Body.Close()
			answers <- response.StatusCode
		}()
	}
	for range 5 {
		status := <-answers
		testkit.Check(t, status == 201, "a report was not made: %d", status)
	}
	testkit.Eventually(t, "the service has all ten: what it has not accepted is not under way", func() bool {
		_, body := get("http://" + operators + "/metrics")
		return strings.Contains(body, `yuzhi_tokens_requested_total{yuzhi_limiter="user",yuzhi_result="admitted",yuzhi_source="lease"} 10`)
	})
	stop()
	testkit.Eventually(t, "it is not ready any more, and says so", func() bool {
		status, _ := get("http://" + operators + "/readyz")
		return status == 503
	})
	for range 5 {
		status := <-answers
		testkit.Check(t, status == 201, "a report that was under way was not made: %d", status)
	}
	testkit.NoErr(t, <-ended)

	// Its limiters have ended, which is how they give back. Their goroutines are told to, and may take
	// a moment.
	testkit.Eventually(t, "no limiter is at work", func() bool {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		return !strings.Contains(string(stacks), "hybrid.(*scheduler).run")
	})
}

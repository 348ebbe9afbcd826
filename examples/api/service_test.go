package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/yuzhi-go/yuzhi/examples/internal/testnet"
	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

// small has limits that do not refill during a test.
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

// bubble runs body in virtual time, with a service that ends with it.
func bubble(t *testing.T, rules string, body func(t *testing.T, s *service)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, err := newService(memory.New(nil), rules, 0)
		testkit.NoErr(t, err)
		t.Cleanup(func() { testkit.NoErr(t, s.shutdown(context.Background())) })
		body(t, s)
	})
}

// onRedis returns a service in real time, on limits that all services on url share.
func onRedis(t *testing.T, url, rules string) *service {
	t.Helper()
	s, err := newService(testnet.Store(t, url, "test:"), rules, time.Minute)
	testkit.NoErr(t, err)
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

// TestUsersAndAddressesHaveLimits: a user's requests count together, as do those of an address, whatever
// it says of where it comes from.
func TestUsersAndAddressesHaveLimits(t *testing.T) {
	for name, row := range map[string]struct {
		method, path, user, address string // with a %d, each time another one
		want                        int    // of 30 requests
	}{
		"a user":         {"GET", "/items/17", "ann", "198.51.100.%d", 10},
		"an address":     {"GET", "/items/17", "user-%d", "10.0.0.%d, 198.51.100.1", 20},
		"a cost of 3":    {"POST", "/items", "ann", "198.51.100.1", 3},
		"a missing user": {"POST", "/items", "", "198.51.100.1", 0},
	} {
		bubble(t, write(t, small), func(t *testing.T, s *service) {
			api, admitted := s.api(), 0
			for i := range 30 {
				each := strings.NewReplacer("%d", fmt.Sprint(i))
				w := ask(api, row.method, row.path, each.Replace(row.user), each.Replace(row.address))
				if w.Code < 300 {
					admitted++
				}
			}
			testkit.Check(t, admitted == row.want, "%s: %d are admitted, want %d", name, admitted, row.want)
			w := ask(api, "GET", "/items/17", "bob", "198.51.100.99")
			testkit.Check(t, w.Code == 200 && strings.Contains(w.Body.String(), `"17"`), "another user: %d", w.Code)
		})
	}
}

// TestReplicasShareALimit: with Redis any number of replicas share a limit, and the unused tokens
// of an ended one are available to the others.
func TestReplicasShareALimit(t *testing.T) {
	redis, rules := testnet.Redis(t), write(t, small)
	first, second := onRedis(t, redis, rules), onRedis(t, redis, rules)
	for _, s := range []*service{first, second} {
		s.warmUp(t.Context())
		testkit.Must(t, ask(s.admin(), "GET", "/readyz", "", "").Code == 200, "it is not ready")
	}
	defer second.shutdown(context.Background())

	w := ask(first.api(), "GET", "/items/17", "ann", "198.51.100.1")
	testkit.Must(t, w.Code == 200, "%d %s", w.Code, w.Body)
	testkit.NoErr(t, first.shutdown(context.Background()))
	admitted, api := 0, second.api()
	for range 20 {
		if ask(api, "GET", "/items/17", "ann", "198.51.100.1").Code == 200 {
			admitted++
		}
	}
	testkit.Check(t, admitted == 9, "%d of the 9 that the first replica had not used", admitted)
}

func TestReportsWaitInLine(t *testing.T) {
	bubble(t, write(t, strings.ReplaceAll(small, "/h", "/s")), func(t *testing.T, s *service) {
		api, from, done := s.api(), time.Now(), make(chan *httptest.ResponseRecorder)
		for i := range 30 {
			go func() { done <- ask(api, "POST", "/reports", fmt.Sprint("user-", i), "198.51.100.1") }()
		}
		made, atOnce := 0, 0
		for range 30 {
			w, took := <-done, time.Since(from)
			answered := w.Code == 201 || w.Code == 503 && w.Header().Get("Retry-After") != ""
			testkit.Check(t, answered && took <= 2*time.Second, "%d %v after %v", w.Code, w.Header(), took)
			if w.Code == 201 {
				made++
			} else if took < 100*time.Millisecond {
				atOnce++
			}
		}
		// Five at once, and five a second of two seconds. Two whose turn would be about their end wait
		// for it, and have it or not. The others are refused at once.
		testkit.Check(t, made >= 14 && made <= 15 && atOnce >= 14,
			"%d are made, %d refused at once", made, atOnce)
	})
}

func TestRulesChangeWhileItServes(t *testing.T) {
	file := write(t, small)
	bubble(t, file, func(t *testing.T, s *service) {
		api := s.api()
		changed := "version: 1\n" + strings.Replace(small, "10/h", "19/h", 1)
		testkit.NoErr(t, os.WriteFile(file, []byte(changed), 0o600))
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
		testkit.Check(t, strings.Contains(w.Header().Get("RateLimit-Policy"), "q=19"),
			"the rules of before are gone: %v", w.Header())
	})
}

// TestTheShownFiguresAreMeasured: the API exports every metric and label that the dashboard and the
// alerts use.
func TestTheShownFiguresAreMeasured(t *testing.T) {
	bubble(t, "config/rules.yaml", func(t *testing.T, s *service) {
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
	})
}

// TestReportsInLineAreMadeWhenItStops: five of ten reports wait when the service is asked to stop.
// It is unready then, they have their turn, and it ends with its limiters and every goroutine.
func TestReportsInLineAreMadeWhenItStops(t *testing.T) {
	file := write(t, small)
	synctest.Test(t, func(t *testing.T) {
		s, err := newService(memory.New(nil), file, 0)
		testkit.NoErr(t, err)
		users, operators := bufconn.Listen(1<<16), bufconn.Listen(1<<16)
		fetch := func(to *bufconn.Listener, method, path string) int {
			dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return to.DialContext(ctx) }
			client := &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
			r, err := http.NewRequest(method, "http://api"+path, nil)
			testkit.NoErr(t, err)
			r.Header.Set("X-User", "ann")
			answer, err := client.Do(r)
			if err != nil {
				return 0
			}
			_ = answer.Body.Close()
			return answer.StatusCode
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		ended, answers, from := make(chan error, 1), make(chan int), time.Now()
		go func() { ended <- s.serve(ctx, users, operators, 10*time.Second) }()
		synctest.Wait()
		testkit.Check(t, fetch(operators, "GET", "/readyz") == 200, "it is not ready")
		for range 10 {
			go func() { answers <- fetch(users, "POST", "/reports") }()
		}
		for i := range 10 {
			status, took := <-answers, time.Since(from)
			turn := time.Duration(max(i-4, 0)) * time.Second / 5
			testkit.Check(t, status == 201 && took >= turn && took < turn+100*time.Millisecond,
				"report %d has %d after %v", i, status, took)
			if i == 4 {
				synctest.Wait() // until the others are in line
				stop()
				synctest.Wait()
				testkit.Check(t, fetch(operators, "GET", "/readyz") == 503, "it is ready")
			}
		}
		testkit.NoErr(t, <-ended)
		testkit.Check(t, time.Since(from) < 2*time.Second, "it ended after %v", time.Since(from))
		testkit.Check(t, errors.Is(s.reports.Ping(t.Context()), hybrid.ErrClosed), "a limiter goes on")
	})
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/examples/internal/store"
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
		s, err := newService(memory.New(nil), options{rules: rules})
		testkit.NoErr(t, err)
		t.Cleanup(func() { testkit.NoErr(t, s.shutdown(context.Background())) })
		body(t, s)
	})
}

// onRedis returns a service in real time, on limits that all services on url share.
func onRedis(t *testing.T, url, rules string) *service {
	t.Helper()
	shared, done, err := store.Open(url, "test:")
	testkit.NoErr(t, err)
	t.Cleanup(func() { done() })
	s, err := newService(shared, options{rules: rules, callTimeout: time.Minute})
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

func TestAUserHasALimit(t *testing.T) {
	bubble(t, write(t, small), func(t *testing.T, s *service) {
		api := s.api()
		for range 10 {
			w := ask(api, "GET", "/items/17", "ann", "198.51.100.1")
			found := w.Code == 200 && strings.Contains(w.Body.String(), `"17"`)
			testkit.Must(t, found, "%d %s", w.Code, w.Body)
		}

		w := ask(api, "GET", "/items/17", "ann", "198.51.100.1")
		var problem struct{ Type string }
		testkit.NoErr(t, json.Unmarshal(w.Body.Bytes(), &problem))
		testkit.Check(t, w.Code == 429 && strings.HasSuffix(problem.Type, "quota-exceeded") &&
			w.Header().Get("Content-Type") == "application/problem+json", "%d %s", w.Code, w.Body)
		after := w.Header().Get("Retry-After")
		testkit.Check(t, after == "360", "ten an hour come back after %s s", after)

		w = ask(api, "GET", "/items/17", "bob", "198.51.100.1")
		testkit.Check(t, w.Code == 200, "another user: %d", w.Code)
	})
}

func TestAnAddressHasALimit(t *testing.T) {
	bubble(t, write(t, small), func(t *testing.T, s *service) {
		api := s.api()
		admitted := 0
		for i := range 30 { // as many users, all of one address, which makes up where they come from
			user, from := fmt.Sprint("user-", i), fmt.Sprintf("10.0.0.%d, 198.51.100.1", i)
			if ask(api, "GET", "/items/17", user, from).Code == 200 {
				admitted++
			}
		}
		testkit.Check(t, admitted == 20, "%d of an address's 20", admitted)
		w := ask(api, "GET", "/items/17", "ann", "198.51.100.2")
		testkit.Check(t, w.Code == 200, "another address: %d", w.Code)
	})
}

func TestACostAndAMissingUser(t *testing.T) {
	bubble(t, write(t, small), func(t *testing.T, s *service) {
		api := s.api()
		codes := []int{}
		for range 4 {
			codes = append(codes, ask(api, "POST", "/items", "ann", "198.51.100.1").Code)
		}
		testkit.Check(t, slices.Equal(codes, []int{201, 201, 201, 429}), "a cost of 3 of 10: %v", codes)
		w := ask(api, "POST", "/items", "", "198.51.100.1")
		testkit.Check(t, w.Code == 400, "nobody: %d", w.Code)
	})
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

// TestWhatIsShownIsMeasured: the API exports every metric and label that the dashboard and the
// alerts use.
func TestWhatIsShownIsMeasured(t *testing.T) {
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

// fetch returns the status and the body of an answer, and 0 for none. A body of the request is one
// byte.
func fetch(c *http.Client, method, url string, body io.Reader) (status int, text string) {
	r, err := http.NewRequest(method, url, body)
	if err != nil {
		return 0, err.Error()
	}
	if body != nil {
		r.ContentLength = 1
	}
	r.Header.Set("X-User", "ann")
	response, err := c.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	all, err := io.ReadAll(response.Body)
	return response.StatusCode, fmt.Sprint(string(all), err)
}

// TestItStopsInOrder: it is unready first, the request under way is answered, and then the limiters
// are shut down. TestReplicasShareALimit shows the use of that.
func TestItStopsInOrder(t *testing.T) {
	s := onRedis(t, testnet.Redis(t), write(t, small))
	users, err1 := net.Listen("tcp", "127.0.0.1:0")
	operators, err2 := net.Listen("tcp", "127.0.0.1:0")
	testkit.NoErr(t, errors.Join(err1, err2))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.serve(ctx, users, operators, time.Hour) }()
	admin := func(path string) (status int, body string) {
		return fetch(http.DefaultClient, "GET", "http://"+operators.Addr().String()+path, nil)
	}
	ready := func(want int) func() bool {
		return func() bool { status, _ := admin("/readyz"); return status == want }
	}
	testkit.Eventually(t, "it is ready", ready(200))

	// It cannot answer before the request's body has come.
	body, sent := io.Pipe()
	answered := make(chan int, 1)
	go func() {
		status, _ := fetch(http.DefaultClient, "POST", "http://"+users.Addr().String()+"/items", body)
		answered <- status
	}()
	admitted := regexp.MustCompile(
		`yuzhi_tokens_requested_total\{yuzhi_limiter="user",yuzhi_result="admitted",.*} 3\n`)
	testkit.Eventually(t, "the request is under way", func() bool {
		_, metrics := admin("/metrics")
		return admitted.MatchString(metrics)
	})
	stop()
	testkit.Eventually(t, "it is not ready any more, and says so", ready(503))
	testkit.Check(t, len(answered) == 0, "the request is answered before its body came")
	testkit.NoErr(t, s.reports.Ping(t.Context())) // the limiters are at work
	_, err := sent.Write([]byte("x"))
	testkit.NoErr(t, errors.Join(err, sent.Close()))
	status := <-answered
	testkit.Check(t, status == 201, "the request that was under way has %d", status)
	testkit.NoErr(t, <-ended)
	err = s.reports.Ping(t.Context())
	testkit.Check(t, errors.Is(err, hybrid.ErrClosed), "a limiter goes on: %v", err)
}

// TestReportsInLineAreMadeWhenItStops: five of ten reports wait when the service is asked to stop.
// They have their turn, and then it ends, with every goroutine.
func TestReportsInLineAreMadeWhenItStops(t *testing.T) {
	file := write(t, small)
	synctest.Test(t, func(t *testing.T) {
		s, err := newService(memory.New(nil), options{rules: file})
		testkit.NoErr(t, err)
		users, operators := testnet.Listen(), testnet.Listen()
		client := func(to *testnet.Pipes) *http.Client {
			return &http.Client{Transport: &http.Transport{DialContext: to.Dial, DisableKeepAlives: true}}
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		ended, answers, from := make(chan error, 1), make(chan int), time.Now()
		go func() { ended <- s.serve(ctx, users, operators, 10*time.Second) }()
		for range 10 {
			go func() {
				status, _ := fetch(client(users), "POST", "http://api/reports", nil)
				answers <- status
			}()
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
				status, text := fetch(client(operators), "GET", "http://api/readyz", nil)
				testkit.Check(t, status == 503, "it is ready: %d %s", status, text)
			}
		}
		testkit.NoErr(t, <-ended)
		testkit.Check(t, time.Since(from) < 2*time.Second, "it ended after %v", time.Since(from))
	})
}

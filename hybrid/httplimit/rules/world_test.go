package rules

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

var check, must, noErr = testkit.Check, testkit.Must, testkit.NoErr

// world is a test in virtual time: rules in one process, on a store without faults.
type world struct {
	*testing.T
	store *memory.Store
	log   *log
	alive map[*hybrid.Limiter]bool // by Limiters that OnLimiter was given, whether they are not gone
	told  []error                  // given to OnReload
	mu    sync.Mutex
}

// log collects the text of a logger.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// count counts a text in the log.
func (l *log) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// bubble runs body in virtual time. It ends only if no goroutine is left.
func bubble(t *testing.T, body func(t *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { body(newWorld(t)) })
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, store: memory.New(nil), log: new(log), alive: map[*hybrid.Limiter]bool{}}
	t.Cleanup(func() {
		for l, alive := range w.alive {
			check(t, !alive, "a Limiter was never gone")
			check(t, l.Stats().Conserved(), "tokens were lost: %+v", l.Stats())
		}
	})
	return w
}

// config returns the Config of the tests.
func (t *world) config() Config {
	return Config{
		Store: t.store,
		Base:  hybrid.Config{Logger: slog.New(slog.NewTextHandler(t.log, nil))},
		OnLimiter: func(l *hybrid.Limiter) func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.alive[l] = true
			return func() {
				t.mu.Lock()
				defer t.mu.Unlock()
				check(t, t.alive[l], "a Limiter is gone twice")
				t.alive[l] = false
			}
		},
	}
}

// living counts the Limiters that are not gone.
func (t *world) living() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, alive := range t.alive {
		if alive {
			n++
		}
	}
	return n
}

// tableOf parses a table.
func tableOf(t testing.TB, text string) Table {
	t.Helper()
	table, err := Parse("table", []byte(text))
	noErr(t, err)
	return table
}

// with returns Rules with a table in YAML, which end with the test.
func (t *world) with(text string, change ...func(*Config)) *Rules {
	t.Helper()
	cfg := t.config()
	for _, f := range change {
		f(&cfg)
	}
	r, err := New(tableOf(t, text), cfg)
	noErr(t, err)
	t.Cleanup(func() { noErr(t, r.Shutdown(context.Background())) })
	return r
}

// ok answers every request that reaches it with 204.
var ok = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) })

// ask returns the answer to a request, such as "POST example.com/a" with fields such as "X-User: ann".
func ask(h http.Handler, request string, fields ...string) *httptest.ResponseRecorder {
	method, target, _ := strings.Cut(request, " ")
	host := ""
	if !strings.HasPrefix(target, "/") {
		host, target, _ = strings.Cut(target, "/")
		target = "/" + target
	}
	r := httptest.NewRequest(method, target, nil)
	if host != "" {
		r.Host = host
	}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		if name == "from" {
			r.RemoteAddr = value + ":4711"
		} else {
			r.Header.Add(name, value)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

var quoted = regexp.MustCompile(`"([^" ]*)[^"]*";q=`)

// rulesOf returns the names of the rules that limited a request, from its answer.
func rulesOf(w *httptest.ResponseRecorder) string {
	var names []string
	for _, found := range quoted.FindAllStringSubmatch(strings.Join(w.Header()["Ratelimit-Policy"], ", "), -1) {
		names = append(names, found[1])
	}
	return strings.Join(slices.Compact(names), " ")
}

// admitted sends n requests, one each interval, and counts those that are admitted.
func admitted(h http.Handler, n int, interval time.Duration, request string, fields ...string) (count int) {
	for range n {
		if ask(h, request, fields...).Code == http.StatusNoContent {
			count++
		}
		time.Sleep(interval)
	}
	return count
}

package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// browser is the command of a headless Chromium. Without one the test is skipped, or fails where
// one is required.
func browser(t *testing.T) string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("REQUIRE_BROWSER") != "" {
		t.Fatal("there is no chromium, and REQUIRE_BROWSER is set")
	}
	t.Skip("there is no chromium; with REQUIRE_BROWSER=1 that is a failure")
	return ""
}

// held delays the page's load event until done is closed, with a picture that is on its way until
// then. The page asks for /counts when its countdown is visible.
func held(next http.Handler, counts func(), done <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/picture":
			select {
			case <-done:
			case <-r.Context().Done():
			}
			http.NotFound(w, r)
		case "/counts":
			counts()
		case "/":
			next.ServeHTTP(w, r)
			_, _ = w.Write([]byte(`<img src="/picture" alt=""><script>
				const countdown = document.getElementById("countdown");
				new MutationObserver(() => fetch("/counts")).observe(countdown, {childList: true});
			</script>`))
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// watched calls shown with the second request after a denied one and one that is not: by then the
// page shows both.
type watched struct {
	next  http.Handler
	shown func()

	mu         sync.Mutex
	deniedAt   time.Time
	waited     time.Duration // until the first admitted request
	retryAfter string
}

func (o *watched) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := httptest.NewRecorder()
	o.next.ServeHTTP(answer, r)
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case r.URL.Path != "/users/ann/orders":
	case o.waited > 0:
		o.shown()
	case answer.Code == http.StatusOK && !o.deniedAt.IsZero():
		o.waited = time.Since(o.deniedAt)
	case answer.Code == http.StatusTooManyRequests && o.deniedAt.IsZero():
		o.deniedAt, o.retryAfter = time.Now(), answer.Header().Get("Retry-After")
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

// shown returns Chromium's dump of the loaded page.
func shown(t *testing.T, url string, arguments ...string) string {
	t.Helper()
	arguments = append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--user-data-dir=" + t.TempDir(), "--window-size=800,700",
	}, append(arguments, url)...)
	var problems strings.Builder
	command := exec.CommandContext(t.Context(), browser(t), arguments...)
	command.Stderr = &problems
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, problems.String())
	}
	return string(out)
}

// TestThePageShowsADenial: a real browser asks until it is denied, shows the problem and the length
// of its wait, waits that long, and shows that it is served again.
func TestThePageShowsADenial(t *testing.T) {
	t.Parallel()
	limit := middlewares["httplimit"](t, hybrid.Limit{Tokens: 1, Per: 3 * time.Second, Burst: 3})
	served := make(chan struct{})
	o := &watched{next: withChi(limit), shown: sync.OnceFunc(func() { close(served) })}
	s := httptest.NewServer(held(o, func() {}, served))
	t.Cleanup(s.Close)
	page := shown(t, s.URL, "--dump-dom")
	o.mu.Lock()
	defer o.mu.Unlock()

	log := regexp.MustCompile(`<li class="(denied|admitted)">([^<]*)</li>`).FindAllStringSubmatch(page, -1)
	var classes, denials []string
	for _, line := range log {
		classes = append(classes, line[1])
		if line[1] == "denied" {
			denials = append(denials, line[2])
		}
	}
	story := strings.Join(classes, " ")
	if !regexp.MustCompile(`^(admitted ){3,}(denied )+admitted`).MatchString(story) {
		t.Fatalf("the page tells: %s\n%s", story, page)
	}
	seconds, err := strconv.Atoi(o.retryAfter)
	noErr(t, err)
	want := "429 The request cannot be served, as its quota has been exceeded (again in " + o.retryAfter + " s)"
	if denials[0] != want {
		t.Errorf("the page says %q, want %q", denials[0], want)
	}
	if waited := o.waited; seconds < 1 || waited < time.Duration(seconds)*time.Second {
		t.Errorf("the page came back after %v, and was told %d s", waited, seconds)
	}
}

// TestTheCountdownIsSeen: while it waits, the page shows for how long. With SCREENSHOT=FOLDER a
// picture of that is left there.
func TestTheCountdownIsSeen(t *testing.T) {
	t.Parallel()
	limit := middlewares["httplimit"](t, hybrid.PerHour(1).WithBurst(3))
	counts := make(chan struct{})
	s := httptest.NewServer(held(withHTTP(limit), sync.OnceFunc(func() { close(counts) }), counts))
	t.Cleanup(s.Close)
	arguments := []string{"--dump-dom"}
	if folder := os.Getenv("SCREENSHOT"); folder != "" {
		arguments = []string{"--screenshot=" + filepath.Join(folder, "page.png")}
	}
	page := shown(t, s.URL, arguments...)
	if arguments[0] == "--dump-dom" &&
		(!regexp.MustCompile(`id="countdown">Again in [0-9]+ s\.<`).MatchString(page) ||
			!strings.Contains(page, `id="title">429: `) || !strings.Contains(page, `<div id="now" class="denied">`)) {
		t.Errorf("the page is\n%s", page)
	}
}

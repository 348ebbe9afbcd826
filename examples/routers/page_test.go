package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// browser is the command of a headless Chromium. Without one the test is skipped, or fails where
// one is required.
func browser(t *testing.T) string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	testkit.Must(t, os.Getenv("REQUIRE_BROWSER") == "", "there is no chromium, and REQUIRE_BROWSER is set")
	t.Skip("there is no chromium; with REQUIRE_BROWSER=1 that is a failure")
	return ""
}

// TestThePageShowsADenial: a real browser asks until it is denied, and shows the problem and for how long
// it waits. A picture, which is on its way until the countdown is visible, keeps the page from being loaded
// before.
func TestThePageShowsADenial(t *testing.T) {
	counts := make(chan struct{})
	counted := sync.OnceFunc(func() { close(counts) })
	mux := http.NewServeMux()
	mux.Handle("/users/", withChi(middlewares["httplimit"](t, hybrid.PerHour(1).WithBurst(3))))
	mux.HandleFunc("/counts", func(http.ResponseWriter, *http.Request) { counted() })
	mux.HandleFunc("/picture", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-counts:
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, r *http.Request) {
		withPage(nil).ServeHTTP(w, r)
		_, _ = w.Write([]byte(`<img src="/picture" alt=""><script>
			const countdown = document.getElementById("countdown");
			new MutationObserver(() => fetch("/counts")).observe(countdown, {childList: true});
		</script>`))
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)

	var problems strings.Builder
	command := exec.CommandContext(t.Context(), browser(t), "--headless", "--no-sandbox", "--disable-gpu",
		"--disable-dev-shm-usage", "--no-first-run", "--user-data-dir="+t.TempDir(), "--dump-dom", s.URL)
	command.Stderr = &problems
	page, err := command.Output()
	testkit.Must(t, err == nil, "%v\n%s", err, problems.String())
	for _, want := range []string{
		`(<li class="admitted">200 OK</li>){3}<li class="denied">429 The request cannot be served, as its quota ` +
			`has been exceeded \(again in [0-9]+ s\)</li>`,
		`<div id="now" class="denied">`, `id="title">429: `, `id="countdown">Again in [0-9]+ s\.<`,
	} {
		testkit.Check(t, regexp.MustCompile(want).Match(page), "the page has no %s:\n%s", want, page)
	}
}

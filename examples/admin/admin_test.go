package main

import (
	"context"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/examples/internal/testnet"
	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// start returns the handler of the page, and the Limiter of a service on the same Redis.
func start(t *testing.T) (http.Handler, *hybrid.Limiter) {
	t.Helper()
	options, err := redis.ParseURL(testnet.Redis(t))
	testkit.NoErr(t, err)
	client := redis.NewClient(options)
	a, err := newAdmin(client, "", "api", "100 in 24h")
	testkit.NoErr(t, err)
	served, err := hybrid.New(testnet.Store(t, testnet.URL(options.Addr), ""), hybrid.Config{
		Name: "api", Limits: []hybrid.Limit{hybrid.Sliding(100, 24*time.Hour)}, CallTimeout: time.Minute,
	})
	testkit.NoErr(t, err)
	t.Cleanup(func() {
		testkit.NoErr(t, served.Shutdown(context.Background()))
		testkit.NoErr(t, a.limiter.Close())
	})
	return a.handler(), served
}

// send returns the answer to a form, or to a GET without one.
func send(h http.Handler, path string, form url.Values, change func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", path, nil)
	if form != nil {
		r = httptest.NewRequest("POST", path, strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	r.Host = "localhost:8088"
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestThePageShowsAndChangesAKey(t *testing.T) {
	h, served := start(t)
	const key = "ann <b>"
	for _, step := range []struct {
		form   url.Values // with the key
		denied bool       // the service denies requests then
		shows  string     // what the table matches
	}{
		{nil, false, `<td>100 in 24h<td>100<td>[4-9]\d<td>`},
		{url.Values{"do": {"block"}}, true, `<td>blocked<td><td><td>`},
		{url.Values{"do": {"set"}, "limits": {"90 in 24h, 60/h"}}, false,
			`<td>90 in 24h<td>90<td>[4-9]\d<td>\d+\s*<tr><td>60/h<td>60<td>\d+<td>`},
		{url.Values{"do": {"clear"}}, false, `<td>100 in 24h<td>100<td>[4-9]\d<td>\d+\s*</table>`},
		{url.Values{"do": {"reset"}}, false, `<td>100 in 24h<td>100<td>[123]?\d<td>\d+`},
	} {
		if step.form != nil {
			step.form.Set("key", key)
			w := send(h, "/", step.form, nil)
			testkit.Must(t, w.Code == http.StatusSeeOther, "%v: %d %s", step.form, w.Code, w.Body)
		}
		testkit.Eventually(t, "the service follows", func() bool { return served.Allow(key) != step.denied })
		if step.form == nil {
			served.AllowN(key, 40)
		}
		table := send(h, "/use?key="+url.QueryEscape(key), nil, nil).Body.String()
		testkit.Check(t, regexp.MustCompile(step.shows).MatchString(table), "%v shows %s, want %s", step.form, table,
			step.shows)
	}
	w := send(h, "/", url.Values{"key": {key}, "do": {"set"}, "limits": {"<i>"}}, nil)
	testkit.Check(t, w.Code == 400 && strings.Contains(w.Body.String(), "&lt;i&gt;") &&
		!strings.Contains(w.Body.String(), "<b>"), "%d %s", w.Code, w.Body)
}

// TestOtherSitesChangeNothing: neither by a form of theirs nor under a name of theirs for this address.
func TestOtherSitesChangeNothing(t *testing.T) {
	h, served := start(t)
	for name, change := range map[string]func(*http.Request){
		"a form":             func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
		"a form on the host": func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") },
		"an older browser": func(r *http.Request) {
			r.Header.Del("Sec-Fetch-Site")
			r.Header.Set("Origin", "http://evil.example")
		},
		"a name":     func(r *http.Request) { r.Host = "evil.example:8088" },
		"an address": func(r *http.Request) { r.Host = "192.0.2.1:8088" },
	} {
		w := send(h, "/", url.Values{"key": {"ann"}, "do": {"block"}}, change)
		testkit.Check(t, w.Code == http.StatusForbidden, "%s: %d", name, w.Code)
	}
	testkit.Check(t, served.Allow("ann"), "ann is blocked")
}

// Without the limits of the service the page does not go back to them, and says why.
func TestThePageGoesBackToKnownLimitsAlone(t *testing.T) {
	options, err := redis.ParseURL(testnet.Redis(t))
	testkit.NoErr(t, err)
	client := redis.NewClient(options)
	defer client.Close()
	a, err := newAdmin(client, "", "other", "")
	testkit.NoErr(t, err)
	defer a.limiter.Close()
	block := send(a.handler(), "/", url.Values{"key": {"ann"}, "do": {"block"}}, nil)
	testkit.Check(t, block.Code == http.StatusSeeOther, "block: %d %s", block.Code, block.Body)
	w := send(a.handler(), "/", url.Values{"key": {"ann"}, "do": {"clear"}}, nil)
	testkit.Check(t, w.Code == http.StatusBadRequest && strings.Contains(w.Body.String(), "-limits") &&
		strings.Contains(w.Body.String(), "<td>blocked<td>"), "clear: %d %s", w.Code, w.Body)
}

// chromium returns the page at url as a headless Chromium has it after some seconds.
func chromium(t *testing.T, url string) string {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		testkit.Must(t, os.Getenv("REQUIRE_BROWSER") == "", "there is no chromium, and REQUIRE_BROWSER is set")
		t.Skip("there is no chromium; with REQUIRE_BROWSER=1 that is a failure")
	}
	out, err := exec.CommandContext(t.Context(), program, "--headless", "--no-sandbox", "--disable-gpu",
		"--disable-dev-shm-usage", "--no-first-run", "--user-data-dir="+t.TempDir(), "--virtual-time-budget=2500",
		"--dump-dom", url).Output()
	testkit.NoErr(t, err)
	return html.UnescapeString(string(out))
}

// TestABrowserChangesAKey: a click on Block in a real browser blocks the key, the tables follow what the
// service uses, and a form on another site changes nothing.
func TestABrowserChangesAKey(t *testing.T) {
	h, served := start(t)
	testkit.Must(t, served.Allow("ann") && served.Allow("bob"), "a request is denied")
	var once sync.Once
	script := ""
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/use" && r.FormValue("key") == "bob" { // the use goes on while the page is open
			once.Do(func() {
				_, err := served.Key("bob").Take(t.Context(), 41)
				testkit.Check(t, err == nil, "%v", err)
			})
		}
		h.ServeHTTP(w, r)
		if r.Method == http.MethodGet && r.URL.Path == "/" && script != "" {
			_, _ = w.Write([]byte(script)) // as the operator clicks
			script = ""
		}
	}))
	defer page.Close()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(`<form method="post" action="` + page.URL + `/"><input name="key" value="bob">` +
			`<button name="do" value="block">Win</button></form>` +
			`<script>document.querySelector("button").click()</script>`))
	}))
	defer other.Close()

	script = `<script>document.querySelector("[value=block]").click()</script>`
	shown := chromium(t, page.URL+"/?key=ann")
	testkit.Check(t, strings.Contains(shown, "<td>blocked</td>"), "after the click on Block:\n%s", shown)
	shown = chromium(t, page.URL+"/?key=bob")
	testkit.Check(t, strings.Contains(shown, "<td>42</td>"), "the table has not followed:\n%s", shown)
	testkit.Check(t, strings.Contains(shown, `<a href="/?key=bob">bob</a>`), "bob is not among the busiest:\n%s", shown)
	shown = chromium(t, other.URL)
	testkit.Check(t, strings.Contains(shown, "cross-origin") && served.Allow("bob"), "another site:\n%s", shown)
}

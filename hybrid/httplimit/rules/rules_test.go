package rules

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/httplimit"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

// A request is limited by all rules of the most specific pattern that it matches, and by none if it
// matches no pattern.
func TestWhichRulesLimitARequest(t *testing.T) {
	bubble(t, func(t *world) {
		const rules = `
rules:
  all: {key: all, limits: [1000/s]}
  get: {key: all, limits: [1000/s]}
  up: {key: all, limits: [1000/s, 9999/h]}
  host: {key: all, limits: [1000/s]}
routes:
  GET /a/{x}: {rules: [get]}
  /a/{x}: {rules: [all]}
  POST /upload/{bucket}: {rules: [all, up]}
  /healthz: {rules: []}
  example.com/a/b: {rules: [host]}
`
		limited := func(r *Rules, cases map[string]string) {
			h := r.Handler(ok)
			for request, want := range cases {
				w := ask(h, request)
				check(t, rulesOf(w) == want && w.Code == http.StatusNoContent, "%s is limited by %q, want %q: %d",
					request, rulesOf(w), want, w.Code)
			}
		}
		limited(t.with(rules), map[string]string{
			"GET /a/1": "get", "HEAD /a/1": "get", "PUT /a/1": "all", "GET //a/./1": "get", "GET /a/1%2F2": "get",
			"GET /a/1/2": "", "GET /a": "", "GET /": "", "GET /healthz": "",
			"POST /upload/b": "all up", "GET /upload/b": "",
			"GET example.com/a/b": "host", "GET example.com:8080/a/b": "host",
			"GET example.com/a/c": "get", "GET example.org/a/b": "get",
		})
		// "/" matches all other requests.
		others := "routes:\n  /: {rules: [all]}\n  /dir/{x}/: {rules: [all]}"
		own := func(c *Config) { c.Store = memory.New(nil) }
		limited(t.with(strings.ReplaceAll(rules, "routes:", others), own), map[string]string{
			"GET /": "all", "GET /a/1/2": "all", "GET /upload/b": "all", "OPTIONS /x": "all", "CONNECT /x": "all",
			"CONNECT /dir/1": "all", "GET /healthz": "",
		})
	})
}

// Each key form counts requests with equal keys together, and no others.
func TestKeyForms(t *testing.T) {
	user, proxied := "X-User: ann", "X-Forwarded-For: 192.0.2.1"
	cases := []struct {
		key, first   string
		fields       []string
		same, differ []string // "request | fields", after the first one has used the only token
	}{
		{"all", "GET /a/1/x", []string{"from: 192.0.2.1"}, []string{"POST /b/2 | from: 192.0.2.2"}, nil},
		{"address", "GET /a/1/x", []string{"from: 192.0.2.1"}, []string{"GET /b/2 | from: 192.0.2.1",
			"GET /b/2 | from: 10.1.2.3 | " + proxied, "GET /b/2 | from: 192.0.2.1 | X-Forwarded-For: 192.0.2.9"},
			[]string{"GET /a/1/x | from: 192.0.2.2", "GET /a/1/x | from: 192.0.2.3 | " + proxied}},
		{"header:x-user", "GET /a/1/x", []string{user}, []string{"GET /b/2 | " + user},
			[]string{"GET /a/1/x | X-User: bob"}},
		{"route", "GET /a/1/x", nil, []string{"GET /a/2/x"}, []string{"GET /b/1"}},
		{"path:id", "GET /a/1/x", nil, []string{"GET /b/1", "GET /b//1", "GET /b/%31"}, []string{"GET /a/2/x"}},
		{"[path:id, route]", "GET /a/1/x", nil, []string{"POST /a/1/x"}, []string{"GET /a/2/x", "GET /b/1"}},
		{`["header:X-User", "header:X-Team"]`, "GET /a/1/x", []string{"X-User: a", "X-Team: bc"},
			[]string{"GET /b/1 | X-User: a | X-Team: bc"}, []string{"GET /b/1 | X-User: ab | X-Team: c"}},
		{"method", "GET /a/1/x", nil, []string{"GET /b/1"}, []string{"PUT /b/1"}},
	}
	for _, c := range cases {
		t.Run(c.key, func(t *testing.T) {
			bubble(t, func(t *world) {
				r := t.with("rules: {}", func(cfg *Config) {
					method := func(r *http.Request) (string, error) { return r.Method, nil }
					cfg.Keys = map[string]httplimit.KeyFunc{"method": method}
				})
				noErr(t, r.Set(tableOf(t, fmt.Sprintf(`
trusted: [10.0.0.0/8]
rules: {r: {key: %s, limits: [1/h]}}
routes: {"/a/{id}/x": {rules: [r]}, "/b/{id}": {rules: [r]}}`, c.key))))
				h := r.Handler(ok)
				w := ask(h, c.first, c.fields...)
				check(t, w.Code == http.StatusNoContent, "the first request is denied: %d %s", w.Code, w.Body)
				again := func(requests []string, want int) {
					for _, request := range requests {
						parts := strings.Split(request, " | ")
						w := ask(h, parts[0], parts[1:]...)
						check(t, w.Code == want, "%s is answered with %d, want %d", request, w.Code, want)
					}
				}
				again(c.same, http.StatusTooManyRequests)
				again(c.differ, http.StatusNoContent)
			})
		})
	}
}

// A request without the key that a rule needs is answered with 400, and takes nothing of other rules.
func TestARequestWithoutAKey(t *testing.T) {
	bubble(t, func(t *world) {
		r := t.with(`
rules:
  all: {key: all, limits: [1/h]}
  user: {key: "header:X-User", limits: [1/h]}
  rest: {key: "path:rest", limits: [1/h]}
routes: {/a: {rules: [all, user]}, "/b/{rest...}": {rules: [rest]}}`)
		h := r.Handler(ok)
		check(t, ask(h, "GET /a").Code == http.StatusBadRequest, "a request without a user")
		check(t, ask(h, "GET /b/").Code == http.StatusBadRequest, "a request without a path")
		check(t, ask(h, "GET /a", "X-User: ann").Code == http.StatusNoContent, "the token of all is gone")
	})
}

// The rules match by themselves: Pattern and PathValue of the application's router stay the same, above
// and below the Handler.
func TestTheRouterOfTheApplicationIsNotDisturbed(t *testing.T) {
	bubble(t, func(t *world) {
		r := t.with(`
rules: {r: {key: "path:bucket", limits: [100/s]}}
routes: {"GET /x/{bucket}": {rules: [r]}}`)
		mux := http.NewServeMux()
		seen := ""
		see := func(_ http.ResponseWriter, r *http.Request) {
			seen = fmt.Sprintf("%s id=%s bucket=%s", r.Pattern, r.PathValue("id"), r.PathValue("bucket"))
		}
		mux.HandleFunc("/x/{id}", see)
		mux.Handle("/x/{id}/below", http.StripPrefix("", r.Handler(http.HandlerFunc(see))))
		w := ask(r.Handler(mux), "GET /x/1")
		check(t, seen == "/x/{id} id=1 bucket=" && rulesOf(w) == "r", "%q, %q", seen, rulesOf(w))

		below := http.NewServeMux()
		below.Handle("GET /{first}/{id}", r.Handler(http.HandlerFunc(see)))
		w = ask(below, "GET /x/1")
		check(t, seen == "GET /{first}/{id} id=1 bucket=" && rulesOf(w) == "r", "%q, %q", seen, rulesOf(w))
		check(t, r.Limiters()["r"].CachedLimits("1") != nil, "the key is not the value of {bucket}")
	})
}

// Unlimited and blocked are limits; shadow admits and counts; a class leaves its share.
func TestARuleIsReadInAllItsForms(t *testing.T) {
	bubble(t, func(t *world) {
		r := t.with(`
rules:
  free: {key: all, limits: [unlimited]}
  none: {key: all, limits: [blocked]}
  tried: {key: all, limits: [1/h], shadow: true}
  ranked: {key: all, limits: [10/h], priorities: [0.5]}
routes:
  /free: {rules: [free]}
  /none: {rules: [none]}
  /tried: {rules: [tried]}
  /batch: {rules: [ranked, free], class: 1}
  /now: {rules: [ranked]}`)
		h := r.Handler(ok)
		for path, want := range map[string]int{"/free": 50, "/none": 0, "/tried": 50} {
			got := admitted(h, 50, 0, "GET "+path)
			check(t, got == want, "%s admits %d of 50, want %d", path, got, want)
		}
		check(t, r.Limiters()["tried"].Stats().Shadowed == 49, "%+v", r.Limiters()["tried"].Stats())
		batch, now := admitted(h, 20, 0, "GET /batch"), admitted(h, 20, 0, "GET /now")
		check(t, batch == 5 && now == 5, "batch gets %d and now %d, want 5 and 5", batch, now)
	})
}

// Config.Base holds for every rule, except for fields that the rule declares.
func TestBaseIsForEveryRule(t *testing.T) {
	base := hybrid.Config{Policy: hybrid.Policy{Fallback: hybrid.FallbackDeny, Weight: 7}, KeysMax: 9}
	for want, rule := range map[hybrid.Fallback]Rule{
		hybrid.FallbackDeny:       {},
		hybrid.FallbackLocalShare: {Fallback: new(hybrid.FallbackLocalShare), Shadow: true},
	} {
		got := configOf(base, "r", 5, rule)
		p := got.Policy
		check(t, p.Fallback == want && p.Weight == 7 && p.Shadow == rule.Shadow && got.KeysMax == 9 &&
			got.Name == "r" && got.Version == 5, "%+v: %+v", rule, got)
	}
}

func TestConfigIsChecked(t *testing.T) {
	_, err := New(Table{Version: -1}, Config{
		Base: hybrid.Config{
			Name: "n", Limits: []hybrid.Limit{{}}, Version: 1,
			LimitsFor:  func(context.Context, string) ([]hybrid.Limit, error) { return nil, nil },
			Priorities: []float64{3}, Scope: hybrid.ScopeProcess, KeysMax: -1,
		},
		Keys: map[string]httplimit.KeyFunc{"all": httplimit.OneKey, "a b": httplimit.OneKey, "none": nil},
	})
	for _, want := range []string{
		"Config.Base.Name is set, must not be", "Config.Base.Limits is set", "Config.Base.LimitsFor is set",
		"Config.Base.Version is set", "Config.Base.Priorities is set", "Config.Base.Scope is set",
		"Config.Base.KeysMax is -1, must be at least 0", `Config.Keys has the name "all"`,
		`Config.Keys has the name "a b"`, `Config.Keys["none"] is nil`, "Config.Store is nil", "version is -1",
	} {
		check(t, errors.Is(err, ErrInvalid) && strings.Contains(err.Error(), want),
			"%v\ndoes not say %s", err, want)
	}
}

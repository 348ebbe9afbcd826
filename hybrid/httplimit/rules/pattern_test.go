package rules

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// limiting is a table that limits the requests of these patterns to one an hour.
func limiting(patterns ...string) string {
	text := "rules: {few: {key: all, limits: [1/h]}}\nroutes:\n"
	for _, p := range patterns {
		text += fmt.Sprintf("  %q: {rules: [few]}\n", p)
	}
	return text
}

// A pattern in the spelling of another router is refused: ServeMux would take it, and it would limit nothing.
// The error says what to write, and that limits the request.
func TestPatternsOfOtherRoutersAreRefused(t *testing.T) {
	for _, c := range []struct{ pattern, says, write, request string }{
		{"/api/*", "end the path with / or {rest...}", "/api/", "GET /api/a/b"},
		{"/api/**", "end the path with / or {rest...}", "/api/{rest...}", "GET /api/a/b"},
		{"/api/*rest", "end the path with / or {rest...}", "/api/{rest...}", "GET /api/a/b"},
		{"/api/*/files", "{name} for one segment", "/api/{name}/files", "GET /api/a/files"},
		{"/api/*.json", "{name} for one segment", "/api/{name}", "GET /api/a.json"},
		{"/api/...", "write / or /{rest...}", "/api/", "GET /api/a/b"},
		{"/api/{*rest}", "end the path with / or {rest...}", "/api/{rest...}", "GET /api/a/b"},
		{"/api/:id", "write /{id}", "/api/{id}", "GET /api/5"},
		{"/api/:id/files", "write /{id}", "/api/{id}/files", "GET /api/5/files"},
		{"/api/<id>", "write {id}", "/api/{id}", "GET /api/5"},
		{"/api/<int:id>", "write {id}", "/api/{id}", "GET /api/5"},
		{"/api/<user-id>/files", "write {user}", "/api/{user}/files", "GET /api/5/files"},
		{"/api/{id}.json", "a segment may be {name}", "/api/{id}", "GET /api/5.json"},
		{"/api/{id:int}", "a segment may be {name}", "/api/{id}", "GET /api/5"},
		{"/api/{id:[0-9]+}", "not a regular expression", "/api/{id}", "GET /api/5"},
		{"/api/{id?}", "no optional part", "/api/{id}", "GET /api/5"},
		{"^/api/.*$", "not a regular expression", "/api/{rest...}", "GET /api/a/b"},
		{"/api/.+", "not a regular expression", "/api/{rest...}", "GET /api/a/b"},
		{"/api$", "not a regular expression", "/api", "GET /api"},
		{"/(a|b)/c", "a route for each alternative", "/a/c", "GET /a/c"},
		{`/api/\d+`, "not a regular expression", "/api/{id}", "GET /api/5"},
		{"~ ^/api/", "write one method", "/api/", "GET /api/5"},
		{"GET|POST /api", "a route for each of several", "POST /api", "POST /api"},
		{"PATCH,PUT /api", "a route for each of several", "PUT /api", "PUT /api"},
		{"GET, POST /api", "a route for each of several", "POST /api", "POST /api"},
		{"get /api", "one method in upper case", "GET /api", "GET /api"},
		{"ANY /api", "none for all", "/api", "PUT /api"},
		{"ALL /api", "none for all", "/api", "PUT /api"},
		{"* /api", "none for all", "/api", "PUT /api"},
		{"GET:/api", "or a space after a method", "GET /api", "GET /api"},
		{"GET/api", "or a space after a method", "GET /api", "GET /api"},
		{"/api?x=1", `has "?x=1": a pattern has no`, "/api", "GET /api?x=1"},
		{"/api#top", `has "#top": a pattern has no`, "/api", "GET /api"},
		{"https://example.com/api", "no scheme: leave it out", "example.com/api", "GET example.com/api"},
		{"*.example.com/", "a route for each host", "www.example.com/", "GET www.example.com/api"},
		{"*/api", "leave the host out", "/api", "GET www.example.com/api"},
		{".example.com/", "a route for each host", "www.example.com/", "GET www.example.com/api"},
		{"example.com:8080/", "write example.com", "example.com/", "GET example.com:8080/api"},
		{"Example.com/", "write example.com", "example.com/", "GET example.com/api"},
		{"münchen.de/", "in the form xn--", "xn--mnchen-3ya.de/", "GET xn--mnchen-3ya.de/api"},
		{"10.0.0.0/8", "a range of addresses", "/", "GET /api"},
		{"/api ", "leave it out", "/api", "GET /api"},
		{"GET /api ", "leave it out", "GET /api", "GET /api"},
		{"/a b", "leave it out, or write %20", "/a%20b", "GET /a%20b"},
		{"/a, /b", "has a space in its path", "/a", "GET /a"},
		{"/a,/b", "a route for each path", "/b", "GET /b"},
		{"/100%", "write %25", "/100%25", "GET /100%25"},
		{"/a//b", "write /a/b", "/a/b", "GET /a/b"},
		{"GET /a/../b", "write /b", "GET /b", "GET /b"},
	} {
		_, err := Parse("table", []byte(limiting(c.pattern)))
		said := err != nil && strings.Contains(err.Error(), c.says)
		check(t, said, "%q: %v\ndoes not say %s", c.pattern, err, c.says)
		bubble(t, func(t *world) {
			h := t.with(limiting(c.write)).Handler(ok)
			got := admitted(h, 10, 0, c.request)
			check(t, got == 1, "%q admits %d of 10 %s, want 1", c.write, got, c.request)
		})
	}
}

// A percent-encoded character stands for itself, and so do the characters of a path that are no spelling of
// another router.
func TestAPatternMayHaveAnyCharacter(t *testing.T) {
	for pattern, request := range map[string]string{
		"/api/%2A":           "GET /api/*",
		"/api/%3Aid":         "GET /api/:id",
		"/api/%3Cid%3E":      "GET /api/%3Cid%3E",
		"/api/%3F":           "GET /api/%3F",
		"/api%24":            "GET /api$",
		"/a%7Cb":             "GET /a%7Cb",
		"/a%2Cb%2F":          "GET /a,b%2F",
		"/%e7%94%a8/{id}":    "GET /用/5",
		"/用/{id}":            "GET /%E7%94%A8/5",
		"/things:batch":      "GET /things:batch",
		"/$metadata":         "GET /$metadata",
		"/Products(1)":       "GET /Products(1)",
		"/c++/a,b;v=1@~!":    "GET /c++/a,b;v=1@~!",
		"/.well-known/x":     "GET /.well-known/x",
		"VERSION-CONTROL /x": "VERSION-CONTROL /x",
		"GET \t api_1./x":    "GET api_1./x",
	} {
		bubble(t, func(t *world) {
			got := admitted(t.with(limiting(pattern)).Handler(ok), 10, 0, request)
			check(t, got == 1, "%q admits %d of 10 %s, want 1", pattern, got, request)
		})
	}
}

// ServeMux refuses patterns that match the same request where neither is more specific. The error says
// what to write.
func TestAConflictSaysWhatToWrite(t *testing.T) {
	for _, c := range []struct {
		patterns []string
		says     string
		write    [][]string
	}{
		{[]string{"/api/", "OPTIONS /"}, `conflicts with "/api/": one has a method, the other a narrower ` +
			`path, so neither is more specific; replace "OPTIONS /" by "OPTIONS /api/", or "/api/" by a ` +
			`route for each method`,
			[][]string{{"/api/", "OPTIONS /api/", "/"}, {"GET /api/", "POST /api/", "OPTIONS /", "/"}}},
		{[]string{"HEAD /", "GET /api/{x}"}, `replace "HEAD /" by "HEAD /api/{x}"`,
			[][]string{{"HEAD /api/{x}", "GET /api/{x}"}}},
		{[]string{"x.com/a/", "PUT x.com/"}, `replace "PUT x.com/" by "PUT x.com/a/"`,
			[][]string{{"x.com/a/", "PUT x.com/a/"}}},
		{[]string{"/a/{x}", "/{y}/b"}, `conflicts with "/a/{x}": some requests match both, and neither is ` +
			`more specific; replace one pattern by a route for each value of its wildcard`,
			[][]string{{"/a/{x}", "/c/b", "/d/b"}, {"/{y}/b", "/a/c", "/a/d"}}},
		{[]string{"/{a}", "/{b}"}, `["/{b}"]: matches the same requests as "/{a}": leave one of them out`,
			[][]string{{"/{a}"}, {"/{b}"}}},
	} {
		_, err := Parse("table", []byte(limiting(c.patterns...)))
		said := err != nil && strings.Contains(err.Error(), c.says)
		check(t, said, "%q: %v\ndoes not say %s", c.patterns, err, c.says)
		for _, patterns := range c.write {
			tableOf(t, limiting(patterns...))
		}
	}
}

// A preflight has no limit below a path that has one, as the error about "OPTIONS /" says.
func TestPreflightsMayBeFree(t *testing.T) {
	bubble(t, func(t *world) {
		h := t.with(limiting("/", "/api/") + "  OPTIONS /api/: {rules: []}\n").Handler(ok)
		free, limited := admitted(h, 10, 0, "OPTIONS /api/x"), admitted(h, 10, 0, http.MethodPost+" /api/x")
		check(t, free == 10 && limited == 1, "%d of 10 preflights and %d of 10 requests", free, limited)
	})
}

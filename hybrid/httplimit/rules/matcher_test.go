package rules

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"
)

// patterns are the patterns of the tests in this file.
var patterns = []string{
	"/", "GET /{$}", "GET /a", "POST /a", "/a/{x}", "GET /a/{x}/c", "GET /a/b/c",
	"/tree/", "/tree/{x}/", "/f/{rest...}",
	"example.com/", "DELETE example.com/a/{x}", "/u/{x}/{y}", "/e/{$}", "CONNECT /a", "/b%2Fc/{x}",
}

// served returns the pattern that http.ServeMux itself finds for a request, after its redirects, and
// the values of the wildcards.
func served(t *testing.T, mux *http.ServeMux, r, got *http.Request) (string, map[string]string) {
	for range 3 {
		*got = http.Request{}
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r.Clone(r.Context()))
		if w.Code != http.StatusTemporaryRedirect {
			break
		}
		u, err := url.Parse(w.Header().Get("Location"))
		noErr(t, err)
		r = r.Clone(r.Context())
		r.URL, r.RequestURI = u, u.RequestURI()
	}
	values := map[string]string{}
	if r.Method == http.MethodConnect { // of which PathValue may panic
		return got.Pattern, nil
	}
	for _, name := range []string{"x", "y", "rest"} {
		if v := got.PathValue(name); v != "" {
			values[name] = v
		}
	}
	return got.Pattern, values
}

// muxOf returns a ServeMux with all patterns. It copies each request that it serves to got.
func muxOf(got *http.Request) *http.ServeMux {
	mux := http.NewServeMux()
	for _, p := range patterns {
		mux.HandleFunc(p, func(_ http.ResponseWriter, r *http.Request) { *got = *r })
	}
	return mux
}

// FuzzMatchesAsServeMux: the pattern of a request, and the values of its wildcards, are those that
// http.ServeMux would have in the end, and nothing of the request changes.
func FuzzMatchesAsServeMux(f *testing.F) {
	for _, path := range []string{
		"/", "/a", "/a/", "//a", "/a/../a/b", "/a/b/c", "/a/x/c", "/tree", "/tree/5", "/tree/5/",
		"/f", "/f/", "/f/a/b%2Fc",
		"/a/%E4%BD%A0", "/a/b%2Fc", "/u/%2F/%25", "/e", "/e/", "/u//b", "/a/./c", "/b%2Fc/q",
		"/a/%2e%2e/b", "*", "/tree//", "/a/b+c",
	} {
		for _, method := range []string{"GET", "POST", "HEAD", "DELETE", "CONNECT", "OPTIONS"} {
			f.Add(method, "example.com:80", path)
			f.Add(method, "other", path)
		}
	}
	var m matcher
	for _, p := range patterns {
		_, err := m.add(p)
		noErr(f, err)
	}
	got := new(http.Request)
	mux := muxOf(got)
	f.Fuzz(func(t *testing.T, method, host, path string) {
		u, err := url.ParseRequestURI(path)
		if err != nil || u.Host != "" || u.Opaque != "" || u.RawQuery != "" || path == "*" {
			return
		}
		r := &http.Request{Method: method, Host: host, URL: u, RequestURI: path, Header: http.Header{}}
		before, url := *r, *u
		pattern := m.patternOf(r)
		wantPattern, want := served(t, mux, r, got)
		if method == http.MethodConnect && pattern != wantPattern {
			return // which ServeMux redirects, but for other reasons
		}
		if escaped := u.EscapedPath(); cleanPath(escaped) != escaped && strings.Contains(escaped, "%") {
			return // which ServeMux redirects to a path that it escapes once more
		}
		check(t, pattern == wantPattern, "%s %q matches %q, want %q", method, path, pattern, wantPattern)
		values := map[string]string{}
		for _, name := range []string{"x", "y", "rest"} {
			if w, ok := wildcardOf(pattern, name); ok {
				if v := w.value(r); v != "" {
					values[name] = v
				}
			}
		}
		if method != http.MethodConnect {
			check(t, fmt.Sprint(values) == fmt.Sprint(want),
				"%s %q on %q has %v, want %v", method, path, pattern, values, want)
		}
		check(t, reflect.DeepEqual(*r, before) && *u == url, "the request has changed: %+v", r)
	})
}

// A pattern may have wildcards of any name that ServeMux takes.
func TestTheNamesOfWildcards(t *testing.T) {
	var m matcher
	names, err := m.add("PUT example.com/{bucket}/x/{名}/{rest...}")
	check(t, err == nil && strings.Join(names, " ") == "bucket 名 rest", "%q, %v", names, err)
	names, err = m.add("/{$}")
	check(t, err == nil && len(names) == 0, "%q, %v", names, err)
}

package rules

import (
	"fmt"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"
)

// matcher finds the pattern that a request matches, by an http.ServeMux with dummy handlers.
type matcher struct{ mux http.ServeMux }

// patternOf returns the pattern that r matches, or "". If ServeMux would redirect r, such as //a to /a,
// patternOf returns the pattern that the target matches.
func (m *matcher) patternOf(r *http.Request) string {
	_, pattern := m.mux.Handler(r)
	if r.Method == http.MethodConnect && strings.HasPrefix(pattern, "/") && strings.HasSuffix(pattern, "/") {
		// If ServeMux would redirect a CONNECT request, pattern is the target of the redirect.
		to := &http.Request{Method: r.Method, Host: r.Host, URL: &url.URL{Path: pattern}}
		_, pattern = m.mux.Handler(to)
	}
	return pattern
}

var wildcardForm = regexp.MustCompile(`\{([^{}$.]+)(\.\.\.)?\}`)

// add adds a pattern and returns the names of its wildcards. add returns an error for a pattern that ServeMux
// or checkPattern refuses.
func (m *matcher) add(pattern string) (wildcards []string, err error) {
	if err := checkPattern(pattern); err != nil {
		return nil, err
	}
	defer func() {
		if p := recover(); p != nil {
			wildcards, err = nil, refused(pattern, fmt.Sprint(p))
		}
	}()
	m.mux.Handle(pattern, http.NotFoundHandler())
	for _, found := range wildcardForm.FindAllStringSubmatch(pattern, -1) {
		wildcards = append(wildcards, found[1])
	}
	return wildcards, nil
}

// split splits a pattern into the method, which may be "", and the host with the path.
func split(pattern string) (method, rest string) {
	if i := strings.IndexAny(pattern, " \t"); i >= 0 {
		return pattern[:i], strings.TrimLeft(pattern[i+1:], " \t")
	}
	return "", pattern
}

// wildcard is the position of a wildcard in a path.
type wildcard struct {
	segment int  // index of the path segment
	rest    bool // set for {name...}, which also matches later segments
}

func wildcardOf(pattern, name string) (w wildcard, ok bool) {
	_, rest := split(pattern)
	_, segments, _ := strings.Cut(rest, "/")
	for i, s := range strings.Split(segments, "/") {
		if s == "{"+name+"}" || s == "{"+name+"...}" {
			return wildcard{i, strings.HasSuffix(s, "...}")}, true
		}
	}
	return w, false
}

// value returns the unescaped value of w in the path of r, or "" if the path is too short.
func (w wildcard) value(r *http.Request) string {
	p := strings.TrimPrefix(cleanPath(r.URL.EscapedPath()), "/")
	for range w.segment {
		_, p, _ = strings.Cut(p, "/")
	}
	if !w.rest {
		p, _, _ = strings.Cut(p, "/")
	}
	if value, err := url.PathUnescape(p); err == nil {
		return value
	}
	return p
}

// cleanPath returns the path that ServeMux matches for a request with path p.
func cleanPath(p string) string {
	clean := path.Clean("/" + p)
	if strings.HasSuffix(p, "/") && clean != "/" {
		clean += "/"
	}
	return clean
}

// readings returns r with each path that routers other than ServeMux may read, or nil if all routers read the
// same path. ServeMux redirects /search/../healthz to /healthz, other routers serve it below /search/, and
// some read %2F as a slash. Without all readings, a client could reach a route without the route's limits.
func readings(r *http.Request) (all []*http.Request) {
	escaped := r.URL.EscapedPath()
	if isPlain(escaped) {
		return nil
	}
	var segments []string
	for segment := range strings.SplitSeq(r.URL.Path, "/") {
		segments = append(segments, url.PathEscape(segment))
	}
	decoded := strings.Join(segments, "/")
	for _, p := range []string{literal(escaped), literal(decoded), cleanPath(decoded)} {
		unescaped, err := url.PathUnescape(p)
		if err != nil {
			continue // never happens: EscapedPath and PathEscape made p
		}
		other := *r
		other.URL = &url.URL{Host: r.URL.Host, Path: unescaped, RawPath: p}
		all = append(all, &other)
	}
	return all
}

// isPlain reports whether every router reads the same segments in p.
func isPlain(p string) bool {
	contains := func(part string) bool { return strings.Contains(p, part) }
	return strings.HasPrefix(p, "/") && !contains("//") && !contains("/.") &&
		!(contains("%2") && (contains("%2F") || contains("%2f") || contains("%2E") || contains("%2e")))
}

// unnamed is a segment that only wildcards match.
const unnamed = "%00"

// literal returns p as read by a router for which the segments "", "." and ".." are names.
func literal(p string) string {
	segments := strings.Split(strings.TrimPrefix(p, "/"), "/")
	for i, segment := range segments {
		name, _ := url.PathUnescape(segment)
		ends := name == "" && i == len(segments)-1 // p ends with a slash
		if !ends && (name == "" || name == "." || name == "..") {
			segments[i] = unnamed
		}
	}
	return "/" + strings.Join(segments, "/")
}

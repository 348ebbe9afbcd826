package rules

import (
	"fmt"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"
)

// matcher finds the pattern that a request matches. It asks an http.ServeMux that serves nothing, and
// does not change the request.
type matcher struct{ mux *http.ServeMux }

func newMatcher() matcher { return matcher{http.NewServeMux()} }

// of returns the pattern that r matches, or "". A path that ServeMux would redirect, such as //a to
// /a, matches the pattern of the target.
func (m matcher) of(r *http.Request) string {
	_, pattern := m.mux.Handler(r)
	if r.Method == http.MethodConnect && strings.HasPrefix(pattern, "/") && strings.HasSuffix(pattern, "/") {
		// It may be the path that ServeMux would redirect to.
		to := &http.Request{Method: r.Method, Host: r.Host, URL: &url.URL{Path: pattern}}
		_, pattern = m.mux.Handler(to)
	}
	return pattern
}

var (
	wildcardForm = regexp.MustCompile(`\{([^{}$.]+)(\.\.\.)?\}`)
	registeredAt = regexp.MustCompile(` \(registered at [^)]*\)`) // always the same line of add
)

// add adds a pattern and returns the names of its wildcards. It returns an error if ServeMux refuses
// the pattern or no request can match it.
func (m matcher) add(pattern string) (wildcards []string, err error) {
	defer func() {
		if p := recover(); p != nil {
			text := registeredAt.ReplaceAllString(fmt.Sprint(p), "")
			wildcards, err = nil, fmt.Errorf("is no pattern of http.ServeMux: %s", strings.ReplaceAll(text, "\n", " "))
		}
	}()
	method, rest := split(pattern)
	host, _, _ := strings.Cut(rest, "/")
	at := strings.TrimPrefix(rest, host)
	switch {
	case method != strings.ToUpper(method):
		return nil, fmt.Errorf("matches nothing: the method %s is not in capital letters", method)
	case strings.Contains(host, ":"):
		return nil, fmt.Errorf("matches nothing: the host %s has a port, without which hosts are compared", host)
	case host != strings.ToLower(host):
		return nil, fmt.Errorf("matches nothing: the host %s is not in small letters, as clients send it", host)
	case method == "" && at != "" && at != cleanPath(at):
		return nil, fmt.Errorf("matches nothing: paths are compared without empty and dot segments, as %s",
			cleanPath(at))
	}
	m.mux.Handle(pattern, http.NotFoundHandler())
	for _, found := range wildcardForm.FindAllStringSubmatch(rest, -1) {
		wildcards = append(wildcards, found[1])
	}
	return wildcards, nil
}

// split splits a pattern into its method, which may be missing, and the rest.
func split(pattern string) (method, rest string) {
	if i := strings.IndexAny(pattern, " \t"); i >= 0 {
		return pattern[:i], strings.TrimLeft(pattern[i+1:], " \t")
	}
	return "", pattern
}

// wildcard finds the value of a wildcard in a path that matches a pattern.
type wildcard struct {
	segment int  // of the path, from 0
	rest    bool // {name...}: this segment and all that follow
}

// wildcardOf finds the wildcard name in pattern.
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

// of returns the unescaped value in a request that matches; "" if the path is too short.
func (w wildcard) of(r *http.Request) string {
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

// cleanPath returns the path that ServeMux matches in place of p.
func cleanPath(p string) string {
	clean := path.Clean("/" + p)
	if strings.HasSuffix(p, "/") && clean != "/" {
		clean += "/"
	}
	return clean
}

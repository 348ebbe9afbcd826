package rules

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/yuzhi-go/yuzhi/hybrid/httplimit"
)

// Routers read some paths differently. http.ServeMux redirects /search/../healthz to /healthz, and
// others serve it as a path below /search/; for some %2F is a slash. If one reading decided, a client
// could make one route serve a request that another route limits, or none. Such requests are rare, and
// are limited by the rules of all routes that may serve them.

// readings returns r as routers other than ServeMux may read it; nil if all read its path alike.
func readings(r *http.Request) (all []*http.Request) {
	escaped := r.URL.EscapedPath()
	if isPlain(escaped) {
		return nil
	}
	var segments []string
	for _, segment := range strings.Split(r.URL.Path, "/") {
		segments = append(segments, url.PathEscape(segment))
	}
	decoded := strings.Join(segments, "/")
	for _, p := range []string{literal(escaped), literal(decoded), cleanPath(decoded)} {
		unescaped, err := url.PathUnescape(p)
		if err != nil {
			continue // never, as EscapedPath and PathEscape made p
		}
		other := *r
		other.URL = &url.URL{Host: r.URL.Host, Path: unescaped, RawPath: p}
		all = append(all, &other)
	}
	return all
}

// isPlain reports whether every router reads the segments of p alike.
func isPlain(p string) bool {
	odd := func(what string) bool { return strings.Contains(p, what) }
	return strings.HasPrefix(p, "/") && !odd("//") && !odd("/.") &&
		!(odd("%2") && (odd("%2F") || odd("%2f") || odd("%2E") || odd("%2e")))
}

// unnamed is a segment that only wildcards match.
const unnamed = "%00"

// literal returns p for a router that takes the segments "", "." and ".." for names.
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

// ofAll selects the rules of r and of others, its other readings. Each rule and key gives tokens once:
// the highest cost of the routes, capped at the most that every rule can admit.
func (s *set) ofAll(r *http.Request, others []*http.Request) (httplimit.Selection, error) {
	returns := false
	defer func() {
		if !returns { // a KeyFunc of Config.Keys panics, so Done does not run
			s.release()
		}
	}()
	selected, most := httplimit.Selection{Done: s.release}, int64(costMax)
	var routes, keys []string
	for _, reading := range append([]*http.Request{r}, others...) {
		pattern := s.matcher.of(reading)
		if slices.Contains(routes, pattern) {
			continue
		}
		routes = append(routes, pattern)
		route := s.routes[pattern]
		for _, rule := range route.Rules {
			key, err := rule.Key(reading)
			if err != nil {
				returns = true
				return selected, err
			}
			id := rule.Name + " " + key // names have no spaces
			if i := slices.Index(keys, id); i >= 0 {
				selected.Rules[i].Class = max(selected.Rules[i].Class, rule.Class)
				continue
			}
			rule.Key = func(*http.Request) (string, error) { return key, nil }
			selected.Rules, keys = append(selected.Rules, rule), append(keys, id)
		}
		if len(route.Rules) > 0 {
			selected.Cost, most = max(selected.Cost, route.Cost), min(most, route.most)
		}
	}
	selected.Cost, returns = min(selected.Cost, most), true
	return selected, nil
}

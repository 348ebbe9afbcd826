package rules

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// foreign lists texts that have a meaning in a URL or in the patterns of other routers. ServeMux matches such
// texts literally, so a pattern with one would limit nothing. $1 in a remedy is the first group of text.
var foreign = []struct {
	text   *regexp.Regexp
	remedy string
}{
	{regexp.MustCompile(`^\w+://`), "a pattern has no scheme: leave it out"},
	{regexp.MustCompile(`^[^/]*\*[^/]*|^\.[^/]*`),
		"a host cannot have a wildcard: write a route for each host, or leave the host out"},
	{regexp.MustCompile(`^([^/:]+):\d+`), "a host is compared without its port: write $1"},
	{regexp.MustCompile("[\\^|\\\\[\\]\"`]" + `|\.\+|\$$`), "a pattern is not a regular expression: " +
		"write {name} for one segment, {rest...} for all later segments, or a route for each alternative; " +
		"percent-encode a literal character"},
	{regexp.MustCompile(`[?#].*`), "a pattern has no optional part, query or fragment: leave it out"},
	{regexp.MustCompile(`\*+`), "ServeMux has no such wildcard: end the path with / or {rest...} for all " +
		"later segments, or write {name} for one segment; %2A is the character"},
	{regexp.MustCompile(`/\.\.\.(?:/|$)`), "write / or /{rest...} for all later segments"},
	{regexp.MustCompile(`/:([\pL_][\pL\pN_]*)`), "write /{$1}; %3A is the character"},
	{regexp.MustCompile(`<(?:\w+:)?(\w*)[^<>/]*>?|>`),
		"write {$1}; %3C and %3E are the characters"},
	{regexp.MustCompile(`,/`), "write a route for each path; %2C is the character"},
}

var (
	methodForm = regexp.MustCompile(`^[A-Z-]+$`)
	hostForm   = regexp.MustCompile(`^([a-z0-9_-]+(\.[a-z0-9_-]+)*\.?)?$`)
)

// checkPattern returns an error for a pattern that ServeMux would accept with an unintended meaning.
func checkPattern(pattern string) error {
	method, rest := split(pattern)
	host, _, _ := strings.Cut(rest, "/")
	at := strings.TrimPrefix(rest, host)
	_, badEscape := url.PathUnescape(at)
	_, notRange := netip.ParsePrefix(rest)
	switch isPath := strings.Contains(method, "/"); {
	case method != "" && !isPath && !methodForm.MatchString(method), method == "ANY", method == "ALL":
		return fmt.Errorf("has the method %q: write one method in upper case, such as GET, a route for "+
			"each of several, or none for all", method)
	case isPath || strings.ContainsAny(rest, " \t"):
		return errors.New("has a space in its path or after it: leave it out, or write %20")
	case notRange == nil:
		return errors.New("is a range of addresses: list proxies in trusted; the key address counts clients")
	}
	for _, f := range foreign {
		if found := f.text.FindString(rest); found != "" {
			return fmt.Errorf("has %q: %s", found, f.text.ReplaceAllString(found, f.remedy))
		}
	}
	switch {
	case host != strings.ToLower(host):
		return fmt.Errorf("has the host %q, must be in lower case: write %s, or a space after a method",
			host, strings.ToLower(host))
	case !hostForm.MatchString(host):
		return fmt.Errorf("has the host %q, must be of a-z, 0-9, '-', '_' and '.'; write other letters in "+
			"the form xn--", host)
	case badEscape != nil:
		return errors.New("has a % that begins no escape: write %25 for the character itself")
	case method != http.MethodConnect && at != "" && at != cleanPath(at):
		return fmt.Errorf("matches nothing, because ServeMux cleans the path of a request: write %s",
			cleanPath(at))
	}
	return nil
}

var (
	registeredAt = regexp.MustCompile(` \(registered at [^)]*\)`) // always the source line of matcher.add
	conflictForm = regexp.MustCompile(`^pattern ".*" conflicts with pattern (".*"):\s`)
)

// refused returns an error with a remedy for a pattern that ServeMux has refused. text is ServeMux's message.
func refused(pattern, text string) error {
	text = registeredAt.ReplaceAllString(text, "")
	found := conflictForm.FindStringSubmatch(text)
	if found == nil {
		return fmt.Errorf("is not a valid http.ServeMux pattern: %s; write [METHOD ][HOST]/PATH, where a "+
			"segment may be {name}, and the last segment also {name...} or {$}", text)
	}
	other, _ := strconv.Unquote(found[1])
	narrow, wide := other, pattern // wide matches fewer methods and more paths than narrow
	switch {
	case strings.Contains(text, "matches the same requests"):
		return fmt.Errorf("matches the same requests as %q: leave one of them out", other)
	case strings.Contains(text, "matches more methods"):
		narrow, wide = pattern, other
	case !strings.Contains(text, "matches fewer methods"):
		return fmt.Errorf("conflicts with %q: some requests match both, and neither is more specific; "+
			"replace one pattern by a route for each value of its wildcard", other)
	}
	method, _ := split(wide)
	_, rest := split(narrow)
	return fmt.Errorf("conflicts with %q: one has a method, the other a narrower path, so neither is more "+
		"specific; replace %q by %q, or %q by a route for each method",
		other, wide, method+" "+rest, narrow)
}

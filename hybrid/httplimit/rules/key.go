package rules

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/yuzhi-go/yuzhi/hybrid/httplimit"
)

// The key forms of a rule. A name follows headerForm and pathForm.
const (
	allForm, addressForm, routeForm = "all", "address", "route"
	headerForm, pathForm            = "header:", "path:"
)

var (
	fieldName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$") // RFC 9110, section 5.1
	keyName   = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)             // a name in Config.Keys
)

// removedFields are the header fields that net/http moves from Request.Header to fields of Request.
var removedFields = []string{"Host", "Trailer", "Transfer-Encoding"}

// checkForm returns an error for an invalid key form. keys are Config.Keys, or nil if Config is unknown.
func checkForm(form string, keys map[string]httplimit.KeyFunc) error {
	field, isHeader := strings.CutPrefix(form, headerForm)
	wildcard, isPath := strings.CutPrefix(form, pathForm)
	switch {
	case isHeader && slices.Contains(removedFields, http.CanonicalHeaderKey(field)):
		return fmt.Errorf("is %q, which net/http removes from the header; "+
			"read r.%s in a function in Config.Keys", form,
			strings.ReplaceAll(http.CanonicalHeaderKey(field), "-", ""))
	case isHeader && !fieldName.MatchString(field):
		return fmt.Errorf("is %q, but %q is not a valid field name", form, field)
	case isPath && wildcard == "":
		return fmt.Errorf("is %q, must name a wildcard", form)
	case isReserved(form), isHeader, isPath, keys[form] != nil, keys == nil && keyName.MatchString(form):
		return nil
	}
	return fmt.Errorf(
		"is %q, must be all, address, route, header:NAME, path:NAME or a name in Config.Keys (%s)",
		form, listed(keys))
}

// checkName returns an error for a name in Rule.Named that no request can have.
func (t Table) checkName(rule, name string) error {
	forms := t.Rules[rule].Key
	form := forms[len(forms)-1]
	field, isHeader := strings.CutPrefix(form, headerForm)
	wildcard, isPath := strings.CutPrefix(form, pathForm)
	switch {
	case form == allForm:
		return errors.New("cannot name a value of the last key form, all, which has one value: " +
			"write another form last")
	case form == routeForm && !slices.Contains(t.Routes[name].Rules, rule):
		return fmt.Errorf("must name a value of the last key form, route: the pattern of a route that "+
			"has the rule %s", rule)
	case name == "":
		return errors.New("is empty, but a request with an empty key is refused")
	case !isHeader && !isPath && form != addressForm:
		return nil
	}
	// A request with name as its address, header field or wildcard must have the key name.
	r := &http.Request{RemoteAddr: strings.TrimSuffix(name, "/64"), Header: http.Header{}}
	r.Header.Set(field, strings.TrimSpace(name))
	path, err := url.PathUnescape(name)
	if err != nil {
		path = name
	}
	r.URL = &url.URL{Path: "/" + path, RawPath: "/" + name}
	key, err := keyMaker{pattern: "/{" + wildcard + "...}"}.formFunc(form)(r)
	switch {
	case err != nil && form == addressForm:
		return errors.New("is not an address; write an IPv4 address or an IPv6 /64")
	case err != nil:
		return fmt.Errorf("is not a value of %s", form)
	case key != name:
		return fmt.Errorf("matches no request; write %q, which is the key of such requests", key)
	}
	return nil
}

func isReserved(form string) bool { return form == allForm || form == addressForm || form == routeForm }

// keyMaker makes the KeyFuncs of the rules of one route.
type keyMaker struct {
	pattern string
	trusted []netip.Prefix
	keys    map[string]httplimit.KeyFunc // Config.Keys
}

func (m keyMaker) keyFunc(forms []string) httplimit.KeyFunc {
	var all []httplimit.KeyFunc
	for _, form := range forms {
		all = append(all, m.formFunc(form))
	}
	if len(all) == 1 {
		return all[0]
	}
	return httplimit.Combine(all...)
}

// lastPart returns the last part of a key that httplimit.Combine made, and "" for a key of a former Table, in
// which the rule had one key form.
func lastPart(key string) (part string) {
	for key != "" {
		size, rest, _ := strings.Cut(key, ":")
		n, err := strconv.Atoi(size)
		if err != nil || n < 0 || n >= len(rest) {
			return ""
		}
		part, key = rest[:n], rest[n+1:]
	}
	return part
}

func (m keyMaker) formFunc(form string) httplimit.KeyFunc {
	switch form {
	case allForm:
		return httplimit.OneKey
	case addressForm:
		return httplimit.ClientIP(m.trusted...)
	case routeForm:
		return func(*http.Request) (string, error) { return m.pattern, nil }
	}
	if field, ok := strings.CutPrefix(form, headerForm); ok {
		return httplimit.Header(field)
	}
	if name, ok := strings.CutPrefix(form, pathForm); ok {
		where, _ := wildcardOf(m.pattern, name)
		return func(r *http.Request) (string, error) {
			value := where.value(r)
			if value == "" {
				return "", fmt.Errorf("%w: path wildcard %s is empty", httplimit.ErrNoKey, name)
			}
			return value, nil
		}
	}
	return m.keys[form]
}

const wantKey = "all, address, route, header:NAME, path:NAME, a name in Config.Keys, or a list of these"

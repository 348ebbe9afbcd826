package rules

import (
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"strings"

	"github.com/yuzhi-go/yuzhi/hybrid/httplimit"
)

// The key forms of a rule; headerForm and pathForm are followed by a name.
const (
	allForm, addressForm, routeForm = "all", "address", "route"
	headerForm, pathForm            = "header:", "path:"
)

var (
	fieldName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$") // RFC 9110, section 5.1
	keyName   = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)             // of Config.Keys
)

// checkForm returns an error for a wrong key form. keys are Config.Keys, or nil if they are unknown.
func checkForm(form string, keys map[string]httplimit.KeyFunc) error {
	field, isHeader := strings.CutPrefix(form, headerForm)
	wildcard, isPath := strings.CutPrefix(form, pathForm)
	switch {
	case isHeader && strings.EqualFold(field, "Host"):
		return fmt.Errorf("is %q, which net/http does not keep among the header fields; "+
			"return r.Host from a function in Config.Keys", form)
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

// isReserved reports whether a key form is a word of this package.
func isReserved(form string) bool { return form == allForm || form == addressForm || form == routeForm }

// keyMaker makes the KeyFuncs of the rules of one route.
type keyMaker struct {
	pattern string
	trusted []netip.Prefix
	keys    map[string]httplimit.KeyFunc // Config.Keys
}

// of returns the KeyFunc of a rule with these valid forms.
func (m keyMaker) of(forms []string) httplimit.KeyFunc {
	var all []httplimit.KeyFunc
	for _, form := range forms {
		all = append(all, m.one(form))
	}
	if len(all) == 1 {
		return all[0]
	}
	return httplimit.Combine(all...)
}

func (m keyMaker) one(form string) httplimit.KeyFunc {
	switch form {
	case allForm:
		return httplimit.All
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
			value := where.of(r)
			if value == "" {
				return "", fmt.Errorf("%w: path wildcard %s is empty", httplimit.ErrNoKey, name)
			}
			return value, nil
		}
	}
	return m.keys[form]
}

package rules

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/httplimit"
	"github.com/yuzhi-go/yuzhi/internal/violation"
	"github.com/yuzhi-go/yuzhi/internal/yamlfile"
)

// Parse reads a Table from YAML or JSON. name is the name of the file in errors. The error joins the first
// ten mistakes in the order of lines and has the number of further mistakes. Parse accepts any key form that
// may be a name in Config.Keys; New, Open and Set reject a name that is not in Config.Keys.
func Parse(name string, text []byte) (Table, error) { return parse(name, text, hybrid.Config{}, nil) }

func parse(name string, text []byte, base hybrid.Config, keys map[string]httplimit.KeyFunc) (Table, error) {
	r := format.NewReader(name, ErrInvalid)
	var t Table
	if r.Read("", text, reflect.ValueOf(&t).Elem()) {
		for _, path := range slices.Sorted(maps.Keys(r.Zeros)) { // a Route.Cost of 0 means 1 in Go only
			if strings.HasPrefix(path, "routes") && strings.HasSuffix(path, ".cost") {
				r.Bad(path, r.Zeros[path], "is 0, %s", costLeast)
			}
		}
		for _, v := range violation.All(t.check(base, keys)) {
			if !r.Unread(v.Path) {
				r.Add(v.Path, r.PlaceOf(v.Path), violation.Text(v), v)
			}
		}
		switch { // a truncated file must not remove all limits
		case len(r.Problems()) > 0:
		case t.Rules == nil:
			r.Bad("rules", r.PlaceOf("rules"), "is missing or has no value; write {} for no rules")
		case len(t.Rules) > 0 && len(t.Routes) == 0:
			r.Bad("routes", r.PlaceOf("routes"), "is empty, so the rules limit nothing")
		}
	}
	return t, errorOf(r.Problems(), name)
}

func errorOf(found []*yamlfile.Problem, name string) error {
	var all []error
	for _, p := range found[:min(mistakesMax, len(found))] {
		if text := []rune(p.Text); len(text) > mistakeLength {
			p.Text = string(text[:mistakeLength]) + "…"
		}
		all = append(all, fmt.Errorf("%w: %w", ErrInvalid, p))
	}
	if more := len(found) - mistakesMax; more > 0 {
		all = append(all, fmt.Errorf("%w: %s: %d more mistakes", ErrInvalid, name, more))
	}
	return errors.Join(all...)
}

const (
	wantLimits = "a list of limits, like [10/s burst 20, 1000/h]"
	wantRules  = "a list of names of rules; [] means no limit"
)

var format = &yamlfile.Format{
	Name: strings.ToLower,
	Words: map[reflect.Type][]string{reflect.TypeFor[hybrid.Fallback](): {
		hybrid.FallbackLocalShare: "local_share", hybrid.FallbackDeny: "deny", hybrid.FallbackAllowAll: "allow_all",
	}},
	Wanted: map[reflect.Type]string{
		reflect.TypeFor[[]netip.Prefix](): "a list of address ranges, like [10.0.0.0/8]",
		reflect.TypeFor[[]hybrid.Limit](): wantLimits,
		reflect.TypeFor[netip.Prefix]():   wantRange,
		reflect.TypeFor[hybrid.Limit]():   "a limit, like 10/s burst 20",
		reflect.TypeFor[[]float64]():      "a list of shares, like [0.2, 0.5]",
		reflect.TypeFor[float64]():        "a share, 0 to below 1",
		reflect.TypeFor[string]():         "a text",
		reflect.TypeFor[bool]():           "true or false",
		reflect.TypeFor[int]():            "a whole number",
		reflect.TypeFor[int64]():          "a whole number",
	},
	Parse: map[reflect.Type]func(string) (any, error){
		reflect.TypeFor[netip.Prefix](): func(text string) (any, error) { return prefixOf(text) },
	},
	Fields: map[string]yamlfile.Field{
		"Rule.key":    {Want: wantKey, Required: true, Lone: true},
		"Rule.limits": {Want: wantLimits, Required: true},
		"Route.rules": {Want: wantRules, Required: true},
		"Route.cost":  {Want: "a whole number, at least 1"},
		"Route.class": {Want: "a whole number, 0 or more"},
	},
}

const wantRange = "an address range, like 10.0.0.0/8 or fd00::/8"

// prefixOf reads a range of addresses, or a single address.
func prefixOf(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return a.Prefix(a.BitLen())
	}
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return p, fmt.Errorf("is %.60q, must be %s", text, wantRange)
	case p != p.Masked():
		return p, fmt.Errorf("is %q, which is an address within the range %v", text, p.Masked())
	}
	return p, nil
}

package rules

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/httplimit"
	"github.com/yuzhi-go/yuzhi/internal/yamlfile"
)

const everything = `version: 3
trusted: [10.0.0.0/8, "fd00::1"]
rules:
  everybody: {key: all, limits: [1000/s], priorities: [0.2, 0.5]}
  address: {key: address, limits: [10/s burst 20, 1000/h], shadow: true}
  tenant: {key: ["header:X-Tenant", route], limits: [unlimited], fallback: deny}
  named: {key: "header:X-Tenant", limits: [20/s], named: {acme: [100/s, 5000/m], no body: [blocked]}}
  bucket: {key: path:bucket, limits: [blocked], fallback: local_share}
routes:
  POST /upload/{bucket}: {cost: 10, rules: [everybody, address, tenant, named], class: 2}
  example.com/{bucket}/: {rules: [bucket]}
  "GET /healthz": {rules: []}
  /: {rules: [everybody]}
`

func everythingMeans() Table {
	return Table{
		Version: 3,
		Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::1/128")},
		Rules: map[string]Rule{
			"everybody": {Key: []string{"all"}, Priorities: []float64{0.2, 0.5},
				Limits: []hybrid.Limit{hybrid.PerSecond(1000)}},
			"address": {Key: []string{"address"}, Shadow: true,
				Limits: []hybrid.Limit{hybrid.PerSecond(10).WithBurst(20), hybrid.PerHour(1000)}},
			"tenant": {Key: []string{"header:X-Tenant", "route"}, Limits: []hybrid.Limit{hybrid.Unlimited},
				Fallback: new(hybrid.FallbackDeny)},
			"named": {Key: []string{"header:X-Tenant"}, Limits: []hybrid.Limit{hybrid.PerSecond(20)},
				Named: map[string][]hybrid.Limit{
					"acme": {hybrid.PerSecond(100), hybrid.PerMinute(5000)}, "no body": {hybrid.Blocked},
				}},
			"bucket": {Key: []string{"path:bucket"}, Limits: []hybrid.Limit{hybrid.Blocked},
				Fallback: new(hybrid.FallbackLocalShare)},
		},
		Routes: map[string]Route{
			"POST /upload/{bucket}": {
				Cost: 10, Rules: []string{"everybody", "address", "tenant", "named"}, Class: 2,
			},
			"example.com/{bucket}/": {Rules: []string{"bucket"}},
			"GET /healthz":          {},
			"/":                     {Rules: []string{"everybody"}},
		},
	}
}

// A file has every field of a Table.
func TestAFileIsATable(t *testing.T) {
	got, err := Parse("rules.yaml", []byte(everything))
	noErr(t, err)
	check(t, reflect.DeepEqual(got, everythingMeans()), "%+v, want\n%+v", got, everythingMeans())
}

// asJSON is the table of everything in JSON.
const asJSON = `{
	"version": 3,
	"trusted": ["10.0.0.0\/8", "fd00::1"],
	"rules": {
		"everybody": {"key": "all", "limits": ["1000/s"], "priorities": [2e-1, 0.5]},
		"address": {"key": "address", "limits": ["10/s burst 20", "1000/h"], "shadow": true},
		"tenant":{"key":["header:X-Tenant","route"],"limits":["unlimited"],"fallback":"deny"},
		"named": {"key": "header:X-Tenant", "limits": ["20/s"],
			"named": {"acme": ["100/s", "5000/m"], "no\u0020body": ["blocked"]}},
		"bucket": {"key": ["path:bucket"], "limits": ["blocked"], "fallback": "\u006cocal_share"}
	},
	"routes": {
		"POST /upload/{bucket}":
			{"cost": 10, "rules": ["everybody", "address", "tenant", "named"], "class": 2},
		"example.com/{bucket}/": {"rules": ["bucket"]},
		"GET /healthz": {"rules": []},
		"/": {"rules"
			:["everybody"]}
	}
}`

// JSON is YAML, with tabs, escapes and line ends wherever JSON allows them. The only known exception
// is refused: two escapes for one character beyond U+FFFF.
func TestAFileMayBeJSON(t *testing.T) {
	must(t, json.Valid([]byte(asJSON)), "the test's text is no JSON")
	for _, end := range []string{"\n", "\r\n", ""} {
		text := strings.ReplaceAll(asJSON, "\n", end)
		got, err := Parse("rules.json", []byte(text))
		noErr(t, err)
		check(t, reflect.DeepEqual(got, everythingMeans()), "%+v, want\n%+v", got, everythingMeans())
	}
	_, err := Parse("rules.json", []byte(`{"routes": {"/\ud83d\ude00": {"rules": []}}}`))
	check(t, err != nil && strings.Contains(err.Error(), "rules.json:1:"), "%v", err)
}

// wrong has tables and the message of every violation in them, with its place, its value and its bound.
var wrong = []struct{ name, text, errors string }{
	{"unknown fields", `
versoin: 1
rules:
  a: {key: all, limits: [1/s], limit: 3}
routes:
  /: {rules: [a], burst: 3}
`, `2:1: versoin: unknown field; did you mean version?
4:32: rules.a.limit: unknown field; did you mean rules.a.limits?
6:19: routes["/"].burst: unknown field, must be one of cost, rules, class`},
	{"wrong limits", `
rules:
  a:
    key: all
    limits:
      - 10/fortnight
      - 0/s
      - 10/s burst -1
  b: {key: all, limits: []}
  c: {key: all, limits: [1/s, 2/s, 3/s, 4/s, 5/s]}
  d: {key: all, limits: 1/s}
  e: {key: all, limits: [{rate: 1}]}
  f: {key: all, limits: [9007199254740993/s]}
`, `6:9: rules.a.limits[0]: "10/fortnight": period "fortnight" is not a duration (want ...
7:9: rules.a.limits[1]: "0/s": tokens 0 must be at least 1 (want ...
8:9: rules.a.limits[2]: "10/s burst -1": burst -1 must be at least 1 (want ...
9:17: rules.b.limits: has 0 entries, must have 1 to 4, such as 10/s, unlimited or blocked
10:17: rules.c.limits: has 5 entries, must have 1 to 4, such as 10/s, unlimited or blocked
11:25: rules.d.limits: is "1/s", must be a list of limits, like [10/s burst 20, 1000/h]
12:26: rules.e.limits[0]: is a mapping, must be a limit, like 10/s burst 20
13:26: rules.f.limits[0]: 9007199254740993/s: cannot be held exactly: ...`},
	{"wrong keys", `
rules:
  a: {key: user, limits: [1/s]}
  b: {key: "header:X User", limits: [1/s]}
  c: {key: "path:", limits: [1/s]}
  d: {key: [all, {}], limits: [1/s]}
  e: {limits: [1/s]}
  f: {key: [], limits: [1/s]}
  g: {key: 'user ', limits: [1/s]}
`, `3:12: rules.a.key: is "user", must be all, address, route, header:NAME, path:NAME or a name in ...
4:12: rules.b.key: is "header:X User", but "X User" is not a valid field name
5:12: rules.c.key: is "path:", must name a wildcard
6:18: rules.d.key[1]: is a mapping, must be a text
7:6: rules.e.key: is missing, must be all, address, route, header:NAME, path:NAME, a name in Config.Keys, ...
8:7: rules.f.key: is empty, must be all, ...
9:12: rules.g.key: is "user ", must be all, ...`},
	{"wrong versions and ranges", `
version: -1
trusted: [10.1.0.0/8, ten, 10.0.0.0/33]
rules: {}
`, `2:10: version: is -1, must be 0 to 4503599627370495
3:11: trusted[0]: is "10.1.0.0/8", which is an address within the range 10.0.0.0/8
3:23: trusted[1]: is "ten", must be an address range, like 10.0.0.0/8 or fd00::/8
3:28: trusted[2]: is "10.0.0.0/33", must be an address range, like 10.0.0.0/8 or fd00::/8`},
	{"wrong rules", `
rules:
  has space: {key: all, limits: [1/s]}
  p: {key: all, limits: [2/s], priorities: [0.5, 0.2, 2]}
  q: {key: all, limits: [1/s], priorities: [0.5]}
  s: {key: all, limits: [1/s], shadow: yes, fallback: perhaps}
  n:
  l: [1/s]
`, `3:3: rules["has space"].name: is "has space", must be at most 64 characters of ...
4:50: rules.p.priorities[1]: is 0.2, must be below 1 and above the previous one (0.5)
5:45: rules.q.priorities[0]: is 0.5, which leaves class 1 nothing of 1/s: the burst must be above 1
6:40: rules.s.shadow: is "yes", must be true or false
6:55: rules.s.fallback: is "perhaps", must be local_share or deny or allow_all
7:5: rules.n.key: is missing, must be all, ...
7:5: rules.n.limits: is missing, must be a list of limits, like [10/s burst 20, 1000/h]
8:6: rules.l: is a list, must be a mapping with the fields key, limits, ...`},
	{"wrong routes", `
rules:
  a: {key: all, limits: [5/s], priorities: [0.5]}
  b: {key: path:bucket, limits: [5/s]}
  d: {key: all, limits: [5/s]}
routes:
  /a: {rules: [a, c, a]}
  /b/{id}: {rules: [b]}
  /b/{bucket...}: {rules: [b]}
  /c: {rules: [a], cost: 0}
  /d: {rules: [a], cost: 6}
  /e: {rules: [a], cost: -1}
  /f: {rules: [a], cost: 1.5}
  /g: {rules: [a], cost: "1"}
  /h: {rules: [a], class: 2}
  /i: {rules: [d], class: 1}
`, `7:19: routes["/a"].rules[1]: is "c", must be one of the rules (a, b, d)
7:22: routes["/a"].rules[2]: is "a", must not repeat [0]: ...
8:21: routes["/b/{id}"].rules[0]: is "b", but its key path:bucket needs ...
10:26: routes["/c"].cost: is 0, must be at least 1; write no rules for a route without limits
11:26: routes["/d"].cost: is 6, must be at most 5: rules.a.limits (5/s) admits no more in class 0
12:26: routes["/e"].cost: is -1, must be at least 1; ...
13:26: routes["/f"].cost: is "1.5", must be a whole number, at least 1
14:26: routes["/g"].cost: is the text "1", must be a whole number, at least 1
15:27: routes["/h"].class: is 2, must be 0 to 1, ...
16:27: routes["/i"].class: is 1, must be 0 to 0, the most priorities of a rule of the route`},
	{"routes with wrong rules", `
rules:
  a: {key: all, limits: [5/s], priorities: [0.5]}
routes:
  /j: {}
  /k: {rules: [a], class: 1, cost: 3}
  /l: {rules: a}
`, `5:7: routes["/j"].rules: is missing, must be a list of names of rules; [] means no limit
6:36: routes["/k"].cost: is 3, must be at most 2: rules.a.limits (5/s) admits no more in class 1
7:15: routes["/l"].rules: is "a", must be a list of names of rules; [] means no limit`},
	{"wrong patterns", `
routes:
  "GET /{a}": {rules: []}
  "GET /{b}": {rules: []}
  get /a: {rules: []}
  a:80/: {rules: []}
  x: {rules: []}
  /{a: {rules: []}
  "": {rules: []}
  Example.com/: {rules: []}
  /a//b: {rules: []}
`, `4:3: routes["GET /{b}"]: matches the same requests as "GET /{a}": ...
5:3: routes["get /a"]: has the method "get": write one method in upper case, such as GET, ...
6:3: routes["a:80/"]: has "a:80": a host is compared without its port: write a
7:3: routes.x: is not a valid http.ServeMux pattern: parsing "x": at offset 0: host/path missing /; ...
8:3: routes["/{a"]: is not a valid http.ServeMux pattern: parsing "/{a": at offset 1: ...
9:3: routes[""]: is not a valid http.ServeMux pattern: http: invalid pattern; write ...
10:3: routes["Example.com/"]: has the host "Example.com", must be in lower case: write example.com, or a space after...
11:3: routes["/a//b"]: matches nothing, because ServeMux cleans ...`},
	{"fields that net/http removes", `
rules:
  a: {key: header:host, limits: [1/s]}
  b: {key: header:Transfer-Encoding, limits: [1/s]}
  c: {key: header:trailer, limits: [1/s]}
`, `3:12: rules.a.key: is "header:host", which net/http removes from the header; read r.Host in a function in Config.Keys
4:12: rules.b.key: is "header:Transfer-Encoding", which net/http removes from ...
5:12: rules.c.key: is "header:trailer", which net/http removes from ...`},
	{"wrong named limits", `
rules:
  a: {key: all, limits: [5/s], named: {all: [1/s]}}
  b: {key: ["header:X-User", all], limits: [5/s], named: {ann: [1/s]}}
  c: {key: "header:X-User", limits: [5/s], named: {ann: [], bob: 1/s, cat: [0/s], dan: }}
  d: {key: "header:X-User", limits: [5/s], named: {"": [1/s], " eve": [1/s], "ann ": [1/s], " ": [1/s]}}
`, `3:40: rules.a.named.all: cannot name a value of the last key form, all, which has one value: ...
4:59: rules.b.named.ann: cannot name a value of the last key form, all, which has one value: ...
5:52: rules.c.named.ann: has 0 entries, must have 1 to 4, ...
5:66: rules.c.named.bob: is "1/s", must be a list of limits, like [10/s burst 20, 1000/h]
5:77: rules.c.named.cat[0]: "0/s": tokens 0 must be at least 1 ...
5:88: rules.c.named.dan: has 0 entries, must have 1 to 4, ...
6:52: rules.d.named[""]: is empty, but a request with an empty key is refused
6:63: rules.d.named[" eve"]: matches no request; write "eve", which is the key of such requests
6:78: rules.d.named["ann "]: matches no request; write "ann", which is the key of such requests
6:93: rules.d.named[" "]: is not a value of header:X-User`},
	{"named addresses that no key has", `
rules:
  a: {key: address, limits: [5/s], named: {192.0.2.1: [1/s], "2001:db8::/64": [1/s]}}
  b: {key: [route, address], limits: [5/s], named: {192.0.2.0/24: [1/s], "2001:db8::1": [1/s]}}
  c: {key: address, limits: [5/s], named: {"::ffff:192.0.2.1": [1/s], "192.0.2.1:80": [1/s]}}
  d: {key: address, limits: [5/s], named: {"2001:DB8::/64": [1/s], "[2001:db8::1]:80": [1/s]}}
  e: {key: address, limits: [5/s], named: {"2001:db8::/48": [1/s], localhost: [1/s], 192.0.2.1/64: [1/s]}}
`, `4:53: rules.b.named["192.0.2.0/24"]: is not an address; write an IPv4 address or an IPv6 /64
4:74: rules.b.named["2001:db8::1"]: matches no request; write "2001:db8::/64", which is the key of such requests
5:44: rules.c.named["::ffff:192.0.2.1"]: matches no request; write "192.0.2.1", which is the key of such requests
5:71: rules.c.named["192.0.2.1:80"]: matches no request; write "192.0.2.1", which is the key of such requests
6:44: rules.d.named["2001:DB8::/64"]: matches no request; write "2001:db8::/64", ...
6:68: rules.d.named["[2001:db8::1]:80"]: matches no request; write "2001:db8::/64", ...
7:44: rules.e.named["2001:db8::/48"]: is not an address; write an IPv4 address or an IPv6 /64
7:68: rules.e.named.localhost: is not an address; write an IPv4 address or an IPv6 /64
7:86: rules.e.named["192.0.2.1/64"]: matches no request; write "192.0.2.1", which is the key of such requests`},
	{"other names that no key has", `
rules:
  a: {key: path:id, limits: [5/s], named: {a b: [1/s], 100%: [1/s], 用: [1/s], a/b: [1/s], a%20b: [1/s]}}
  b: {key: path:id, limits: [5/s], named: {/a: [1/s], ..: [1/s]}}
  c: {key: ["header:X-User", route], limits: [5/s], named: {ann: [1/s], GET /c: [1/s], GET /d: [1/s]}}
  d: {key: "header:X-User", limits: [5/s], named: {ann: [2/s], bob: [9/s], dan: [blocked], eve: [unlimited]}}
  e: {key: "header:X-User", limits: [5/s], named: {ann: [1/s], bob: [1/s], cat: [blocked]}, priorities: [0.5]}
  f: {key: "header:X-User", limits: [5/s], named: {ann: [1/s], bob: [1/m]}, shadow: yes}
routes:
  GET /c: {rules: [c]}
  GET /d: {rules: [d], cost: 3}
`, `3:91: rules.a.named["a%20b"]: matches no request; write "a b", which is the key of such requests
4:44: rules.b.named["/a"]: matches no request; write "a", which is the key of such requests
4:55: rules.b.named[".."]: is not a value of path:id
5:61: rules.c.named.ann: must name a value of the last key form, route: ...
5:88: rules.c.named["GET /d"]: must name a value of the last key form, route: ...
7:106: rules.e.priorities[0]: is 0.5, which leaves class 1 nothing of 1/s: the burst must be above 1
8:85: rules.f.shadow: is "yes", must be true or false
11:30: routes["GET /d"].cost: is 3, must be at most 2: rules.d.named.ann (2/s) admits no more in class 0`},
	{"cut short", "rules:\n  a: {key: all, limits: [1/s]}\n",
		`1:1: routes: is empty, so the rules limit nothing`},
	{"cut short before the first rule", "version: 1\nrules:\n",
		`2:7: rules: is missing or has no value; write {} for no rules`},
	{"without rules", "version: 1\n", `1:1: rules: is missing or has no value; write {} for no rules`},
	{"nothing", ``, `1:1: is empty`},
}

func TestEveryViolationIsReported(t *testing.T) {
	keys := map[string]httplimit.KeyFunc{"account": httplimit.OneKey}
	for _, w := range wrong {
		_, err := parse("f", []byte(w.text), hybrid.Config{}, keys)
		must(t, errors.Is(err, ErrInvalid), "%s: %v", w.name, err)
		got, want := strings.Split(err.Error(), "\n"), strings.Split(w.errors, "\n")
		check(t, len(got) == len(want), "%s: %d mistakes, want %d:\n%v", w.name, len(got), len(want), err)
		for i := range min(len(got), len(want)) {
			start, cut := strings.CutSuffix(want[i], "...") // the rest is tested where it is written
			g := strings.TrimPrefix(got[i], "rules: invalid rules: f:")
			check(t, g == want[i] || cut && strings.HasPrefix(g, start), "got  %s\nwant %s", g, want[i])
		}
	}
}

func TestALargeFileFillsNoLog(t *testing.T) {
	text := "rules:\n" + strings.Repeat("  '"+strings.Repeat("x", 1000)+"': [1/s]\n", 1000) + "routes: {}\n"
	_, err := Parse("f", []byte(text))
	must(t, errors.Is(err, ErrInvalid), "%v", err)
	lines := strings.Split(err.Error(), "\n")
	more, size := strings.Contains(lines[len(lines)-1], " more mistakes"), len(err.Error())
	check(t, len(lines) == mistakesMax+1 && size < 8000 && more, "%d lines, %d bytes", len(lines), size)
}

func TestAliases(t *testing.T) {
	got, err := Parse("f", []byte(`
rules: {a: &a {key: all, limits: &l [1/s]}, b: *a, c: {key: route, limits: *l}}
routes: {/: {rules: [a]}}`))
	noErr(t, err)
	check(t, reflect.DeepEqual(got.Rules["a"], got.Rules["b"]) && len(got.Rules["c"].Limits) == 1, "%+v", got)

	var bomb strings.Builder // aliases of aliases, which must not take time
	bomb.WriteString("trusted: [10.0.0.0/8]\nrules:\n")
	one := "all"
	for i := range 10 {
		fmt.Fprintf(&bomb, "  r%d: {limits: [1/s], key: &k%d [%s]}\n", i, i, strings.Repeat(one+", ", 50))
		one = fmt.Sprintf("*k%d", i)
	}
	_, err = Parse("f", []byte(bomb.String()))
	check(t, errors.Is(err, ErrInvalid), "%v", err)

	many := "rules: {b: {key: [" + strings.Repeat("all, ", yamlfile.ValuesMax) + "], limits: [1/s]}}"
	for _, text := range []string{many, string(make([]byte, yamlfile.TextMax+1))} {
		_, err = Parse("f", []byte(text))
		check(t, err != nil && strings.Contains(err.Error(), "more than"), "%.200v", err)
	}
}

// A table from Go is checked like one from a file, and a violation has a path in place of a line.
func TestATableFromGoIsChecked(t *testing.T) {
	table := everythingMeans()
	check(t, table.check(hybrid.Config{}, nil) == nil, "%v", table.check(hybrid.Config{}, nil))
	table.Version = -1
	table.Trusted = append(table.Trusted, netip.Prefix{})
	table.Rules["tenant"] = Rule{Key: []string{"tenant"}, Limits: []hybrid.Limit{{Tokens: -1, Per: 1}},
		Priorities: []float64{math.NaN()}}
	table.Rules[""] = Rule{}
	table.Routes["/{$}"] = Route{Rules: make([]string, 17)}
	_, err := New(table, Config{})
	for _, want := range []string{
		"version is -1, must be 0 to 4503599627370495", "trusted[2] is not a valid address range",
		`rules[""] has an empty name`, `rules[""].key is empty, must be all, address`,
		`rules[""].limits has 0 entries, must have 1 to 4`,
		`rules.tenant.key is "tenant", must be all, address, route, header:NAME, path:NAME or a name in ` +
			`Config.Keys (none)`,
		"rules.tenant.limits[0].tokens is -1, must be at least 1", "rules.tenant.limits[0].per is 1ns, must be at least 1µs",
		`routes["/{$}"].rules has 17 entries, must have at most 16`,
	} {
		check(t, errors.Is(err, ErrInvalid) && strings.Contains(err.Error(), "rules: invalid rules: "+want),
			"%v\ndoes not say %s", err, want)
	}
}

// FuzzParse checks that no file makes Parse panic, and that each table from it is valid.
func FuzzParse(f *testing.F) {
	f.Add(everything)
	f.Add(asJSON)
	for _, w := range wrong {
		f.Add(w.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		table, err := Parse("f", []byte(text))
		if err != nil {
			check(t, errors.Is(err, ErrInvalid), "%v", err)
			return
		}
		again := table.check(hybrid.Config{}, nil)
		check(t, again == nil, "%+v", again)
		limiters := map[string]*limiter{}
		for name := range table.Rules {
			limiters[name] = &limiter{}
		}
		newSet(table, &Config{}, limiters, nil)
	})
}

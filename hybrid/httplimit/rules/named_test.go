package rules

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/quick"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/httplimit"
)

// routesOf is the table of a rule r in YAML, which every route has.
func routesOf(rule string) string {
	return "trusted: [10.0.0.0/8]\nrules: {r: " + rule + "}\n" +
		`routes: {"/a/{id}": {rules: [r]}, "/b/{id}": {rules: [r]}, "POST /c/{id}": {rules: [r]}}`
}

// admits sends 20 requests, "GET /a/1 | X-User: ann" with its fields, and expects that want are admitted.
func (t *world) admits(h http.Handler, want int, request string) {
	t.Helper()
	parts := strings.Split(request, " | ")
	got := admitted(h, 20, 0, parts[0], parts[1:]...)
	check(t, got == want, "%d of 20 are admitted, want %d: %.60s", got, want, request)
}

// A named key has its own limits, and every other key has the rule's. In a list of key forms the last one
// has the names, whatever the values of the others are.
func TestANamedKeyHasItsOwnLimits(t *testing.T) {
	type sent struct {
		request string
		want    int
	}
	for rule, requests := range map[string][]sent{
		`{key: "header:x-user", limits: [2/h], named: {ann: [9/m, 5/h], fay: [unlimited], eve: [blocked]}}`: {
			{"GET /a/1 | X-User: other", 2}, {"GET /a/1 | X-User: more", 2}, {"GET /a/1 | X-User: Ann", 2},
			{"GET /a/1 | X-User: ann", 5}, {"POST /c/1 | X-User: fay", 20}, {"POST /c/1 | X-User: eve", 0},
		},
		`{key: [route, "header:X-User"], limits: [2/h], named: {ann: [5/h]}}`: {
			{"GET /a/1 | X-User: ann", 5}, {"GET /b/1 | X-User: ann", 5}, {"GET /b/1 | X-User: other", 2},
		},
		`{key: ["header:X-User", route], limits: [2/h], named: {"/b/{id}": [5/h], "POST /c/{id}": [9/h]}}`: {
			{"GET /a/1 | X-User: ann", 2}, {"GET /b/1 | X-User: ann", 5}, {"GET /b/2 | X-User: other", 5},
			{"POST /c/1 | X-User: ann", 9},
		},
		`{key: route, limits: [2/h], named: {"/b/{id}": [5/h]}}`: {{"GET /a/1", 2}, {"GET /b/1", 5}},
		`{key: ["header:X-Team", "header:X-User"], limits: [2/h], named: {ann: [5/h]}}`: {
			{"GET /a/1 | X-Team: ann | X-User: ann", 5}, {"GET /a/1 | X-Team: ann | X-User: x", 2},
			{"GET /a/1 | X-Team: x3:ann, | X-User: ann", 5}, {"GET /a/1 | X-Team: x | X-User: 3:ann,", 2},
			{"GET /a/1 | X-User: ann | X-Team: " + strings.Repeat("long", 500), 5}, // its key is hashed
		},
		`{key: "path:id", limits: [2/h], named: {a b: [5/h], 用/: [6/h]}}`: {
			{"GET /a/a", 2}, {"GET /a/a%20b", 5}, {"GET /b/%E7%94%A8%2F", 6},
		},
		`{key: address, limits: [2/h], named: {192.0.2.1: [5/h], "2001:db8::/64": [6/h]}}`: {
			{"GET /a/1 | from: 192.0.2.1", 5}, {"GET /a/1 | from: 192.0.2.2", 2},
			{"GET /a/1 | from: 10.1.2.3 | X-Forwarded-For: ::ffff:192.0.2.1", 0}, // which is 192.0.2.1
			{"GET /a/1 | from: [2001:db8::7]", 6}, {"GET /a/1 | from: [2001:db8:0:1::7]", 2},
		},
		`{key: plan, limits: [2/h], named: {gold: [5/h]}}`: {
			{"GET /a/1 | Plan: gold", 5}, {"GET /a/1 | Plan: tin", 2},
		},
	} {
		bubble(t, func(t *world) {
			r := t.with("rules: {}", func(cfg *Config) {
				cfg.Keys = map[string]httplimit.KeyFunc{"plan": httplimit.Header("Plan")}
			})
			t.changed(r, routesOf(rule))
			for _, s := range requests {
				t.admits(r.Handler(ok), s.want, s.request)
			}
		})
	}
}

// A client reads its own limits from the answer.
func TestTheFieldsOfAnAnswerHaveTheNamedLimits(t *testing.T) {
	bubble(t, func(t *world) {
		h := t.with(routesOf(`{key: "header:X-Tenant", limits: [2/h], named: {acme: [5/h]}}`)).Handler(ok)
		for tenant, want := range map[string]string{"acme": `"r";q=5;w=3600`, "other": `"r";q=2;w=3600`} {
			got := ask(h, "GET /a/1", "X-Tenant: "+tenant).Header().Get("RateLimit-Policy")
			check(t, got == want, "%s has %s, want %s", tenant, got, want)
		}
	})
}

// Changed limits of a name reach its keys in use, and used tokens stay used. Other keys keep theirs.
func TestNamedLimitsFollowReloads(t *testing.T) {
	for key, prefix := range map[string]string{
		`"header:X-Tenant"`: "", `[route, "header:X-Tenant"]`: "7:/a/{id},",
	} {
		bubble(t, func(t *world) {
			r, path := t.opened(routesOf("{key: " + key + ", limits: [10/h]}"))
			h, l := r.Handler(ok), r.Limiters()["r"]
			inForce := func(tenant string) string {
				if prefix != "" {
					tenant = prefix + strconv.Itoa(len(tenant)) + ":" + tenant + ","
				}
				return fmt.Sprint(l.CachedLimits(tenant))
			}
			used := 0
			for _, step := range []struct{ named, acme, other string }{
				{"{}", "[10/h]", "[10/h]"},
				{"{acme: [30/h]}", "[30/h]", "[10/h]"},
				{"{acme: [5/h], evil: [blocked]}", "[5/h]", "[10/h]"},
				{"{acme: [20/h, 9/s], other: [40/h]}", "[20/h 9/s]", "[40/h]"},
				{"{}", "[10/h]", "[10/h]"},
			} {
				write(t, path, routesOf("{key: "+key+", limits: [10/h], named: "+step.named+"}"))
				looked()
				for range 200 { // both keys stay in use
					for _, tenant := range []string{"acme", "other"} {
						used += admitted(h, 1, takesOver/100, "GET /a/1", "X-Tenant: "+tenant)
					}
				}
				acme, other := inForce("acme"), inForce("other")
				check(t, acme == step.acme && other == step.other, "%s with the names %s: %s and %s are in "+
					"force, want %s and %s", key, step.named, acme, other, step.acme, step.other)
			}
			check(t, used >= 20 && used <= 21, "%s: %d are admitted, want 10 of each", key, used)
			check(t, r.Limiters()["r"] == l, "the Limiter is another one: %+v", r.Status())
		})
	}
}

// The names of a rule may change together with its key forms, while its keys are in use.
func TestKeyFormsMayChangeWithNames(t *testing.T) {
	bubble(t, func(t *world) {
		const single = `{key: "header:X-Tenant", limits: [2/h], named: {acme: [5/h], "4:acme,": [6/h]}}`
		const list = `{key: [route, "header:X-Tenant"], limits: [2/h], named: {acme: [5/h]}}`
		r := t.with(routesOf(single))
		h := r.Handler(ok)
		t.admits(h, 5, "GET /a/1 | X-Tenant: acme")
		t.admits(h, 6, "GET /a/1 | X-Tenant: 4:acme,")
		t.admits(h, 2, "GET /a/1 | X-Tenant: 9999:acme")
		t.admits(h, 2, "GET /a/1 | X-Tenant: -1:acme")
		t.changed(r, routesOf(list))
		t.admits(h, 5, "GET /a/1 | X-Tenant: acme")
		t.changed(r, routesOf(single))
		t.admits(h, 0, "GET /a/1 | X-Tenant: acme")
	})
}

// A table in Go has names too.
func TestATableFromGoHasNames(t *testing.T) {
	bubble(t, func(t *world) {
		table := Table{
			Rules: map[string]Rule{"r": {
				Key: []string{"header:X-Tenant"}, Limits: []hybrid.Limit{hybrid.PerHour(2)},
				Named: map[string][]hybrid.Limit{"acme": {hybrid.PerHour(5)}},
			}},
			Routes: map[string]Route{"/": {Rules: []string{"r"}}},
		}
		r := t.with("rules: {}")
		noErr(t, r.Set(table))
		t.admits(r.Handler(ok), 5, "GET / | X-Tenant: acme")
		t.admits(r.Handler(ok), 2, "GET / | X-Tenant: other")
	})
}

// A path that routers read differently costs no more than a named key admits.
func TestTheHighestCostIsThatOfNamedKeysToo(t *testing.T) {
	bubble(t, func(t *world) {
		r := t.with(`
rules:
  few: {key: "header:X-Tenant", limits: [9/h], named: {small: [2/h], evil: [blocked]}}
  all: {key: all, limits: [100/h]}
routes: {"/few/{rest...}": {rules: [few]}, "/all/{rest...}": {rules: [all], cost: 50}}`)
		t.admits(r.Handler(ok), 1, "GET /few/../all/x | X-Tenant: small")
		t.admits(r.Handler(ok), 0, "GET /few/../all/x | X-Tenant: evil")
	})
}

// lastPart reads what httplimit.Combine writes, and panics for no text.
func TestTheLastPartOfACombinedKey(t *testing.T) {
	noErr(t, quick.Check(func(first, last string) bool {
		part := func(text string) httplimit.KeyFunc {
			return func(*http.Request) (string, error) { return "x" + text, nil }
		}
		key, err := httplimit.Combine(part(first), part(last))(nil)
		_ = lastPart(first)
		return err == nil && lastPart(key) == "x"+last
	}, nil))
}

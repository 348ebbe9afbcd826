// Package rules limits HTTP requests by rules that are declared in a YAML or JSON file, or in a
// table in Go, and that may change while the program runs.
//
//	version: 3
//	trusted: [10.0.0.0/8]
//	rules:
//	  everybody: {key: all, limits: [1000/s]}
//	  address:   {key: address, limits: [10/s burst 20, 1000/h]}
//	  tenant:    {key: "header:X-Tenant", limits: [1000/m], named: {acme: [5000/m], evil: [blocked]}}
//	  upload:    {key: ["header:X-Tenant", route], limits: [50/s], fallback: deny}
//	routes:
//	  "POST /upload/{bucket}": {cost: 10, rules: [everybody, tenant, upload]}
//	  "GET /healthz": {rules: []}
//	  "/": {rules: [everybody, address]}
//
// Rules.Handler is a middleware for net/http:
//
//	r, err := rules.Open("rules.yaml", rules.Config{Store: redisbucket.New(client)})
//	...
//	http.ListenAndServe(addr, r.Handler(app))
//
// # Which rules limit a request
//
// A request is limited by the rules of the route whose pattern it matches. Patterns match as in
// http.ServeMux: by method, host and path, with wildcards, and the most specific pattern wins. Other
// routes do not limit it. A request that matches no pattern is not limited; "/" matches all others.
//
// A pattern in the spelling of another router, such as /api/* or /api/:id, is refused: ServeMux would take it
// literally, and it would limit nothing. So is a pair of patterns of which neither is more specific, such as
// OPTIONS / and /api/. The error says what to write. A rule or a setting that no route uses is logged.
//
// Each key of a rule has the rule's limits. A key in named has limits of its own: its name is the value of
// the last key form, here a tenant. Names that no request can have, such as an address within a /64, are
// refused.
//
// Routers read some paths differently: some serve /search/../healthz as a path below /search/, and some take
// %2F for a slash. A request whose path has an empty segment, a dot segment or an encoded slash is limited by
// the rules of all routes that may serve it. Each rule and key gives tokens once: the highest cost of these
// routes, capped at the most that all rules can admit. Routers that ignore case, a slash at the end, or a
// host that the client made up are not covered: "/" should limit such requests too.
//
// All rules of a request are decided together: each gives the cost of the route, or none does.
//
// # Changes
//
// Open polls its file. It does not use inotify, which reports no changes of files mounted from elsewhere, and
// follows the first file rather than its name, although editors and Kubernetes give the name to another file.
//
// The name of a rule identifies its buckets: under the same name used tokens stay used, whatever else
// changes, and under another name the rule starts with full buckets. A rule with another key form
// counts under other keys from then on. With an equal version new limits are in force two TTLs, about
// a second, after the last process has read them; a higher version is in force at once.
package rules

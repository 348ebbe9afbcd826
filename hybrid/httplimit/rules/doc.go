// Package rules limits HTTP requests by rules from a YAML or JSON file, or from a table in Go. The rules may
// change while the program runs.
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
//	store, err := redisbucket.New(client, redisbucket.Config{}) // github.com/yuzhi-go/yuzhi/redisbucket
//	limits, err := rules.Open("rules.yaml", rules.Config{Store: store})
//	defer limits.Shutdown(context.Background())
//	http.ListenAndServe(addr, limits.Handler(app))
//
// # The rules of a request
//
// The rules of one route limit a request: the route with the most specific pattern that matches the request.
// Patterns match by method, host and path, with wildcards, as in http.ServeMux. A request that matches no
// pattern is not limited; "/" matches all other requests. All rules of a request decide together: the request
// takes the route's cost from each rule, or from none.
//
// A pattern in the spelling of another router, such as /api/* or /api/:id, is an error, because ServeMux
// would take the spelling literally and the pattern would limit nothing. Two patterns of which neither is
// more specific, such as OPTIONS / and /api/, are an error too. The error about a pattern proposes a remedy.
// A rule or a setting that no route uses is logged.
//
// Each key of a rule has the rule's limits. A key in named has its own limits. A name in named is the value
// of the last key form, such as a tenant. A name that no request can have, such as an address within a /64,
// is an error.
//
// Routers read some paths differently: some serve /search/../healthz as a path below /search/, and some take
// %2F for a slash. A request whose path has an empty segment, a dot segment or an encoded slash is limited by
// the rules of all routes that may serve it. A request with such a path takes tokens once from each rule and
// key: the highest cost of these routes, capped at the most that all rules can admit. Add the route "/" for
// routers that ignore case, a slash at the end or an invented host.
//
// # Changes
//
// Open polls its file. inotify would miss changes in mounted file systems, and a new file that an editor or
// Kubernetes puts in the place of the old file.
//
// The name of a rule identifies its buckets. While a rule keeps its name, used tokens stay used, whatever
// else changes; under another name the rule starts with full buckets. A rule with another key form uses other
// keys. Under an equal version new limits are in force two TTLs, about a second, after the last process has
// read the file. The limits of a higher version are in force at once.
package rules

// Package rules limits HTTP requests by rules from a YAML or JSON file, or from a Table in Go. The rules may
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
// A request has the rules of one route: the route with the most specific pattern that matches the request.
// Patterns are those of http.ServeMux. The pattern "/" matches all requests that match no other pattern. A
// request that matches no pattern is not limited. A request takes the route's cost from each rule, or from
// none.
//
// A pattern in the spelling of another router, such as /api/* or /api/:id, is an error, because ServeMux
// would match it literally. Two patterns are an error if some request matches both and neither is more
// specific, such as "OPTIONS /" and "/api/". A rule or a setting that no route uses is logged.
//
// Each key of a rule has the rule's limits, unless the rule's field named has other limits for the key. A
// name in named is the value of the last key form, such as a tenant. A name that no request can have, such as
// an address within a /64, is an error.
//
// Routers read some paths differently: some serve /search/../healthz as a path below /search/, and some read
// %2F as a slash. If the path of a request has an empty segment, a dot segment or an encoded slash, the
// request has the rules of all routes that may serve it. Such a request takes the highest cost of its routes,
// but at most the cost that all its rules can admit. For routers that ignore case, a slash at the end or an
// invented host, add the route "/".
//
// # Changes
//
// Open polls its file, because inotify misses changes in mounted file systems and the replacement of a file.
//
// The name of a rule identifies its buckets. A rule with a new name starts with full buckets, and a rule with
// a new key form has new keys. Any other change keeps the buckets. Limits of a higher version are in force at
// once. Changed limits of an equal version are in force two TTLs, about a second, after the last process has
// read the file.
package rules

// Package rules limits HTTP requests by rules that are declared in a YAML or JSON file, or in a
// table in Go, and that may change while the program runs.
//
//	version: 3
//	trusted: [10.0.0.0/8]
//	rules:
//	  everybody: {key: all, limits: [1000/s]}
//	  address:   {key: address, limits: [10/s burst 20, 1000/h]}
//	  tenant:    {key: ["header:X-Tenant", route], limits: [50/s], fallback: deny}
//	routes:
//	  "POST /upload/{bucket}": {cost: 10, rules: [everybody, address, tenant]}
//	  "GET /healthz": {rules: []}
//	  "/": {rules: [everybody, address]}
//
// Rules.Handler is a middleware for net/http and whatever takes such ones:
//
//	r, err := rules.Open("rules.yaml", rules.Config{Store: redisbucket.New(client)})
//	...
//	http.ListenAndServe(addr, r.Handler(app))
//
// # Which rules limit a request
//
// Those of the route whose pattern it matches, as http.ServeMux matches: by method, host and path,
// with wildcards, and the most specific pattern wins. Other routes do not limit it, and a request
// that matches none is not limited: "/" is for all others.
//
// Routers do not read every path alike: some serve /search/../healthz as a path below /search/, and
// some take %2F for a slash. A request whose path has an empty segment, a dot segment or an encoded
// slash is limited by the rules of all routes that it may be served by; of each rule and key it
// takes the highest of their costs, as far as all rules can admit that. What else a router makes of
// a path is not known here, such as of one that ignores case, a slash at the end, or a host that
// the client has made up: "/" should limit such requests as well.
//
// All rules of a request are decided together: each gives the cost of the route, or none does.
//
// # Changes
//
// Open polls its file. It does not ask the kernel to be told of changes (inotify), which says
// nothing where a file is mounted from elsewhere, and is about the file that was there at first and
// not about its name, which editors and Kubernetes give to another one.
//
// The name of a rule says which buckets it has: under the same name what was used stays used,
// whatever else changes, and under another name the rule starts with full buckets. A rule with
// another key form counts under other keys from then on. With an equal version new limits are in
// force two TTLs, about a second, after the last process has read them; a higher version is in
// force at once.
//
// # Which file holds what
//
//   - table.go: Table, and the check of one; file.go: Parse, and how a file writes a Table.
//   - key.go: the key forms; matcher.go: which pattern a request matches, and its wildcards;
//     readings.go: paths that routers do not read alike.
//   - rules.go: Rules, their Config, changes and their end; set.go: a table in force, and who still
//     needs it; limiter.go: the Limiter of a rule; reload.go: Open, Reload, the file that is
//     polled.
package rules

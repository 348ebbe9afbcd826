// Package httplimit limits the rate of HTTP requests with limiters of package hybrid. Middleware limits the
// requests that a server gets, and RoundTripper the requests that a client sends.
//
// # Choosing a function
//
//   - Middleware limits a handler, or a whole mux, by one limiter and one KeyFunc. The option Also adds
//     limits, for example a limit for all requests, one per customer and one per route. A request takes
//     tokens from all its keys, or from none.
//   - Select is Middleware with rules that depend on the request, such as on its route. Package
//     httplimit/rules reads such rules from a file.
//   - RoundTripper makes the requests of an http.Client wait until they may be sent.
//
// A KeyFunc returns the key that a request counts for. Package httplimit has no default KeyFunc, because a
// wrong key is worse than none. ClientIP returns the address of the client. Header returns a field that a
// gateway in front of this server has checked, such as a user or an API key. Pattern and Path return the
// requested resource, and OneKey one key for all requests. FirstOf returns the first key that exists, Combine
// one key made of several. Your own function can be a KeyFunc too.
//
// # Proxies in front of the server
//
// A request that came through a proxy has the proxy's address. The client's address is in X-Forwarded-For,
// together with any text that the client itself wrote into this field. ClientIP therefore needs the addresses
// of your proxies. ClientIP reads the field from the right, where each proxy appends the sender's address,
// and stops at the first address that is not a proxy's. A client that reaches this server directly is known
// by its own address, whatever it sends.
//
// Name all of your proxies, and no other address: every sender in a trusted prefix is believed. Each proxy
// must append to X-Forwarded-For or overwrite it; a proxy that passes the field on unchanged passes on the
// client's own claim.
//
// # The fields of an answer
//
// An answer names all limits of the request's keys in RateLimit-Policy, and the limit that binds in
// RateLimit. The two fields follow draft-ietf-httpapi-ratelimit-headers-10 (version -11 of 2026-05-23 is not
// followed yet):
//
//	RateLimit-Policy: "default";q=100;w=60
//	RateLimit: "default";r=50;t=30
//
// A client that is alone with the key can take q tokens in any w seconds, whatever it took before. q is the
// burst and w the time in which the burst fills; if the burst fills within a second, q is the number of
// tokens per second. r is the number of tokens left. t is the number of seconds until all tokens are back,
// or, in a denial or without tokens, until enough tokens are back for one request. The fields do not mention
// Unlimited. The answer to a request that only Policy.Shadow or Policy.Fallback admits has neither field, and
// the answers of a Limiter with Policy.Headroom have no RateLimit-Policy.
//
// For a sliding window or a calendar, q is the number of tokens and w the length. A used token returns to a
// sliding window after w and at most a 60th more, and t is the longest time until all tokens are back. For a
// calendar t is the time until the next period.
//
// A handler inside another handler adds its limits to both fields; different Config.Names distinguish the
// limits. A httputil.ReverseProxy adds the fields of its upstream, unless RemoveFields is its ModifyResponse.
//
// A denial has the status 429, a problem of type quota-exceeded and Retry-After in whole seconds. A client
// that waits for Retry-After and is alone with the key is admitted. Retry-After is missing if the limit is
// Blocked. In an outage Policy.Fallback decides: by default requests within the local share are admitted,
// without fields about limits, and other requests get 503, because they may be within their limit. If a
// limiter fails, the answer is 503 too.
//
// If no wait helps, Retry-After is missing and clients do not retry the status: 413 if the cost exceeds the
// burst, 411 if the cost depends on a missing length, 400 for a missing key or a negative cost.
package httplimit

// Package httplimit limits the rate of HTTP requests with limiters of package hybrid:
//
//   - Middleware limits the requests to a handler, or to a whole mux, by one limiter and one KeyFunc. The
//     option Also adds limits, for example one per customer. A request takes tokens of all limits or of none.
//   - Select is Middleware with rules that depend on the request, such as on its route. Package
//     httplimit/rules reads such rules from a file.
//   - RoundTripper makes the requests of an http.Client wait for their tokens.
//
// A KeyFunc returns the key that a request counts for. Package httplimit has no default KeyFunc, because a
// limit on the wrong key denies the wrong clients. ClientIP returns the address of the client. Header returns
// a field that a gateway has checked, such as a user or an API key. Pattern and Path return the requested
// resource. OneKey returns one key for all requests. FirstOf returns the first key that exists. Combine makes
// one key of several.
//
// # Proxies in front of the server
//
// A request that came through a proxy has the proxy's address. The client's address is in X-Forwarded-For,
// after any text that the client itself wrote into this field. ClientIP therefore needs the addresses of your
// proxies. ClientIP reads X-Forwarded-For from the right, because each proxy appends the sender's address,
// and returns the first address that is not a proxy's. If a connection does not come from a proxy, ClientIP
// returns the address of the connection.
//
// Give ClientIP all addresses of your proxies and no others, because a sender in a trusted prefix can claim
// any address. Each proxy must append to X-Forwarded-For or overwrite the field: a proxy that passes the
// field on unchanged lets a client choose its key.
//
// # The fields of an answer
//
// RateLimit-Policy has all limits of the request's keys. RateLimit has hybrid.Result.Limit, the limit that
// binds. The fields follow draft-ietf-httpapi-ratelimit-headers-10, not yet version -11 of 2026-05-23:
//
//	RateLimit-Policy: "default";q=100;w=60
//	RateLimit: "default";r=50;t=30
//
// A client that is alone with the key can take q tokens in any w seconds. For a token bucket, q is the burst
// and w the time in which the burst fills; if the burst fills within a second, q is the number of tokens per
// second. For a sliding window or a calendar, q is the number of tokens and w the length.
//
// r is the number of tokens left. t is the number of seconds until all tokens are back. In a denial, t is the
// time until the request may be admitted. If a token bucket is empty, t is the time until the next token.
//
// RateLimit-Policy and RateLimit leave out the limit Unlimited. Answers to requests that only Policy.Shadow
// or Policy.Fallback admits have neither field. Answers of a Limiter with Policy.Headroom have no
// RateLimit-Policy.
//
// A Middleware inside another Middleware adds its limits to RateLimit-Policy and RateLimit, so the Limiters
// need different Config.Names. A httputil.ReverseProxy adds the fields of its upstream, unless RemoveFields
// is its ModifyResponse.
//
// A denial has the status 429, a problem of type quota-exceeded and Retry-After in whole seconds. A client
// that waits for Retry-After and is alone with the key is admitted. A denial by Blocked has no Retry-After.
// While the store does not answer, Policy.Fallback decides: by default, requests within the local share are
// admitted, and other requests get 503, because they may be within their limit. The failure of a limiter has
// the status 503 too.
//
// A request that can never be admitted gets no Retry-After: the status is 413 if the cost exceeds the burst,
// 411 if the cost depends on a missing length, and 400 for a missing key or a negative cost.
package httplimit

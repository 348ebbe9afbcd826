// Package httplimit limits the rate of HTTP requests with limiters of package hybrid: of those that
// a server gets (Middleware), and of those that a client sends (RoundTripper).
//
// # Which function do I want
//
//   - Middleware limits a handler, or a whole mux, by one limiter and one KeyFunc; Also adds further
//     limits, of which all or none take their tokens: everybody's, a customer's and a route's, in any order.
//   - Select is Middleware with rules that depend on the request, such as on its route. Package
//     httplimit/rules reads such rules from a file.
//   - RoundTripper makes the requests of an http.Client wait until they may be sent.
//
// A KeyFunc returns the key that a request counts for. There is no default, since a wrong one is worse
// than none: ClientIP for the address of the client, Header for a field that a gateway in front of this
// server has checked, such as a user or an API key, Pattern and Path for the requested resource, OneKey for
// all requests together. FirstOf returns the first key that there is, such as a customer's, or else the
// address. Combine makes one key of several, such as "this user on this route". Your own function can be
// a KeyFunc too.
//
// # What about my proxies
//
// A request that came through a proxy has the proxy's address. The client's address is in
// X-Forwarded-For, together with any text that the client wrote there itself. ClientIP
// therefore needs the addresses of your proxies. It reads the field from the right, where each proxy
// appends the sender's address, and stops at the first address that is not a proxy's. A client that
// reaches this server directly is known by its own address, whatever it sends.
//
// Name all of your proxies, and no other address: every sender in a trusted prefix is believed. Each
// proxy has to append to the field or to write it anew; a proxy that passes it on unchanged passes on the
// client's own claim.
//
// # What an answer says
//
// In an answer to a request that is admitted or denied, RateLimit-Policy names all limits of its keys, and
// RateLimit the one that binds, in the form of draft-ietf-httpapi-ratelimit-headers-10 (the next one, -11 of
// 2026-05-23, is not followed yet):
//
//	RateLimit-Policy: "default";q=100;w=60
//	RateLimit: "default";r=50;t=30
//
// The fields promise no more than there is: q tokens are available in any w seconds, whatever was taken
// before, for a client that is alone with the key. q is the burst and w the time in which it fills, so a
// client that never takes more in w seconds is never denied. For a burst that fills within a second, q is
// the tokens of one second. r is the tokens left, and t the seconds until all are back; in a denial, and
// with no tokens left, until there are enough for one request. Unlimited is not mentioned. An answer to a
// request that only Policy.Shadow or Policy.Fallback has admitted has no such fields, and an answer of a
// Limiter with Policy.Headroom has no RateLimit-Policy.
//
// For a sliding window or a calendar, q is its tokens and w its length. A used token comes back to a
// sliding window after w and a 60th of that at most, and t is the time until all of them are back at the
// latest; for a calendar t is the time until its boundary.
//
// A handler inside another one adds its limits to both fields, so limiters of different Config.Name tell them
// apart. A httputil.ReverseProxy adds those of its upstream, unless RemoveFields is its ModifyResponse.
//
// A denial is 429 with a problem of type quota-exceeded and Retry-After in whole seconds: a client that waits
// that long and is alone with the key is admitted. Retry-After is missing if the limit is Blocked. In an
// outage Policy.Fallback decides: by default requests are admitted, without such fields, as far as the local
// share goes, and then answered with 503. A failing limiter is 503, also if a fallback without the store
// denies: the request may be within its limit.
//
// A request that no wait helps has no Retry-After, and a status that clients do not retry: 413 if it costs
// more than the burst, 411 if its cost depends on a length that it does not give, 400 if it has no key or a
// cost below 0.
package httplimit

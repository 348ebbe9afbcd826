// Package httplimit limits the rate of HTTP requests with limiters of package hybrid: of those that
// a server gets (Handler), and of those that a client sends (RoundTripper).
//
// # Which function do I want
//
//   - Handler limits a handler, or a whole mux, by one limiter and one KeyFunc; Also adds further
//     limits, of which all or none take their tokens.
//   - Select where the rules depend on the request, such as on its route. Handler is made of it,
//     and package httplimit/rules reads such rules from a file.
//   - RoundTripper has the requests of an http.Client wait until they may be sent.
//
// A KeyFunc says whom a request counts for. There is no default, since a wrong one is worse than
// none: ClientIP for the address of the client, Header for a field that something in front of
// this server has checked, such as a user or an API key, Route and Path for what is asked for,
// All for everybody together. JoinOf makes one key of several, such as "this user on this route".
// A function of your own is a KeyFunc as well.
//
// # What about my proxies
//
// A request that came through a proxy has the proxy's address; the client's is in X-Forwarded-For
// or Forwarded, and so is whatever the client wrote there itself. ClientIP therefore needs the
// addresses of your proxies. It reads the field from the right, where each proxy appends whom it
// has seen, and stops at the first address that is none of theirs. A client that reaches this
// server without them is known by its own address, whatever it sends.
//
// Name all of your proxies, and nobody else: whoever is in a trusted prefix may say what it likes.
// Each of them has to append to the field, or to write it anew; one that passes it on as it came
// has the client's word believed.
//
// # What an answer says
//
// Of a request that is admitted or denied, RateLimit-Policy names all limits of its keys, and
// RateLimit the one that binds, in the form of draft-ietf-httpapi-ratelimit-headers-10:
//
//	RateLimit-Policy: "default";q=100;w=60
//	RateLimit: "default";r=50;t=30
//
// No more is promised than there is: q tokens can be had in any w seconds, whatever was taken
// before, by whoever is alone with the key. q is the burst and w the time in which it fills, so who
// never takes more in w seconds is never denied; a burst that fills within a second is told as what
// comes in one. r is what is left, and t the seconds until all is there again; of a denial, and
// with nothing left, until there is enough for a request. Unlimited is not told of. An answer to a
// request that only Policy.Shadow or Policy.Fallback has admitted tells nothing, and of a Limiter
// with Policy.Headroom there is no RateLimit-Policy.
//
// Of a sliding window or a calendar, q is its tokens and w its length. A token that was used up
// comes back to a sliding window after w and a 60th of that at most, and t is then when all of them
// will be back at the latest; of a calendar it is the time until its boundary.
//
// A denial is 429 with a problem of type quota-exceeded and Retry-After in whole seconds: who waits
// for that long and is alone is admitted. It is missing where no wait helps, as the request asks
// for more than the burst or the limit is Blocked. A limiter that fails is 503, also where what
// decides without the store denies: the request may be within its limit. A request without a key is
// 400.
//
// # Which file holds what
//
//   - handler.go: Handler, Select, and the way of a request; options.go: the options.
//   - key.go: KeyFuncs; clientip.go: ClientIP; forwarded.go: the fields of proxies, from the right.
//   - policy.go: what is said of a limit; fields.go: the fields of an answer; answer.go: its body.
//   - roundtripper.go: RoundTripper; pause.go: the keys that a server has told to wait.
package httplimit

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
package httplimit

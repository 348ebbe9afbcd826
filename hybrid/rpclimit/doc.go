// Package rpclimit limits the calls of an RPC server: Limiter.Limit decides about one call by its
// context, and is the method that the interceptors of go-grpc-middleware ask for. The package knows
// no RPC library. Who uses gRPC gives a function that makes a status of an error (see Status).
//
// The interceptors of go-grpc-middleware v2 turn whatever Limit returns into the text of a new
// status ResourceExhausted: its code, and details such as RetryInfo, do not reach the client. Where
// they should, write interceptors of your own, which are a few lines each; examples/grpc has them.
//
// # Which file holds what
//
//   - rpclimit.go: New, Limit and its errors; options.go: the options.
package rpclimit

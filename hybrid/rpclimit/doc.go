// Package rpclimit limits the calls of an RPC server. Limiter.Limit decides one call by its context; it
// is the method that the interceptors of go-grpc-middleware call. The package imports no RPC library. With
// gRPC, pass a function that makes a status of an error (see Status).
//
// The interceptors of go-grpc-middleware v2 put the error of Limit as text into a new status
// ResourceExhausted: its code, and details such as RetryInfo, do not reach the client. If they should,
// write your own interceptors, a few lines each, as examples/grpc does.
//
// # Which file holds what
//
//   - rpclimit.go: New, Limit and its errors; options.go: the options.
package rpclimit

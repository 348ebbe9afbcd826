// Package hybrid limits a rate across processes without asking a server for every request: each process
// leases batches of tokens from one token bucket and spends them locally.
//
// However many processes share a bucket, together they admit no more in ANY window than one central bucket
// would: burst + overcommit + rate x window.
//
// # Which method do I want
//
//   - Allow, in most places: true or false now. On a warm key it costs about one atomic instruction; it waits
//     for one lease call (at most Config.CallTimeout) only when this process holds nothing and the bucket is
//     not known to be empty.
//   - TryAllow where even that wait is too much: it never waits, and starts the lease call in the background.
//   - Take where the caller wants a context, or the reasons: how much is left, when to come back.
//   - Key(name) once and its methods after that, where the same key is used again and again: it saves the
//     look-up by name.
//
// There is no Reserve: a process cannot promise tokens that the bucket has not leased to it.
//
// A denial is a result and not an error. Errors are sentinels of this package, matched with errors.Is.
package hybrid

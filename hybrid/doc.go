// Package hybrid limits a rate across processes without asking a server for every request: each
// process leases batches of tokens from one token bucket and spends them locally.
//
// However many processes share a bucket, together they admit no more in ANY window than one central
// bucket would: burst + overcommit + rate x window, and what was refunded in it. That holds while
// the store answers, and through any outage under FallbackDeny; under FallbackLocalShare, the
// default, they admit at most rate x window and one local burst each beyond it while the store is
// away.
//
// # Which method do I want
//
// To decide on a request:
//
//   - Allow, in most places: true or false now. On a warm key it costs about one atomic instruction; it waits
//     for one lease call (at most Config.CallTimeout) only when this process holds nothing and the bucket is
//     not known to be empty. AllowN where a request costs more than one token.
//   - TryAllow where even that wait is too much: it never waits, and starts the lease call in the background.
//   - Take where the caller wants a context, or the reasons: how much is left, when to come back.
//   - Wait and WaitN for work that should be done later rather than not at all. First in first out, before
//     Allow; they fail at once where the context's deadline cannot be met.
//   - Key(name) once and its methods after that, where the same key is used again and again: it saves the
//     look-up by name.
//
// To look and to change:
//
//   - Peek reads and takes nothing. It asks the store, so it is for dashboards and not for every request.
//   - Refund gives back what was admitted and then did not happen.
//   - SetLimits changes the limits of a key for the whole fleet, which follows within a TTL; TrySetLimits only
//     where nobody has; LimitsOf reads what is in force; Reset makes the bucket a new one.
//   - Stats says where every token went.
//   - Shutdown before a process ends gives back what it holds; Close does not, and needs no store.
//
// There is no Reserve: a process cannot promise tokens that the bucket has not leased to it.
//
// A denial is a result and not an error. Errors are sentinels of this package, matched with
// errors.Is.
package hybrid

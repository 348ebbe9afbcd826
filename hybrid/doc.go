// Package hybrid limits a rate across processes without asking a server for every request: each
// process leases batches of tokens from one token bucket and spends them locally.
//
// However many processes share a bucket, together they admit no more in ANY window than one central
// bucket would: burst + overcommit + rate x window, and the refunds within it. That holds through any
// outage with FallbackDeny. With FallbackLocalShare, the default, a process that cannot reach the store
// admits its part of the rate and of the tokens that were left, so an outage may exceed the bound by
// about a burst, and by those parts if only some processes are cut off (docs/protocol.md section 1).
//
// Redis makes a Limiter in one call, for one set of limits in one Redis; New takes all settings:
//
//	client := redis.NewClient(&redis.Options{ // github.com/redis/go-redis/v9
//		Addr: "localhost:6379", DialTimeout: 500 * time.Millisecond, ReadTimeout: 500 * time.Millisecond,
//	})
//	limiter, err := hybrid.Redis(client, "api", hybrid.PerMinute(100)) // each key, over all processes
//	err = limiter.Ping(ctx) // opens the connection before the first request needs it
//	if !limiter.Allow("user 17") { // 429 Too Many Requests
//	}
//	err = limiter.Shutdown(ctx) // gives back what it holds; ctx is not the one that an interrupt has ended
//
// For HTTP there is hybrid/httplimit, for gRPC hybrid/rpclimit/grpclimit, and hybrid/xtime has the method set
// of golang.org/x/time/rate. The folder examples has a program for each.
//
// # Which method do I want
//
// To decide on a request:
//
//   - Allow, in most places: true or false now. AllowN where a request costs more than one token.
//   - Key.TryAllow where even the one lease call that Allow may wait for is too much.
//   - Take where the caller wants a context, or the reasons: how much is left, when to retry.
//     Key.TakeUpTo for a batch that may be smaller.
//   - Wait and Key.WaitN for work that should be done later rather than not at all.
//   - Key(name) once and its methods after that, where the same key is used again and again, and Key.Class
//     where it matters less than others. KeyWithLimits(name, limits...) where the limits come with the request.
//
// To look and to change: Peek, Levels and Stats take nothing. Refund gives back what was admitted and then
// did not happen. SetLimits changes the limits of a key for the whole fleet, ClearLimits takes that back,
// Reset makes the key's bucket a new one, and ReplaceLimits is SetLimits and Reset in one. Refresh asks
// Config.LimitsFor again. Shutdown gives back what the process holds before it ends; Close does not, and
// needs no store.
//
// Join makes several keys, such as everybody's, a tenant's and a user's, one that has these verbs:
// a request is admitted where all of them have room, and otherwise takes from none.
//
// Key.Reserve is Take for what costs an unknown amount: it takes an estimate, and Settle says later
// what it was, or Cancel that it did not happen. It is not the Reserve of golang.org/x/time/rate,
// which promises tokens of the future: a process cannot promise what the bucket has not leased to
// it, so a caller that would come later uses Wait.
//
// Policy.Shadow tries limits: it admits requests that they deny, and Stats counts them. With
// Config.Priorities a key has classes, of which the later ones leave a part of the burst to those
// before them. Events tell what happens to keys, and Stats accounts for every token.
//
// A denial is a result and not an error, but a request for more than the burst, which no wait helps, is one.
// Errors are sentinels of this package, matched with errors.Is.
//
// # From redis_rate
//
// Its Allow(ctx, key, limit) is KeyWithLimits(key, limit).Take(ctx, 1), AllowN is Take, AllowAtMost is
// TakeUpTo, and Reset is Reset; Result.Allowed is Taken, and a RetryAfter of -1 is 0. These differ: other
// limits for a key are in force about a second after the last request with the old ones (SetLimits: at once),
// and more than the burst is ErrExceedsBurst. While Redis is away there is no error but Policy.Fallback
// decides, so Result.Source is SourceFallback. Remaining leaves out what other processes hold. The buckets of
// redis_rate are not taken over. docs/from-redis_rate.md has more.
//
// CONTRIBUTING.md follows a request through this package.
package hybrid

// Package hybrid limits a rate across processes without asking a server for every request: each process
// leases batches of tokens from one token bucket in Redis and spends them locally.
//
// All processes that share a bucket together admit no more in ANY window than one central bucket would: burst
// + overcommit + rate x window, plus the refunds within it. With FallbackDeny that holds through any outage.
// With FallbackLocalShare, the default, a process that cannot reach the store admits its part of the rate and
// of the tokens that were left. If all processes lose the store, they may exceed the bound by about a burst;
// if some do, by their parts (docs/protocol.md section 1).
//
// Redis makes a Limiter in one call:
//
//	import (
//		"github.com/redis/go-redis/v9"
//		"github.com/yuzhi-go/yuzhi/hybrid"
//	)
//
//	client := redis.NewClient(&redis.Options{
//		Addr: "localhost:6379", DialTimeout: 500 * time.Millisecond, ReadTimeout: 500 * time.Millisecond,
//	})
//	limiter, err := hybrid.Redis(client, "api", hybrid.PerMinute(100)) // each key, over all processes
//	err = limiter.Ping(ctx) // opens the connection before the first request needs it
//	if !limiter.Allow("user 17") { // 429 Too Many Requests
//	}
//	err = limiter.Shutdown(ending) // gives back tokens; no interrupt may have ended the context
//
// New takes all settings. Its Store comes from github.com/yuzhi-go/yuzhi/redisbucket:
//
//	store, err := redisbucket.New(client, redisbucket.Config{})
//	limiter, err := hybrid.New(store, hybrid.Config{Name: "api", LimitsFor: limitsOfPlan})
//
// For HTTP there is hybrid/httplimit, for gRPC hybrid/rpclimit/grpclimit. Package hybrid/xtime has the method
// set of golang.org/x/time/rate. The folder examples has a program for each.
//
// # Words
//
// A lease is the right of one process to spend tokens of a key until a deadline. The Target, 100 ms by
// default, is how long a lease should last at the present demand; unused tokens then return to the bucket.
// The TTL, four Targets by default, is how long the store keeps a lease without another call of the process.
// A key without a request for a TTL is out of use. Policy.Target and Policy.TTL set both.
//
// # Choosing a method
//
// To decide on a request:
//
//   - Allow, in most places: true or false now. AllowN if a request costs more than one token.
//   - Key.TryAllow if even the one lease call that Allow may wait for is too much.
//   - Take if the caller has a context or wants the reasons: how much is left, when to retry. Key.TakeUpTo
//     for a batch that may be smaller.
//   - Wait and Key.WaitN for work that should be done later rather than not at all.
//   - Key(name) once and its methods afterwards, if the same key is used again and again. Key.Class if it
//     matters less than others. KeyWithLimits(name, limits...) if the limits come with the request.
//   - Join to decide about several keys at once, such as a tenant's and a user's, with the same methods.
//   - Key.Reserve for a cost that is known only afterwards: it takes an estimate, then Settle charges the
//     actual cost or Cancel gives the estimate back. Unlike the Reserve of golang.org/x/time/rate it takes no
//     tokens of the future.
//
// Peek, Levels and Stats take nothing. Refund gives back admitted tokens that were not used. SetLimits
// changes the limits of a key for the whole fleet, and ClearLimits undoes that. Reset fills the key's bucket
// again, and ReplaceLimits is SetLimits and Reset in one. Refresh calls Config.LimitsFor again, such as after
// a change of plan. Shutdown gives back unspent tokens before the process ends; Close does not, and needs no
// store.
//
// Policy.Shadow tries limits: it admits requests that they deny, and Stats counts those. With
// Config.Priorities a key has classes, of which the later ones leave a part of the burst to the earlier ones.
// Events are hooks.
//
// A denial is a result and not an error. A request for more than the burst, which no wait helps, is an error.
// Errors are sentinels of this package for errors.Is.
//
// # From redis_rate
//
// Its Allow(ctx, key, limit) is KeyWithLimits(key, limit).Take(ctx, 1), AllowN is Take, AllowAtMost is
// TakeUpTo, and Reset is Reset. Result.Allowed is Taken, and a RetryAfter of -1 is 0. Some things differ.
// Other limits for a key are in force about a second after the last request with the old ones; SetLimits
// works at once. A request for more than the burst is ErrExceedsBurst. While Redis is away, Policy.Fallback
// decides without an error, and Result.Source is SourceFallback. Remaining leaves out tokens that other
// processes hold. The buckets of redis_rate are not taken over; see docs/from-redis_rate.md.
//
// docs/request.md follows a request through this package.
package hybrid

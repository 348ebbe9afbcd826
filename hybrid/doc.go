// Package hybrid limits a rate across processes without asking a server for every request: each process
// leases batches of tokens from one token bucket in Redis and spends them locally.
//
// All processes that share a bucket together admit no more in ANY window than one central bucket would: burst
// + overcommit + rate x window, plus the refunds within the window. With FallbackDeny this bound holds
// through any outage. With FallbackLocalShare, the default, a process that cannot reach the store admits its
// part of the rate and of the bucket's remaining tokens. If all processes lose the store, together they may
// exceed the bound by about a burst. If only some processes lose the store, their parts add to the bound
// (docs/protocol.md section 1).
//
// The function Redis makes a Limiter in one call:
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
// The function New takes all settings, and a Store of github.com/yuzhi-go/yuzhi/redisbucket:
//
//	store, err := redisbucket.New(client, redisbucket.Config{})
//	limiter, err := hybrid.New(store, hybrid.Config{Name: "api", LimitsFor: limitsOfPlan})
//
// Package hybrid/httplimit limits HTTP requests, hybrid/rpclimit/grpclimit gRPC calls. Package hybrid/xtime
// has the method set of golang.org/x/time/rate. The folder examples has programs that use these packages.
//
// # Words
//
// A lease is the right of one process to spend tokens of a key until a deadline. The Target, 100 ms by
// default, is how long a lease should last at the present demand; after a Target, unused tokens return to the
// bucket. The TTL, four Targets by default, is how long the store keeps a lease without another call of the
// process. A key without a request for a TTL is out of use. Policy.Target and Policy.TTL set both durations.
//
// # Choosing a method
//
// These methods decide on a request:
//
//   - Allow suits most places: it returns true or false now. AllowN takes more than one token.
//   - Key.TryAllow never waits; Allow may wait for one lease call.
//   - Take has a context and returns a Result with the tokens left and the time to retry. Key.TakeUpTo takes
//     fewer tokens if the key has fewer.
//   - Wait and Key.WaitN suit work that should be done later rather than not at all.
//   - Key(name) returns a handle for a key that is used again and again. Key.Class returns a handle for less
//     important requests. KeyWithLimits(name, limits...) suits limits that come with the request.
//   - Join decides about several keys at once, such as a tenant's and a user's, with the same methods.
//   - Key.Reserve suits a cost that is known only afterwards: it takes an estimate, then Settle charges the
//     actual cost or Cancel gives the estimate back.
//
// Peek, Levels and Stats take no tokens. Refund gives back admitted tokens that were not used. SetLimits
// changes the limits of a key for the whole fleet, and ClearLimits undoes SetLimits. Reset fills a key's
// bucket again, and ReplaceLimits is SetLimits and Reset in one. Refresh calls Config.LimitsFor again, such
// as after a change of plan. Shutdown gives back unspent tokens before the process ends; Close gives back
// none.
//
// Policy.Shadow tries limits: it admits requests that the limits deny, and Stats.Shadowed counts their
// tokens. Config.Priorities divides the requests of a key into classes: later classes leave a part of the
// burst to earlier classes. Config.Events has hooks, for example for denials and outages.
//
// A denial is a result and not an error. A request for more than the burst is an error, because no wait
// helps.
//
// docs/request.md follows a request through this package. docs/from-redis_rate.md and
// docs/from-x-time-rate.md show how to move code from those packages.
package hybrid

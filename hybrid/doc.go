// Package hybrid limits a rate across processes without asking a server for every request: each
// process leases batches of tokens from one token bucket and spends them locally.
//
// However many processes share a bucket, together they admit no more in ANY window than one central
// bucket would: burst + overcommit + rate x window, and what was refunded in it. That holds while
// the store answers, and through any outage under FallbackDeny; under FallbackLocalShare, the
// default, they admit at most rate x window and one local burst each beyond it while the store is
// away.
//
// Redis makes a Limiter in one call, for one set of limits in one Redis; New takes all settings.
// Package hybrid/xtime has the method set of golang.org/x/time/rate over a Key.
//
// # Which method do I want
//
// To decide on a request:
//
//   - Allow, in most places: true or false now. AllowN where a request costs more than one token.
//   - TryAllow where even the one lease call that Allow may wait for is too much.
//   - Take where the caller wants a context, or the reasons: how much is left, when to come back.
//     TakeUpTo for a batch that may be smaller.
//   - Wait and WaitN for work that should be done later rather than not at all.
//   - Key(name) once and its methods after that, where the same key is used again and again;
//     KeyWith where its limits are at hand, and Key.Class where it matters less than others.
//
// To look and to change: Peek, LimitsOf and Stats take nothing. Refund gives back what was admitted
// and then did not happen. SetLimits changes the limits of a key for the whole fleet, TrySetLimits
// only where nobody has, Reset makes the key's bucket a new one, and ResetTo does both. Refresh
// asks Config.LimitsFor again. Shutdown gives back what the process holds before it ends; Close
// does not, and needs no store.
//
// Join makes several keys, such as everybody's, a tenant's and a user's, one that has these verbs:
// a request is admitted where all of them have room, and otherwise takes from none.
//
// Reserve is Take for what costs an unknown amount: it takes an estimate, and Settle says later
// what it was, or Cancel that it did not happen. It is not the Reserve of golang.org/x/time/rate,
// which promises tokens of the future: a process cannot promise what the bucket has not leased to
// it, so who wants to come later uses Wait.
//
// Policy.Shadow tries limits: it admits whom they deny, and Stats counts it. With Config.Priorities
// a key has classes, of which the later ones leave a part of the burst to those before them. What
// becomes of keys is told by Events, and Stats says where every token went.
//
// A denial is a result and not an error. Errors are sentinels of this package, matched with
// errors.Is.
//
// # The way of a request
//
// Nearly all requests end in the first step, but for those of keys that are asked seldom: these
// never come into use, and Limiter.drawFor answers each request by a call of its own.
//
//  1. Key.Allow takes a token from the pool of its entry, without a lock.
//  2. If the pool has none, Limiter.decide asks the entry's Client, under the entry's lock. It
//     admits, denies, or has the request wait: entry.awaitLocked.
//  3. The Client then wakes the scheduler, which asks it what is due (entry.poll), builds its call
//     (entry.build) into a batch, and sends that on a goroutine of its own (Limiter.send).
//  4. The reply goes to the Client (entry.receive), which serves whoever waits: entry.Settled tells
//     the request.
//
// # Which file holds what
//
// protocol.Client decides about tokens (docs/protocol.md sections 5, 8 and 9). This package is the
// shell around it: locks, channels, a table of keys, and calls that travel together.
//
//   - limiter.go: New, Close, Shutdown; config.go: Config, the names that are those of lease, the
//     errors; verbs.go: the verbs of Limiter and Key, and Result; control.go: Peek, Refund, Reset,
//     the limits of a key, Ping. redis.go: Redis, the only file that knows redisbucket;
//     interfaces.go: what stands for a Limiter or a Key in tests.
//   - name.go: which bucket is whose: Config.Name, and Limiters that contradict each other.
//   - propose.go: the limits that this process proposes for a key: LimitsFor, Refresh, KeyWith.
//   - class.go: Config.Priorities, and Limiters behind a Limiter; shadow.go:
//     Policy.Shadow.
//   - scope.go: ScopeProcess, a Store in the process that follows the limits of the real one.
//   - decide.go: a request that the pool did not serve; hold.go: what one was admitted with, to be
//     given back.
//   - join.go: the verbs of several keys at once; gather.go: how they come to one answer;
//     scarcest.go: which of them is asked first. reservation.go: Reserve, Settle, Cancel.
//   - entry.go: one key in use, a protocol.Client behind a lock.
//   - light.go: a key that is asked too seldom to come into use, each of whose requests is a call;
//     lane.go: which of these calls travel together.
//   - unheard.go: a new key while its node is away, which costs no entry
//   - scheduler.go: the one goroutine that knows which key is due, and which calls travel together;
//     calls.go: how they go out and come back; watch.go: those that are late; nodes.go: what is
//     known of each node of the store.
//   - table.go: the table of keys; idle.go: keys at rest, and who leaves when the table is full.
//   - stats.go, stats_limits.go, events.go and operator.go: what an operator sees, which is Stats,
//     Events and the log.
package hybrid

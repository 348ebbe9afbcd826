// Package hybrid limits a rate across processes without asking a server for every request: each
// process leases batches of tokens from one token bucket and spends them locally.
//
// However many processes share a bucket, together they admit no more in ANY window than one central
// bucket would: burst + overcommit + rate x window, and what was refunded in it. That holds while
// the store answers, and through any outage under FallbackDeny; under FallbackLocalShare, the
// default, an outage adds at most rate x window, and one local burst for each process.
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
// To look and to change: Peek, Limits and Stats take nothing. Refund gives back what was admitted and then
// did not happen. SetLimits changes the limits of a key for the whole fleet, TrySetLimits only where none
// were set, Reset makes the key's bucket a new one, and ResetTo does both. Refresh asks Config.LimitsFor
// again. Shutdown gives back what the process holds before it ends; Close does not, and needs no store.
//
// Join makes several keys, such as everybody's, a tenant's and a user's, one that has these verbs:
// a request is admitted where all of them have room, and otherwise takes from none.
//
// Reserve is Take for what costs an unknown amount: it takes an estimate, and Settle says later
// what it was, or Cancel that it did not happen. It is not the Reserve of golang.org/x/time/rate,
// which promises tokens of the future: a process cannot promise what the bucket has not leased to
// it, so a caller that would come later uses Wait.
//
// Policy.Shadow tries limits: it admits requests that they deny, and Stats counts them. With
// Config.Priorities a key has classes, of which the later ones leave a part of the burst to those
// before them. Events tell what happens to keys, and Stats accounts for every token.
//
// A denial is a result and not an error. Errors are sentinels of this package, matched with errors.Is.
//
// # The way of a request
//
// A Limiter has a member for each class in use: one process as the store sees it. A member has a
// table of keys. Each key has a slot, whose state says how its requests are answered. Only the idle
// list, in table.go, changes the state, under its lock:
//
//   - Resting: the slot has no entry. So begins a new key (member.drawFor makes its slot), and so stays one
//     that is asked seldom. A request that waits for one call makes it drawing; others make it active.
//     While the key's node is away and the key was never heard of, the slot's local share decides
//     (member.answerAway in decide.go).
//   - Drawing: one request is on its way as a draw, which travels with the draws of other keys (draw.go). If
//     the answer is a mere admission, the slot is resting again; otherwise a new entry takes the draw over.
//   - Active: the slot has an entry, a Client behind a lock. Key.Allow takes a token from the entry's
//     pool, without the lock. If the pool has none, entry.decide asks the Client, which admits, denies,
//     or has the request wait. The Client wakes the scheduler. The scheduler puts the call (entry.build)
//     into a batch to the key's node. Each batch is sent on a goroutine of its own (member.send in
//     scheduler.go). The reply goes to the Client (entry.receive in entry.go), which serves the requests
//     that wait. A call that gets no answer ends in member.overdue. An entry that was not used for a TTL, and
//     holds and owes nothing, goes to rest (entry.restLocked).
//   - Gone: the slot has left the table, to make room or because nothing is left to remember.
//
// protocol.Client.book counts denials, and Pool.Miss those that need no Client. Client.observe measures
// demand.
//
// Rules: docs/protocol.md, sections 8 and 9. protocol.Client decides about tokens; this package is the
// shell around it, with locks, channels, a table of keys, and calls that travel together.
package hybrid

// Package lease is the protocol by which many processes share one token bucket: each leases tokens
// from it in batches, and spends them without asking. docs/protocol.md is its specification.
//
// The package has no goroutine, does no I/O and reads no clock: time comes in as an argument and
// randomness as a seed. So a simulator runs the very code that production runs, and a test decides
// when time passes.
//
// # Which type do I want
//
// Most programs want package hybrid, and of this one Limit and Policy, which hybrid names too, and
// perhaps MemoryStore, which takes the place of Redis in tests and in services of one process. For
// tools and for other shells:
//
//   - Limit says how much, with PerSecond, PerMinute, PerHour, Every and ParseLimit to make one;
//     Policy says how to lease.
//   - Store is where buckets live. redisbucket.Store keeps them in Redis.
//   - Client is one process's side of one key: it serves requests, and says when to call and what
//     to send.
//   - Bucket is the other side: the reference that the Lua scripts of redisbucket agree with to the
//     last bit.
//
// # The loop around a Client
//
// A Client is a state machine. Its user gives it time, calls it under one lock, and carries its
// messages. Package hybrid is this loop for millions of keys, and ExampleClient is it for one. On
// the way of a request:
//
//	if c.Pool.TakeN(n).OK() { // any goroutine, without the lock; TookLow asks for c.Low()
//		return true
//	}
//	lock()
//	switch d := c.Decide(now(), n, lease.OneCall, lease.Never); d.Verdict {
//	case lease.VerdictWait:
//		c.Enqueue(now(), w) // Host.Settled tells the end; after CallTimeout the user calls c.TimeOut
//	default:
//		answer(d)
//	}
//
// Whenever Host.Wake asks for it, and at the time that the last Tick named:
//
//	due := c.Tick(now(), rtt)
//	if due.Call { // and Breaker.Admit, or else again at Breaker.Turn
//		send(c.Build(now(), nextSeq(), rtt)) // one call under way; a copy of the Request goes out
//	}
//	tickAgainAt(due.At)
//
// For each answer, or when there has been none for too long:
//
//	if got, ok := c.Accept(now(), &grant); ok {
//		c.Serve(now(), got)
//	} else if err != nil {
//		c.Fail(now(), err)
//	}
//
// # Which file holds what
//
// The process's side:
//
//   - client.go: Client, its life and its states; client_due.go: when to call; client_call.go: a
//     call from Build to Accept or Fail, and the delay after a shortfall; client_size.go: demand,
//     round trips, and how much to ask for; client_fallback.go: deciding without the store;
//     share.go: the local share; breaker.go: which nodes are away, and which key calls them; think.go: how
//     long to leave a busy one alone; heard.go: what the last reply said, and what is kept of it for
//     a key at rest; draw.go: how such a key is asked for without a Client; unheard.go: how a key never heard of is decided in an outage
//     (section 8 of the specification).
//   - client_decide.go: the answer to a request; client_queue.go: who waits; client_serve.go: who
//     is served, and who is turned away; client_end.go: how a wait ends, what a request gives back
//     that did not happen, and why it was denied (section 9).
//   - holding.go: the half of the protocol that must be exact (section 5).
//   - internal/pool: the tokens that takes spend.
//
// The bucket's side:
//
//   - bucket.go: the state, and steps 1 to 5 of a call; bucket_grant.go: steps 6 and 7 (section 4);
//     bucket_draw.go: draws of a bucket at rest (section 4);
//     ring.go: the ledger, scale.go: exact arithmetic, and window.go: what a window counts (section
//     3); window_change.go: what becomes of that when limits change; bucket_change.go: lost
//     state, T, other operations, bucket_limits.go: whose limits are in force, and how they change,
//     and bucket_past.go: those that come back (section 6); fair.go: the fair share, and fleet.go:
//     the calls of a large fleet, on both sides (section 7).
//
// Both sides:
//
//   - limit.go and limit_window.go: Limit and its kinds; policy.go: Policy; message.go: Config,
//     Request and Grant; store.go: Store, MemoryStore, and keys that are too long to keep;
//     audit.go: what shells, tests and audits see of either side's tokens.
//
// # What is exported, and for whom
//
// Users of a limiter, mostly by way of hybrid, which has the same names:
//
//	Limit PerSecond PerMinute PerHour Every Blocked Unlimited ParseLimit ErrInvalidLimit
//	Sliding Calendar Kind KindBucket KindSliding KindCalendar
//	Policy ColdStart ColdStartDeny ColdStartAllow ErrInvalidPolicy DefaultCallTimeout
//	Fallback FallbackLocalShare FallbackDeny FallbackAllowAll
//	Source SourceLocal SourceStore SourceFallback
//	MemoryStore NewMemoryStore
//
// Whoever writes a Store: the messages, their bounds, errors that a caller tells apart, and keys.
//
//	Store Pinger Router Call Awaited Request Grant WaitingMax Scale LimitsMax
//	Config Version State Op OpInspect OpSet OpSetIfAbsent OpReset OpReplace
//	ErrUnavailable ErrRefused ErrPermanent ErrKey ErrStale ErrInvalidConfig ErrInvalidRequest
//	KeyMax KeyHashLen ShortKey HashKey IsKeyHash
//
// Whoever runs Clients, as hybrid and the simulator do: a Client, what it is asked and answers, and
// what its user keeps of a node, of a key at rest, of its tokens, and of the last reply.
//
//	Client ClientConfig ClientState StateCold StateActive StateLow StateDry StateDenied StateDegraded
//	StateLeaving StateClosed Host Waiter Origin OneCall NoWait UpTo InLine Patience Never
//	Decision Verdict VerdictAdmit VerdictDeny VerdictWait VerdictCancelled VerdictClosed
//	VerdictExceedsBurst VerdictTooLate VerdictUnavailable
//	Due Use Unused InUse UseEnded Accepted FromPool FromGrant
//	Latency Breaker NewBreaker NodeFailed Memory Unheard Terms Restable Account Heard Outlook
//
// Audits, and tests that compare the reference with a script:
//
//	Bucket BucketDump PastDump RecordDump WindowDump
package lease

// Package protocol implements both sides of the lease protocol, which docs/protocol.md specifies: Bucket is
// the central bucket of one key, and Client is one process's side of one key.
//
// The package has no goroutine, does no I/O and reads no clock: time comes in as an argument and randomness
// as a seed. The simulator therefore runs the code of production, and a test decides when time passes. The
// bucket's side uses nothing of the client's.
//
// # The bucket
//
// Bucket executes lease calls. The Lua scripts of redisbucket agree with it to the last bit.
//
// # The loop around a Client
//
// A Client is a state machine. Its user passes in the time, calls it under one lock, and carries its
// messages. Package hybrid is this loop for millions of keys, and ExampleClient shows it for one. For each
// request:
//
//	if c.Pool.TakeN(n).OK() { // any goroutine, without the lock; TookLow asks for c.Low()
//		return true
//	}
//	lock()
//	switch d := c.Decide(now(), protocol.Ask{N: n, Patience: protocol.OneCall}); d.Verdict {
//	case protocol.VerdictWait:
//		c.Enqueue(now(), w) // Host.Settled tells the end; after CallTimeout the user calls c.TimeOut
//	default:
//		answer(d)
//	}
//
// When Host.Wake asks for a Tick, and at due.At of the last Tick:
//
//	due := c.Tick(now(), rtt)
//	if due.Call { // and Breaker.Admit, or else again at Breaker.Turn
//		send(c.Build(now(), nextSeq(), rtt)) // one call under way; a copy of the Request goes out
//	}
//	tickAgainAt(due.At)
//
// For each answer, or when none has come for too long:
//
//	if got, ok := c.Accept(now(), &grant); ok {
//		c.Serve(now(), got)
//	} else if err != nil {
//		c.Fail(now(), err)
//	}
package protocol

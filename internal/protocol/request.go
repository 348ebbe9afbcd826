package protocol

import (
	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/pool"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Patience says how long a request waits.
type Patience int8

const (
	// NoWait takes n tokens from the pool, or none.
	NoWait Patience = iota
	// OneCall waits for one lease call, at most CallTimeout, and holds no tokens while it waits.
	OneCall
	// UpTo waits as OneCall does, and takes at least one and at most n tokens.
	UpTo
	// InLine collects tokens until it has n, and is served before all later requests.
	InLine
)

// Verdict says whether a request is admitted, denied or still waiting.
type Verdict int8

const (
	VerdictWait         Verdict = iota // not decided yet: Enqueue the request
	VerdictAdmit                       // the request has its tokens
	VerdictDeny                        // the request does not get its tokens
	VerdictExceedsBurst                // the request is above the burst
	VerdictTooLate                     // the tokens cannot be available by the deadline
	VerdictCancelled                   // Cancel was called
	VerdictClosed                      // Leave or Close was called
)

// Decision is the answer to a request.
type Decision struct {
	Verdict    Verdict
	Source     lease.Source
	EarliestAt clock.Instant // for VerdictTooLate: the earliest time at which the tokens may be there
	// Draw and Pooled are for Client.GiveBack: the draw of the tokens, and how many of them came from the
	// pool. The zero Draw is of tokens that a fallback admitted, which cannot be given back.
	Draw   pool.Draw
	Pooled int64
	Took   int64 // tokens of an admitted request: n, or fewer with UpTo
}

// OK reports whether the request is admitted.
func (d Decision) OK() bool { return d.Verdict == VerdictAdmit }

// Ask describes one request.
type Ask struct {
	N        int64
	Patience Patience
	Deadline clock.Instant // for InLine; Never means no deadline
	// Uncounted leaves denied tokens out of Denials.Count. The user books the tokens with Denials.Book,
	// unless another key denies the request.
	Uncounted bool
}

// Most returns the most tokens that the request can get from a bucket with this capacity.
func (a Ask) Most(capacity int64) int64 {
	if a.Patience == UpTo {
		return min(a.N, capacity)
	}
	return a.N
}

// Waiter is one waiting request. The user sets exported fields, and may reuse a Waiter after Host.Settled.
type Waiter struct {
	Ask       // Patience is OneCall, UpTo or InLine
	Owner any // for the user's own use

	got     int64         // tokens collected so far
	until   clock.Instant // when got is burnt, if no reply comes
	draw    pool.Draw     // the draw of the oldest tokens in got, with the report interval of pooled
	pooled  int64         // tokens in got that may go back to the pool, all of one report interval
	asked   int64         // seq of the last call that counted the request as waiting; 0 for none
	since   int64         // seq of the first call that counted the request as waiting
	drawnBy int64         // seq of the first call that granted tokens in got, even if for another request
	waiting bool
	prev    *Waiter
	next    *Waiter
}

// Got returns how many tokens w has collected; 0 after w was settled without them.
func (w *Waiter) Got() int64 { return w.got }

func (w *Waiter) lacks() int64 { return w.N - w.got }

func (w *Waiter) least() int64 {
	if w.Patience == UpTo {
		return 1
	}
	return w.lacks()
}

func (w *Waiter) inLine() bool { return w.Patience == InLine }

// Origin says where the tokens for a waiting request come from.
type Origin int8

const (
	FromGrant Origin = iota // tokens that were granted for waiting requests, and admitted with the grant
	FromPool                // tokens that were leased to this process before
)

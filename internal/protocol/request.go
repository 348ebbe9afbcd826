package protocol

import (
	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/pool"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Never is a time that does not come: it needs no timer.
const Never = clock.Instant(1<<63 - 1)

// Patience is how long a request is willing to wait.
type Patience int8

const (
	// NoWait takes n tokens that are here, or none.
	NoWait Patience = iota
	// OneCall waits for one lease call, at most CallTimeout. It holds no tokens meanwhile, so if it is
	// denied in the end it has cost the others nothing.
	OneCall
	// UpTo is OneCall for what there is: it takes fewer where there are not n, but at least one.
	UpTo
	// InLine collects tokens until it has them all, and is served before all later requests.
	InLine
)

// Verdict is the answer to a request.
type Verdict int8

const (
	VerdictWait         Verdict = iota // not known yet: Enqueue it
	VerdictAdmit                       // it has its tokens
	VerdictDeny                        // the tokens are not there
	VerdictExceedsBurst                // they never will be
	VerdictTooLate                     // they cannot be there by its deadline
	VerdictCancelled                   // Cancel was called
	VerdictClosed                      // Leave or Close was called
)

// Decision is the answer to a request.
type Decision struct {
	Verdict    Verdict
	Source     lease.Source
	EarliestAt clock.Instant // of VerdictTooLate: the tokens cannot be there before
	// Of a request that is admitted with tokens of the bucket, for Client.GiveBack: the draw of all of
	// them, and how many came from the pool. Nothing of what a fallback admits can be given back.
	Draw   pool.Draw
	Pooled int64
	Took   int64 // tokens that an admitted request has: n, or fewer with patience UpTo
}

// OK reports whether the request is admitted.
func (d Decision) OK() bool { return d.Verdict == VerdictAdmit }

// Ask describes one request.
type Ask struct {
	N        int64
	Patience Patience
	Deadline clock.Instant // of one InLine; Never for none
	// Uncounted leaves a denial, or the part of N that was not taken, out of Denials.Count: the user books it
	// with Denials.Book, or does not, where another key denies the request.
	Uncounted bool
}

// Most returns the tokens that a can get of a burst of capacity.
func (a Ask) Most(capacity int64) int64 {
	if a.Patience == UpTo {
		return min(a.N, capacity)
	}
	return a.N
}

// Waiter is one request that waits for tokens. Its user makes it, or uses it again after it was
// settled: the fields that the user sets are those in upper case.
type Waiter struct {
	Ask       // with a patience of OneCall, UpTo or InLine
	Owner any // the user's own

	got     int64         // tokens that it has so far
	until   clock.Instant // got is lost from then on: nothing has been heard of the bucket for too long
	draw    pool.Draw     // of the oldest of them, but with the interval of pooled
	pooled  int64         // of got: taken from the pool in that interval, where they may go back to
	asked   int64         // seq of the last call that counted it as waiting; 0 for none yet
	since   int64         // and of the first one
	drawnBy int64         // seq of the first call that brought got, or what another one has passed on
	waiting bool
	prev    *Waiter
	next    *Waiter
}

// Got is how many tokens w has: none after it was settled without them.
func (w *Waiter) Got() int64 { return w.got }

func (w *Waiter) lacks() int64 { return w.N - w.got }

func (w *Waiter) least() int64 {
	if w.Patience == UpTo {
		return 1
	}
	return w.lacks()
}

func (w *Waiter) inLine() bool { return w.Patience == InLine }

// Origin says where the tokens come from that a waiting request is given.
type Origin int8

const (
	FromGrant Origin = iota // drawn for waiting requests: admitted when the bucket granted them
	FromPool                // leased to this process, and spent now
)

package protocol

import (
	"github.com/yuzhi-go/yuzhi/lease"
)

// BucketDump is everything a Bucket remembers, for comparison with a bucket that is stored elsewhere. Levels
// are in units (see Scale), times and durations in microseconds, tokens and weights per slot of the ring.
type BucketDump struct {
	Exists bool
	Config lease.Config // its TTL is the one in force, its limits are those beneath the switch
	Switch Switch

	Clock, Now, Created, Epoch, Counter, Frozen, SetAt, Keep int64
	Spent, Denied                                            int64
	Proposed, ProposedAt, StoodAt                            int64

	Level, Rest [lease.LimitsMax]int64
	Windows     [lease.LimitsMax]WindowDump // windows only

	Width, MovedAt int64
	Held, Weight   [ringSlices]int64

	Share                              float64
	Updated, ContendedUntil, IdleSince int64

	Records map[string]RecordDump // records of this epoch that are still in the ring
}

// WindowDump has the charges of one window, in tokens. Sum is the total. A sliding window has cell j in slot
// j mod len(Cells). A calendar has the number of its period by the server's clock, and the running time at
// which the period began.
type WindowDump struct {
	Sum           int64
	Cells         [windowSlots]int64
	Period, Begun int64
}

// RecordDump is the state of one holder, after its last executed call.
type RecordDump struct {
	Seq, Ends, Held, Weight int64 // Ends is the end of the slice with its entry
	Waiting                 int64 // tokens that requests waited for; informational
	Granted                 int64 // the stored grant, answered again to a retry
	Since                   int64 // counter of the last void call: a holder is known only if it has heard of that call
	Void                    bool
	Debit
}

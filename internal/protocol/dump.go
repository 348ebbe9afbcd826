package protocol

import (
	"github.com/yuzhi-go/yuzhi/lease"
)

// BucketDump is the whole state of a Bucket, for comparison with a bucket that is stored elsewhere. Levels
// are in units (see exact.Scale), times and durations in microseconds, Held and Weight per slot of the ring.
type BucketDump struct {
	Exists bool
	Config lease.Config // the TTL is the T in force, the limits are those beneath the switch
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

// WindowDump has the charges of one window, in tokens. Sum is the total. Cell j of a sliding window is in
// slot j mod len(Cells). Period is the number of a calendar's period by the server's clock, and Begun the
// running time at which the period began.
type WindowDump struct {
	Sum           int64
	Cells         [windowSlots]int64
	Period, Begun int64
}

// RecordDump is the state of one holder, after its last executed call.
type RecordDump struct {
	Seq, Ends, Held, Weight int64 // Ends is the end of the ring's slice with the holder's entry
	Waiting                 int64 // tokens for which requests still waited; informational
	Granted                 int64 // the stored grant, which answers a retry
	Since                   int64 // counter of the last void call: a holder is known only if it has heard of that call
	Void                    bool
	Debit
}

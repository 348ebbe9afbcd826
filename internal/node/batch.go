package node

import (
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
)

// Batch is a group of calls that travel together, with the times to act if no answer arrives.
type Batch struct {
	Owner any  // for the caller's own use
	Draws bool // the calls are draws of keys at rest

	sent   clock.Instant
	due    [dueTimes]clock.Instant
	passed int           // number of due times that have passed
	again  clock.Instant // another time to act
	landed bool
}

// dueTakenOver and the constants below are indexes of Batch.due.
const (
	dueTakenOver = iota // entries must take over the draws of the batch
	dueOverdue          // calls that were sent at once have failed
	dueConnected        // unsent calls have failed too
	dueForgotten        // no request waits for the answer any more
	dueTimes
)

// Send records that b, which Open or Depart has admitted, is sent at now. since is when the oldest request of
// a batch of draws arrived. Send may lower the time that LookAt returns.
func (n *Node[D]) Send(b *Batch, now, since clock.Instant) {
	last := Longest(n.timeout)
	deadline := min(max(Patience(n.timeout), 2*n.RTT()), last)
	overdue := now.Add(deadline)
	takenOver := overdue
	if b.Draws {
		takenOver = max(now, min(overdue, since.Add(Patience(n.timeout))))
	} else {
		n.sentAt = now
	}
	b.sent, b.again = now, protocol.Never
	connected := now.Add(max(deadline, connectFactor*n.timeout))
	b.due = [dueTimes]clock.Instant{takenOver, overdue, connected, now.Add(last)}
	n.underWay++
	n.batches = append(n.batches, b)
	n.lookAt = min(n.lookAt, takenOver)
}

// Landed records that b was answered or never will be; only the first Landed of b counts. Landed reports
// whether urgent calls that were held back may be sent now.
func (n *Node[D]) Landed(b *Batch) (free bool) {
	if b.landed {
		return false
	}
	b.landed = true
	n.underWay--
	if b.Draws {
		n.drawing--
	}
	free = n.urgent && n.underWay == 0
	n.urgent = n.urgent && !free
	return free
}

// Over ends batch b, whose calls have all been answered.
func (n *Node[D]) Over(b *Batch) {
	if i := slices.Index(n.batches, b); i >= 0 {
		n.batches = slices.Delete(n.batches, i, i+1)
	}
	n.open--
}

// UnderWay returns the batches that are not over, in the order in which they were sent.
func (n *Node[D]) UnderWay() []*Batch { return slices.Clone(n.batches) }

// LookAt returns when to call Late at the latest, or Never. An answer does not raise LookAt.
func (n *Node[D]) LookAt() clock.Instant { return n.lookAt }

// Late returns the batches that are due for an action, and the forgotten batches, for whose answer no request
// waits any more. A call of Late much later than LookAt means that the process itself was stopped, as by
// SIGSTOP, and may not have read answers. Late then returns nothing and sets a later LookAt.
func (n *Node[D]) Late(now clock.Instant) (due, forgotten []*Batch) {
	slack := n.timeout / 4
	stopped := now.Sub(n.lookAt) > slack
	n.lookAt = protocol.Never
	if stopped {
		n.lookAt = now.Add(slack)
		return nil, nil
	}
	for _, b := range n.batches {
		was := b.passed
		for b.passed < dueTimes && b.due[b.passed] <= now {
			b.passed++
		}
		if b.passed > was || b.again <= now {
			b.again = protocol.Never
			due = append(due, b)
		}
		n.lookAt = min(n.lookAt, b.again)
		if b.passed < dueTimes {
			n.lookAt = min(n.lookAt, b.due[b.passed])
		} else {
			forgotten = append(forgotten, b)
		}
	}
	return due, forgotten
}

// Again makes Late return b at this time too.
func (n *Node[D]) Again(b *Batch, at clock.Instant) {
	b.again = at
	n.lookAt = min(n.lookAt, at)
}

// Sent returns when b was sent.
func (b *Batch) Sent() clock.Instant { return b.sent }

// Overdue reports whether b is late enough that some of its calls may have failed.
func (b *Batch) Overdue(now clock.Instant) bool { return now >= b.due[dueOverdue] }

// Fails returns when a call of b fails without an answer. The timeout of a call begins when the call is sent,
// which may follow a handshake: after is the time from the sending of b to that of the call. For an unsent
// call Fails returns the earliest time at which the call can fail.
func (b *Batch) Fails(now clock.Instant, sent bool, after time.Duration) clock.Instant {
	if sent {
		return b.due[dueOverdue].Add(after)
	}
	return min(b.due[dueConnected], now.Add(b.due[dueOverdue].Sub(b.sent)))
}

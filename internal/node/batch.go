package node

import (
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
)

// Batch is calls that travel together. It says when something is due for them while no answer comes.
type Batch struct {
	Owner any  // the caller's
	Draws bool // of keys at rest

	sent   clock.Instant
	due    [dueTimes]clock.Instant
	passed int           // of these
	again  clock.Instant // when something is due beside them
	landed bool
}

// The times at which something is due for a batch that has not come back, in order.
const (
	dueTakenOver = iota // the requests of its draws wait no longer for it
	dueOverdue          // its calls have failed, unless a connection was opened for them first
	dueConnected        // unsent calls have failed too
	dueForgotten        // nothing waits for an answer any more
	dueTimes
)

// Send notes that b, which Open or Depart has admitted, is sent now. since is when the oldest request
// of a batch of draws came: it may have been held back for long, or the network has become slow
// since. Late is to be called at LookAt, which may be earlier now.
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

// Landed notes that b has come back, or never will; only the first time counts. It reports whether
// urgent calls were held back that may go now. Depart is to be called after a batch of draws.
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

// Over ends b, all of whose calls are answered.
func (n *Node[D]) Over(b *Batch) {
	if i := slices.Index(n.batches, b); i >= 0 {
		n.batches = slices.Delete(n.batches, i, i+1)
	}
	n.open--
}

// UnderWay are the batches that are not over, in the order in which they were sent.
func (n *Node[D]) UnderWay() []*Batch { return slices.Clone(n.batches) }

// LookAt is when Late is to be called at the latest; Never for not at all. It does not move on with
// batches that come back: nearly all do long before anything is due.
func (n *Node[D]) LookAt() clock.Instant { return n.lookAt }

// Late returns the batches for which something is due, and those for which nothing waits any more.
// Where it is called much later than LookAt, the process itself was stopped, as by SIGSTOP, and
// answers may be there that it has not read yet: then it looks again a little later.
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

// Again has Late return b at the given time too.
func (n *Node[D]) Again(b *Batch, at clock.Instant) {
	b.again = at
	n.lookAt = min(n.lookAt, at)
}

// Sent is when b was sent.
func (b *Batch) Sent() clock.Instant { return b.sent }

// Overdue reports whether calls of b may have failed by now.
func (b *Batch) Overdue(now clock.Instant) bool { return now >= b.due[dueOverdue] }

// Fails is when a call of b has failed if no answer comes. The time for that begins when the call is
// sent, which may be after a handshake that took nearly as long. It is the earliest for a call that
// is not sent yet.
func (b *Batch) Fails(now clock.Instant, sent bool, after time.Duration) clock.Instant {
	if sent {
		return b.due[dueOverdue].Add(after)
	}
	return min(b.due[dueConnected], now.Add(b.due[dueOverdue].Sub(b.sent)))
}

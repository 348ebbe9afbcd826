package hybrid

import (
	"fmt"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// How long a call may take, in CallTimeouts (docs/protocol.md section 8.15): at all, and before it
// is sent where a connection is opened first.
const lateFactor, connectFactor = 10, 5

// The times at which something is due for a batch that has not come back, in order.
const (
	dueTakenOver = iota // the requests of its draws wait no longer for it, whatever becomes of the calls
	dueOverdue          // its calls have failed, unless a connection was opened for them first
	dueConnected        // those have that are not sent yet
	dueForgotten        // nobody listens any more
	dueTimes
)

// watch notes that b is sent to n now, and has a timer look after it. There is one for all batches
// to n: nearly all come back long before anything is due, and then it is not touched.
//
// A call's deadline is a little earlier than CallTimeout, so that requests which wait for the call
// are told what Policy.Fallback says.
func (n *node) watch(l *Limiter, b *batch) {
	timeout := l.cfg.CallTimeout
	last := lateFactor * timeout
	deadline := min(max(timeout-timeout/16, 2*n.rtt()), last)
	b.sent = l.cfg.Clock.Now()
	overdue := b.sent.Add(deadline)
	takenOver := overdue
	if b.draws { // the oldest may have been held back for long, or the network has become slow since
		d := b.calls[0].Owner.(*draw)
		takenOver = max(b.sent, min(overdue, d.sent.Add(timeout-timeout/16)))
	}
	b.due = [dueTimes]clock.Instant{
		takenOver, overdue, b.sent.Add(max(deadline, connectFactor*timeout)), b.sent.Add(last),
	}
	b.again = protocol.Never
	n.mu.Lock()
	defer n.mu.Unlock()
	n.batches[b] = struct{}{}
	n.lookLocked(l, b.sent, takenOver)
}

// unwatch ends that.
func (n *node) unwatch(b *batch) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.batches, b)
}

// lookLocked has look called at the given time, unless it is earlier anyway.
func (n *node) lookLocked(l *Limiter, now, at clock.Instant) {
	switch {
	case at >= n.lookAt:
		return
	case n.looker == nil:
		n.looker = l.cfg.Clock.AfterFunc(at.Sub(now), func() { n.look(l) })
	default:
		n.looker.Reset(at.Sub(now))
	}
	n.lookAt = at
}

// lookAgain has look called at the given time for b.
func (n *node) lookAgain(l *Limiter, b *batch, now, at clock.Instant) {
	n.mu.Lock()
	defer n.mu.Unlock()
	b.again = at
	n.lookLocked(l, now, at)
}

// look does what is due for the batches under way to n.
func (n *node) look(l *Limiter) {
	now := l.cfg.Clock.Now()
	for _, b := range n.late(l, now) {
		l.overdue(b, now)
	}
}

// late takes down the times that have come, and returns the batches that they concern. Where it
// runs much later than it should, the process itself was stopped, as by SIGSTOP, and answers may be
// there that it has not read yet: then it looks again a little later.
func (n *node) late(l *Limiter, now clock.Instant) (all []*batch) {
	n.mu.Lock()
	defer n.mu.Unlock()
	slack, stopped := l.cfg.CallTimeout/4, now.Sub(n.lookAt) > l.cfg.CallTimeout/4
	n.lookAt = protocol.Never
	if stopped {
		n.lookLocked(l, now, now.Add(slack))
		return nil
	}
	for b := range n.batches {
		was := b.passed
		for b.passed < dueTimes && b.due[b.passed] <= now {
			b.passed++
		}
		if b.passed > was || b.again <= now {
			b.again = protocol.Never
			all = append(all, b)
		}
		n.lookLocked(l, now, b.again)
		if b.passed < dueTimes {
			n.lookLocked(l, now, b.due[b.passed])
		} else {
			b.forget()
		}
	}
	return all
}

// overdue has entries take over the draws of b, and ends the wait for those of its calls that were
// not answered in time.
func (l *Limiter) overdue(b *batch, now clock.Instant) {
	for _, c := range b.calls {
		if d, ok := c.Owner.(*draw); ok {
			d.takeOver()
		}
	}
	if now < b.due[dueOverdue] {
		return
	}
	var late []*lease.Call
	again := protocol.Never
	for _, c := range b.calls {
		if !c.Owner.(caller).awaits(c) {
			continue
		}
		if fails := b.fails(c, now); fails > now {
			again = min(again, fails)
		} else {
			late = append(late, c)
		}
	}
	b.node.lookAgain(l, b, now, again)
	for _, c := range late { // before they fail, which depends on whether their node is away
		l.failed(c.Owner.(caller).at(), now, b.sent, overdueAs(c))
	}
	for _, c := range late {
		c.Owner.(caller).abandon(c, now, overdueAs(c))
	}
}

// fails is when c has failed if no answer comes: its time for that begins when it is sent, which
// may be after a handshake that took nearly as long. Of a call that is not sent yet it is the
// earliest.
func (b *batch) fails(c *lease.Call, now clock.Instant) clock.Instant {
	if c.Unsent() == nil {
		return b.due[dueOverdue].Add(c.SentAfter())
	}
	return min(b.due[dueConnected], now.Add(b.due[dueOverdue].Sub(b.sent)))
}

// overdueAs is the error of a call that is overdue: also why it has not even been sent, if that is
// known.
func overdueAs(c *lease.Call) error {
	if why := c.Unsent(); why != nil {
		return fmt.Errorf("%w: %w", errOverdue, why)
	}
	return errOverdue
}

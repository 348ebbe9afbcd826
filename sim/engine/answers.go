package engine

import (
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
)

// This file is what a process makes of answers, and of their absence.

// deliver hands a batch's answers to the entries that wait for them, if any do.
func (n *network) deliver(b *batch) {
	if b.wait == awaited {
		n.abandon(b)
		if b.p.life == b.life {
			n.judge(b)
		}
		for i := range b.calls {
			if c := &b.calls[i]; c.entry.alive {
				c.entry.receive(c)
			}
		}
	}
	n.end(b)
}

// judge has the process of an answered batch learn from it about the shard.
func (n *network) judge(b *batch) {
	now, l := b.p.local(n.time.now), n.linkTo(b.p, int(b.shard))
	c := &b.calls[0] // a shard that is away refuses all of them
	if protocol.NodeFailed(c.err) {
		n.failed(l, now, b.sent)
		return
	}
	took := now.Sub(b.sent) - b.before
	if b.script == brought {
		took = b.refusal
	}
	l.latency.Add(now, took)
	l.breaker.Answered(now, b.sent)
	spacing := time.Duration(0)
	for i := range b.calls {
		if c := &b.calls[i]; c.err == nil {
			spacing = max(spacing, protocol.Spacing(&c.grant, c.request.Weight))
		}
	}
	l.breaker.Took(now, took, spacing)
	// A draw of a bucket at rest says nothing of who else uses the shard.
	if active := c.grant.ActiveWeight; c.err == nil && (!c.request.Draw || active > l.breaker.Active()) {
		l.breaker.Heard(now, active)
	}
}

// failed says that a call to l's shard has failed which was sent then. If that begins an outage,
// everything that is under way there has failed too.
func (n *network) failed(l *link, now, sent clock.Instant) {
	if !l.breaker.Failed(now, sent) {
		return
	}
	for _, b := range slices.Clone(l.awaited) {
		n.giveUp(b)
	}
}

// overdue has the entries of a batch that has taken too long go on without it.
func (n *network) overdue(b *batch) {
	if n.patient(b) {
		return
	}
	late := func(c call) bool { return c.entry.alive && c.entry.flight == c.number }
	if b.p.life == b.life && slices.ContainsFunc(b.calls, late) {
		n.failed(n.linkTo(b.p, int(b.shard)), b.p.local(n.time.now), b.sent)
	}
	n.giveUp(b)
}

// giveUp ends the wait for the calls of b that have no answer yet. The answer may still come.
func (n *network) giveUp(b *batch) {
	for i := range b.calls {
		b.calls[i].entry.overdue(b.calls[i].number)
	}
}

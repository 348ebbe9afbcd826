package engine

import (
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/node"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// port is the end of the network at one process.
type port struct {
	links    []*link // to each shard; see linkTo
	copiedAt int64   // when the last second copy of its calls arrives, where they keep their order
	calls    int64   // since the warm-up
}

// link is one shard as one process sees it: package node's rules, and what waits for them.
type link struct {
	id      int32
	p       *process
	shard   int32
	breaker *protocol.Breaker
	rules   node.Node[call]
	held    []*entry // entries with a call that waits to travel with others
	open    []*batch // of this instant, in the order in which they were begun
	pool    connections
}

// join gives a process that starts its links, which know nothing.
func (n *network) join(p *process, shards int) { n.ports[p.index].links = make([]*link, shards) }

// linkOf is the link that e's calls take.
func (n *network) linkOf(e *entry) *link { return n.linkTo(e.p, e.shard) }

// linkTo is p's link to a shard, made when it is first used: a process of a large fleet uses few.
func (n *network) linkTo(p *process, shard int32) *link {
	links := n.ports[p.index].links
	if l := links[shard]; l != nil {
		return l
	}
	jitter := p.holders // a copy: the stream itself is that of the entries
	l := &link{id: p.index*int32(len(links)) + shard, p: p, shard: shard}
	l.breaker = protocol.NewBreaker(p.config.Target, p.config.TTL, jitter.Uint64()+uint64(shard))
	l.rules.Init(l.breaker, n.timeout)
	links[shard] = l
	return l
}

// linkAt is the link with this number.
func (n *network) linkAt(id int32) *link {
	shards := int32(len(n.redis.shards))
	return n.ports[id/shards].links[id%shards]
}

// now is the clock of l's process.
func (l *link) now(n *network) clock.Instant { return l.p.local(n.time.now) }

// draw has e's draw travel with the next batch of draws, and returns the number of the call.
func (n *network) draw(e *entry, sent clock.Instant, r *lease.Request) int64 {
	c, l := n.newCall(e, r), n.linkOf(e)
	l.rules.Join(c, sent)
	n.depart(l)
	return c.number
}

// depart sends the draws that may go now, and ends the wait of those that will not go in time.
func (n *network) depart(l *link) {
	calls, stranded, again := l.rules.Depart(l.now(n))
	if again > 0 && !n.time.planned(evLane, l.id) {
		n.time.at(l.p.after(n.time.now, again), evLane, l.id)
	}
	for _, c := range stranded {
		c.entry.overdue(c.number)
	}
	if len(calls) > 0 {
		b := n.newBatch(batch{p: l.p, life: l.p.life, link: l, shard: l.shard})
		b.Draws, b.calls = true, append(b.calls, calls...)
		n.flush(b)
	}
}

// landed notes that b has come back, or never will. Calls that were held back may go then.
func (n *network) landed(b *batch) {
	l := b.link
	free := l.rules.Landed(&b.Batch)
	l.rules.Over(&b.Batch)
	if b.p.life != b.life {
		return
	}
	if free {
		for _, e := range l.held {
			if e.alive && e.pressing {
				e.askAt(n.time.now)
			}
		}
	}
	if b.Draws {
		n.depart(l)
	}
}

// expect has look called when l's rules say.
func (n *network) expect(l *link) {
	at := l.rules.LookAt()
	if at == protocol.Never {
		return
	}
	if t := l.p.when(n.time.now, at); !n.time.expects(t, evLook, l.id) {
		n.time.at(t, evLook, l.id)
	}
}

// look does what is due for the batches under way on l.
func (n *network) look(l *link) {
	now := l.now(n)
	due, forgotten := l.rules.Late(now)
	for _, x := range due {
		n.overdue(x.Owner.(*batch), now)
	}
	for _, x := range forgotten {
		n.abandon(x.Owner.(*batch))
	}
	n.expect(l)
}

// overdue has entries take over the draws of b, and ends the wait for its calls once they have
// failed.
func (n *network) overdue(b *batch, now clock.Instant) {
	waits := false
	for _, c := range slices.Clone(b.calls) {
		if c.entry.awaits(&c) {
			c.entry.use()
			waits = true
		}
	}
	if !b.Overdue(now) || !waits {
		return
	}
	if fails := b.Fails(now, b.opens == 0, b.before); fails > now {
		b.link.rules.Again(&b.Batch, fails)
		return
	}
	n.failed(b.link, now, b.Sent())
	n.giveUp(b)
}

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
	l := b.link
	now := l.now(n)
	c := &b.calls[0] // a shard that is away refuses all of them
	if protocol.NodeFailed(c.err) {
		n.failed(l, now, b.Sent())
		return
	}
	took := now.Sub(b.Sent()) - b.before
	if b.script == brought {
		took = b.refusal
	}
	l.breaker.Answered(now, b.Sent())
	spacing := time.Duration(0)
	for i := range b.calls {
		if c := &b.calls[i]; c.err == nil {
			spacing = max(spacing, protocol.Spacing(&c.grant, c.request.Weight))
		}
	}
	l.rules.Reached(now, took, spacing)
	if c.err == nil {
		node.Heard(l.breaker, now, &c.request, &c.grant)
	}
}

// failed says that a call to l's shard has failed which was sent then. If that begins an outage, all
// calls that are under way there have failed too.
func (n *network) failed(l *link, now, sent clock.Instant) {
	if !l.breaker.Failed(now, sent) {
		return
	}
	for _, x := range l.rules.UnderWay() {
		n.giveUp(x.Owner.(*batch))
	}
}

// giveUp ends the wait for the calls of b that have no answer yet. The answer may still come.
func (n *network) giveUp(b *batch) {
	for i := range b.calls {
		b.calls[i].entry.overdue(b.calls[i].number)
	}
}

package engine

import (
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
)

// This file is the connections of go-redis, and what hybrid's node.go and redisbucket make of
// them: a call that finds no connection which nobody uses opens one, and goes out over it when the
// handshake has ended. That takes longer than CallTimeout on a slow link, and is neither an outage
// nor a round trip.

// The round trips before a connection takes its first call: TCP's, HELLO and CLIENT SETINFO. The
// first of a client also asks for notifications of maintenance, which few servers know.
const handshake, handshakeFirst = 3, 4

// connectFactor is how many CallTimeouts may pass before a call is sent for which a connection is
// opened first: hybrid's.
const connectFactor = 5

// connections are the unused ones of one process to one shard.
type connections struct {
	idle   int32
	boots  int32 // of the shard when they were opened: they are broken once it has gone
	opened bool  // ever
}

// poolOf is the connections that b may take.
func (n *network) poolOf(b *batch) *connections {
	p := &n.linkTo(b.p, int(b.shard)).pool
	if boots := n.redis.shards[b.shard].boots; p.boots != boots {
		p.idle, p.boots = 0, boots
	}
	return p
}

// connect sends b over a connection that nobody uses, or begins to open one.
func (n *network) connect(b *batch) {
	p := n.poolOf(b)
	b.boots = p.boots
	if p.idle > 0 {
		p.idle--
		n.send(b)
		return
	}
	b.opens = handshake
	if !p.opened {
		p.opened, b.opens = true, handshakeFirst
	}
	n.shake(b)
}

// shake begins the next round trip of a handshake.
func (n *network) shake(b *batch) {
	b.trip = n.s.RoundTrip.Sample(&n.stream)
	n.time.at(n.time.now+b.trip, evShaken, b.id)
}

// shaken is the end of one, and of the handshake after the last: then b goes out. One that breaks
// off, or for which nobody waits any more, is not begun again.
func (n *network) shaken(b *batch) {
	switch s := n.redis.shards[b.shard]; {
	case b.wait != awaited || b.p.life != b.life || b.p.state == down || s.hangs > 0 || n.cut(b.p, n.time.now):
		n.end(b)
	case s.refuses > 0 || b.boots != s.boots || n.time.now-b.trip+b.trip/2 < s.back:
		for i := range b.calls {
			b.calls[i].err = lease.ErrRefused
		}
		n.deliver(b)
	case b.opens > 1:
		b.opens--
		n.shake(b)
	default:
		b.opens = 0
		now := b.p.local(n.time.now)
		if b.before = now.Sub(b.sent); now >= b.sent.Add(b.deadline) {
			n.time.at(b.p.when(n.time.now, b.fails(n.timeout)), evOverdue, b.id)
		}
		n.send(b)
	}
}

// fails is when the calls of b have failed if no answer comes: their time for that begins when they
// are sent, which may be after a handshake that took nearly as long.
func (b *batch) fails(timeout time.Duration) clock.Instant {
	if b.opens > 0 {
		return b.sent.Add(max(b.deadline, connectFactor*timeout))
	}
	return b.sent.Add(b.before + b.deadline)
}

// patient reports whether the calls of b have more time than others, because a connection was
// opened for them first. Entries take the draws among them over meanwhile.
func (n *network) patient(b *batch) bool {
	until := b.fails(n.timeout)
	if b.p.life != b.life || b.p.local(n.time.now) >= until {
		return false
	}
	for _, c := range slices.Clone(b.calls) {
		if c.entry.alive && c.entry.flight == c.number {
			c.entry.use()
		}
	}
	n.time.at(b.p.when(n.time.now, until), evOverdue, b.id)
	return true
}

// release gives back the connection over which b was answered, if there still is one. What is lost
// takes its connection along: so TCP loses things.
func (n *network) release(b *batch) {
	if b.p.life != b.life {
		return
	}
	if p := n.poolOf(b); p.boots == b.boots {
		p.idle++
	}
}

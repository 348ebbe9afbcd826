package engine

import "github.com/yuzhi-go/yuzhi/lease"

// This file has the connections of go-redis: a call that finds no unused connection opens one, and
// goes out over it when the handshake has ended. That takes longer than CallTimeout on a slow link, and is neither an outage
// nor a round trip.

// The round trips before a connection takes its first call: TCP's, HELLO and CLIENT SETINFO. The
// first of a client also asks for notifications of maintenance, which few servers know.
const handshake, handshakeFirst = 3, 4

// connections are the unused ones of one process to one shard.
type connections struct {
	idle   int32
	boots  int32 // of the shard when they were opened: they are broken once it has gone
	opened bool  // ever
}

// poolOf is the connections that b may take.
func (n *network) poolOf(b *batch) *connections {
	p := &b.link.pool
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
		b.before = b.link.now(n).Sub(b.Sent())
		n.send(b)
	}
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

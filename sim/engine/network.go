package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/node"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/random"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// network carries calls from processes to Redis and back, in batches, and loses some of these batches.
type network struct {
	time    *agenda
	s       *scenario.Network
	timeout time.Duration // Scenario.CallTimeout
	stream  random.Stream
	redis   *redis
	batches slots[batch]
	made    int64 // number of calls so far
	calls   int64 // number of calls since the warm-up
	trips   int64 // number of round trips since the warm-up
}

// call is one lease call on its way to Redis and back.
type call struct {
	number  int64
	entry   *entry
	key     int32
	time    int32 // the execution of the call that made grant, from 1; 0 before the first
	request lease.Request
	grant   lease.Grant
	err     error
}

// batch is a group of calls that travel together in one round trip. The slot of a batch is reused after the
// round trip has ended and no process waits for the batch.
type batch struct {
	node.Batch
	id      int32
	p       *process
	life    int32 // the process's life when the batch was sent
	link    *link
	shard   int32
	calls   []call
	trip    int64         // the network's share of the round trip, in both directions
	opens   int32         // round trips until the batch's connection is open; 0 for an open connection
	boots   int32         // value of shard.boots when the batch was sent; see poolOf
	before  time.Duration // time from Sent until the batch left over its connection
	refusal time.Duration // the round trip in which the server answered NOSCRIPT
	script  script
	travels bool // the batch is under way, or in a shard's line

	abandoned bool // the batch is answered, or the process has given up waiting for the reply
}

func (n *network) newCall(e *entry, r *lease.Request) call {
	n.made++
	n.calls++
	e.p.calls++
	return call{number: n.made, entry: e, key: e.key, request: *r}
}

// batchOn returns the batch that l fills in this instant and sends at the instant's end. batchOn returns nil
// if no batch has room and l may open no other batch.
func (n *network) batchOn(l *link) *batch {
	if last := len(l.open) - 1; last >= 0 && len(l.open[last].calls) < node.BatchSize {
		return l.open[last]
	}
	if !l.rules.Open() {
		return nil
	}
	b := n.newBatch(batch{p: l.p, life: l.p.life, link: l, shard: l.shard})
	l.open = append(l.open, b)
	n.time.at(n.time.now, evFlush, b.id)
	return b
}

func (n *network) newBatch(b batch) *batch {
	id, slot := n.batches.take()
	b.id, b.travels, b.calls = id, true, slot.calls[:0]
	*slot = b
	slot.Owner = slot
	return slot
}

func (n *network) flush(b *batch) {
	l := b.link
	l.open = slices.DeleteFunc(l.open, func(o *batch) bool { return o == b })
	if b.p.life != b.life || len(b.calls) == 0 { // a kill and a start of the process fell into this instant
		l.rules.Cancel()
		b.abandoned = true
		n.end(b)
		return
	}
	now := l.now(n)
	since := now
	if b.Draws {
		if d := b.calls[0].entry.state.UnderWay(); d != nil {
			since = d.Sent
		}
	}
	l.rules.Send(&b.Batch, now, since)
	n.expect(l)
	n.trips++
	n.connect(b)
}

func (n *network) send(b *batch) {
	if chance(n.s.Loss, &n.stream) || n.cut(b.p, n.time.now) {
		n.end(b)
		return
	}
	b.trip = n.roundTrip(b.p, &n.stream)
	n.time.at(n.time.now+n.upload(b)+b.trip/2, evRequest, b.id)
}

// roundTrip draws a round trip from the distribution of p's group, or else of the network.
func (n *network) roundTrip(p *process, stream *random.Stream) int64 {
	of := cmp.Or(p.group.RoundTrip, n.s.RoundTrip)
	return of.Sample(stream)
}

// chance reports whether an event of probability p happens. For a p of 0, chance draws no random number.
func chance(p scenario.Ratio, r *random.Stream) bool { return p > 0 && r.Bernoulli(float64(p)) }

// cut reports whether a partition separates p from Redis at the time at.
func (n *network) cut(p *process, at int64) bool {
	return slices.ContainsFunc(n.s.Partitions, func(x scenario.Partition) bool {
		return at >= int64(x.At) && at < int64(x.At+x.For) &&
			(x.Group == "" || x.Group == p.group.Name) &&
			float64(p.rank) < float64(x.Part)*float64(len(p.group.members))
	})
}

func (n *network) reply(b *batch) {
	if chance(n.s.LostReplies, &n.stream) || n.cut(b.p, n.time.now) {
		n.end(b)
		return
	}
	n.time.at(n.time.now+b.trip-b.trip/2, evReply, b.id)
}

func (n *network) replied(b *batch) {
	if n.cut(b.p, n.time.now) {
		n.end(b)
		return
	}
	if b.script == unknown {
		n.bring(b)
		return
	}
	n.release(b)
	n.deliver(b)
}

func (n *network) abandon(b *batch) {
	b.abandoned = true
	n.landed(b)
	n.reuse(b)
}

func (n *network) end(b *batch) {
	b.travels = false
	n.reuse(b)
}

func (n *network) reuse(b *batch) {
	if !b.travels && b.abandoned {
		n.batches.give(b.id)
	}
}

// link is a process's connection to one shard: the rules of package node, and the calls that wait.
type link struct {
	id      int32
	p       *process
	shard   int32
	breaker *protocol.Breaker
	rules   node.Node[call]
	held    []*entry // entries with a call that waits to travel with others
	open    []*batch // batches opened in this instant, oldest first
	pool    connections
}

// join gives links to a process that starts. The process does not wait for batches of its former life.
func (n *network) join(p *process, shards int) {
	for _, l := range p.links {
		if l != nil {
			for _, x := range l.rules.UnderWay() {
				n.abandon(x.Owner.(*batch))
			}
		}
	}
	p.links = make([]*link, shards)
}

func (n *network) linkOf(e *entry) *link { return n.linkTo(e.p, e.shard) }

// linkTo returns p's link to a shard, made on first use: a process of a large fleet uses few links.
func (n *network) linkTo(p *process, shard int32) *link {
	if l := p.links[shard]; l != nil {
		return l
	}
	jitter := p.holders // a copy, because the entries use the stream itself
	l := &link{id: p.index*int32(len(p.links)) + shard, p: p, shard: shard}
	l.breaker = protocol.NewBreaker(p.config.Target, p.config.TTL, jitter.Uint64()+uint64(shard))
	l.rules.Init(l.breaker, n.timeout)
	p.links[shard] = l
	return l
}

func (l *link) now(n *network) clock.Instant { return l.p.local(n.time.now) }

// draw adds e's draw to the next batch of draws, and returns the number of the draw's call.
func (n *network) draw(e *entry, sent clock.Instant, r *lease.Request) int64 {
	c, l := n.newCall(e, r), n.linkOf(e)
	l.rules.Join(c, sent)
	n.depart(l)
	return c.number
}

// depart sends the draws that may be sent now, and ends the wait of draws that cannot be sent in time.
func (n *network) depart(l *link) {
	calls, stranded, again := l.rules.Depart(l.now(n))
	if again > 0 && !n.time.planned(evDraws, l.id) {
		n.time.at(l.p.after(n.time.now, again), evDraws, l.id)
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

// landed records that b has returned or is lost, which may free its link for calls that were held back.
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

// expect schedules evLook at the time that l's rules require.
func (n *network) expect(l *link) {
	at := l.rules.LookAt()
	if at == protocol.Never {
		return
	}
	if t := l.p.when(n.time.now, at); !n.time.expects(t, evLook, l.id) {
		n.time.at(t, evLook, l.id)
	}
}

// look ends overdue waits for the batches under way on l.
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

// overdue starts clients for the draws of b, and, if the calls of b have failed, ends the wait for them.
func (n *network) overdue(b *batch, now clock.Instant) {
	waits := false
	for i := range b.calls {
		if c := &b.calls[i]; c.entry.awaits(c.number) {
			c.entry.activate()
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

func (n *network) deliver(b *batch) {
	if !b.abandoned {
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

// judge records on the link of an answered batch that the shard works, or is away.
func (n *network) judge(b *batch) {
	l := b.link
	now := l.now(n)
	c := &b.calls[0] // a shard that is away refuses all calls of a batch
	if protocol.NodeFailed(c.err) {
		n.failed(l, now, b.Sent())
		return
	}
	took := now.Sub(b.Sent()) - b.before
	if b.script == brought {
		took = b.refusal
	}
	l.breaker.Answered(now, b.Sent())
	l.rules.Reached(now, took)
}

// failed records the failure of a call that was sent to l's shard at sent. If the failure begins an outage,
// all calls under way to the shard have failed too.
func (n *network) failed(l *link, now, sent clock.Instant) {
	if !l.breaker.Failed(now, sent) {
		return
	}
	for _, x := range l.rules.UnderWay() {
		n.giveUp(x.Owner.(*batch))
	}
}

// giveUp ends the entries' waits for calls of b without a reply. The reply may still arrive.
func (n *network) giveUp(b *batch) {
	for i := range b.calls {
		b.calls[i].entry.overdue(b.calls[i].number)
	}
}

// The following functions simulate the connections of go-redis: a call that finds no unused connection opens
// one, and is sent after the handshake. A handshake may take longer than CallTimeout, and counts neither as
// an outage nor as a round trip.

// handshake counts the round trips before a connection takes its first call: TCP's, HELLO and CLIENT SETINFO.
// The first connection of a client also requests notifications of maintenance, which few servers support.
const handshake, handshakeFirst = 3, 4

// connections has the unused connections of one process to one shard.
type connections struct {
	idle   int32
	boots  int32 // value of shard.boots when the connections opened
	opened bool  // the process has opened a connection to the shard before
}

// poolOf returns the unused connections that b may use.
func (n *network) poolOf(b *batch) *connections {
	p := &b.link.pool
	if boots := n.redis.shards[b.shard].boots; p.boots != boots {
		p.idle, p.boots = 0, boots
	}
	return p
}

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

func (n *network) shake(b *batch) {
	b.trip = n.roundTrip(b.p, &n.stream)
	n.time.at(n.time.now+b.trip, evShaken, b.id)
}

// shaken ends a round trip of b's handshake, and sends b after the last round trip.
func (n *network) shaken(b *batch) {
	switch s := n.redis.shards[b.shard]; {
	case b.abandoned || b.p.life != b.life || b.p.state == down || n.cut(b.p, n.time.now):
		n.end(b)
	case s.hangs > 0:
		s.stalled = append(s.stalled, b)
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

// release returns b's connection to the pool after the reply, if the connection still exists. A lost batch
// also loses its connection, as with TCP.
func (n *network) release(b *batch) {
	if b.p.life != b.life {
		return
	}
	if p := n.poolOf(b); p.boots == b.boots {
		p.idle++
	}
}

// script is the state of the script in a batch. A server that has restarted does not know the script and
// answers NOSCRIPT; the process then sends the batch once more, with the script.
type script uint8

const (
	known   script = iota // sent without the script, which the server should know
	unknown               // the batch had no script, and the server answered NOSCRIPT
	brought               // the batch carries the script
)

// scriptTrips is the number of round trips that carry the script of 64 KB: TCP sends ten segments over a new
// connection, and twice as many after each acknowledgement.
const scriptTrips = 3

// bring sends b once more, with the script. The time of CallTimeout starts again, and the link measures the
// refused round trip, as redisbucket and hybrid do.
func (n *network) bring(b *batch) {
	if b.abandoned || b.p.life != b.life {
		n.end(b)
		return
	}
	took := b.p.local(n.time.now).Sub(b.Sent())
	b.script, b.refusal, b.before = brought, took-b.before, took
	n.send(b)
}

// upload returns the nanoseconds until the last segment of b's script has been sent.
func (n *network) upload(b *batch) (takes int64) {
	if b.script == brought {
		for range scriptTrips - 1 {
			takes += n.roundTrip(b.p, &n.stream)
		}
	}
	return takes
}

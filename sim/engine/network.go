package engine

import (
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/node"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/random"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// network carries calls from processes to Redis and back, in batches, and loses some of them.
type network struct {
	time    *agenda
	s       *scenario.Network
	timeout time.Duration // Scenario.CallTimeout
	stream  random.Stream
	redis   *redis
	ports   []port // of each process
	batches slots[batch]
	made    int64 // calls ever: they are numbered
	trips   int64 // since the warm-up
}

// call is one lease call on its way.
type call struct {
	number  int64
	entry   *entry
	request lease.Request
	grant   lease.Grant
	time    int // it was executed for the first, second, ... time; 0 where the answer was a stored one
	err     error
}

// batch is calls that travel together: one round trip. Its slot is used again when it has arrived
// for good and nobody waits for it.
type batch struct {
	node.Batch
	id      int32
	p       *process
	life    int32 // of the process
	link    *link
	shard   int32
	calls   []call
	trip    int64         // what the network takes of its round trip, both ways
	opens   int32         // round trips until its connection is open; 0 where it has one
	boots   int32         // of the shard; see pool
	before  time.Duration // from Sent until it left over its connection
	refusal time.Duration // the round trip in which a server did not know the script
	script  script
	travels bool // it is on its way, or in a shard's line
	wait    batchWait
}

// batchWait says whether the answer to a batch is waited for.
type batchWait uint8

const (
	awaited   batchWait = iota // its process waits
	abandoned                  // it was answered, or given up for good
	copied                     // the network has made it
)

// newCall is a call of e's, with the next number.
func (n *network) newCall(e *entry, r *lease.Request) call {
	n.made++
	n.ports[e.p.index].calls++
	return call{number: n.made, entry: e, request: *r}
}

// batchOn is the batch that l gathers in this instant, which leaves at its end; nil where there is
// none with room, and the shard takes no more.
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

// newBatch is b, without calls, on its way.
func (n *network) newBatch(b batch) *batch {
	id, slot := n.batches.take()
	b.id, b.travels, b.calls = id, true, slot.calls[:0]
	*slot = b
	slot.Owner = slot
	return slot
}

// flush sends a batch.
func (n *network) flush(b *batch) {
	l := b.link
	l.open = slices.DeleteFunc(l.open, func(o *batch) bool { return o == b })
	if b.p.life != b.life || len(b.calls) == 0 { // the process was killed and started again in this instant
		l.rules.Cancel()
		b.wait = abandoned
		n.end(b)
		return
	}
	now := l.now(n)
	since := now
	if b.Draws {
		if d := b.calls[0].entry.draw; d != nil {
			since = d.sent
		}
	}
	l.rules.Send(&b.Batch, now, since)
	n.expect(l)
	n.trips++
	n.connect(b)
}

// send has b leave over its connection.
func (n *network) send(b *batch) {
	now := n.time.now
	lost := n.chance(n.s.Loss)
	twice := n.chance(n.s.Duplicates)
	if lost || n.cut(b.p, n.time.now) {
		n.end(b)
		return
	}
	b.trip = n.s.RoundTrip.Sample(&n.stream)
	n.time.at(now+n.upload(b)+b.trip/2, evRequest, b.id)
	if twice {
		c := n.newBatch(batch{p: b.p, life: b.life, shard: b.shard, script: b.script, wait: copied})
		c.calls = append(c.calls, b.calls...)
		at := now + n.upload(c) + n.s.RoundTrip.Sample(&n.stream)/2
		if port := &n.ports[b.p.index]; n.s.DuplicatesAfter > 0 {
			at = max(at+int64(n.s.DuplicatesAfter), port.copiedAt)
			port.copiedAt = at
		}
		n.time.at(at, evRequest, c.id)
	}
}

// chance draws whether something of this probability happens. It draws nothing where it never does.
func (n *network) chance(p scenario.Ratio) bool { return p > 0 && n.stream.Bernoulli(float64(p)) }

// cut reports whether a partition separates p from Redis at a time.
func (n *network) cut(p *process, at int64) bool {
	return slices.ContainsFunc(n.s.Partitions, func(x scenario.Partition) bool {
		return at >= int64(x.At) && at < int64(x.At+x.For) &&
			(x.Group == "" || x.Group == p.group.Name) &&
			float64(p.rank) < float64(x.Part)*float64(len(p.group.members))
	})
}

// reply sends a batch's answers back.
func (n *network) reply(b *batch) {
	if b.wait == copied || n.chance(n.s.LostReplies) || n.cut(b.p, n.time.now) {
		n.end(b)
		return
	}
	n.time.at(n.time.now+b.trip-b.trip/2, evReply, b.id)
}

// replied is the arrival of a batch's answers.
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

// abandon ends the wait for b.
func (n *network) abandon(b *batch) {
	b.wait = abandoned
	n.landed(b)
	n.reuse(b)
}

// end ends b's journey.
func (n *network) end(b *batch) {
	b.travels = false
	n.reuse(b)
}

func (n *network) reuse(b *batch) {
	if !b.travels && b.wait != awaited {
		n.batches.give(b.id)
	}
}

// calls is how many calls there were since the warm-up.
func (n *network) calls() (total int64) {
	for i := range n.ports {
		total += n.ports[i].calls
	}
	return total
}

// warm ends the warm-up.
func (n *network) warm() {
	n.trips = 0
	for i := range n.ports {
		n.ports[i].calls = 0
	}
}

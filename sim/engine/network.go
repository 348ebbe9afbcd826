package engine

import (
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/random"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// What hybrid's scheduler does too: see there for the reasons.
const (
	batchWindow = time.Millisecond // between two batches of one process to one shard
	batchSize   = 1000
	lateFactor  = 10 // times CallTimeout until nobody listens for an answer any more
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
	id       int32
	p        *process
	life     int32 // of the process
	link     *link
	shard    int32
	calls    []call
	sent     clock.Instant // or its connection begun; see before
	deadline time.Duration // of its answer
	trip     int64         // what the network takes of its round trip, both ways
	opens    int32         // round trips until its connection is open; 0 where it has one
	boots    int32         // of the shard; see pool
	before   time.Duration // what the opening took
	refusal  time.Duration // the round trip in which a server did not know the script
	script   script
	draws    bool // of keys at rest
	travels  bool // it is on its way, or in a shard's line
	wait     batchWait
}

// batchWait says who waits for the answer to a batch.
type batchWait uint8

const (
	awaited   batchWait = iota // its process
	abandoned                  // nobody any more: it was answered, or given up for good
	copied                     // nobody ever: the network has made it
)

// add puts a call into the batch that leaves at the end of this instant, and returns its number.
func (n *network) add(e *entry, r *lease.Request) int64 {
	c := n.newCall(e, r)
	b := n.batchOf(e)
	b.calls = append(b.calls, c)
	return c.number
}

// newCall is a call of e's, with the next number.
func (n *network) newCall(e *entry, r *lease.Request) call {
	n.made++
	n.ports[e.p.index].calls++
	return call{number: n.made, entry: e, request: *r}
}

// batchOf is the batch that e's link gathers in this instant for e's shard; it may be a new one.
func (n *network) batchOf(e *entry) *batch {
	l := n.linkOf(e)
	for _, b := range slices.Backward(l.open) {
		if b.shard == e.shard && len(b.calls) < batchSize {
			return b
		}
	}
	b := n.newBatch(batch{p: e.p, life: e.p.life, link: l, shard: e.shard})
	l.open = append(l.open, b)
	n.time.at(n.time.now, evFlush, b.id)
	return b
}

// newBatch is b, without calls, on its way.
func (n *network) newBatch(b batch) *batch {
	id, slot := n.batches.take()
	b.id, b.travels, b.calls = id, true, slot.calls[:0]
	*slot = b
	return slot
}

// flush sends a batch.
func (n *network) flush(b *batch) {
	if b.p.life != b.life { // the process was killed and started again in this instant
		n.abandon(b)
		n.end(b)
		return
	}
	l := b.link
	l.open = slices.DeleteFunc(l.open, func(o *batch) bool { return o == b })
	now := n.time.now
	b.sent = b.p.local(now)
	if !b.draws {
		l.lastSent = b.sent
	}
	l.underWay++
	to := n.linkTo(b.p, int(b.shard))
	to.awaited = append(to.awaited, b)
	n.trips++
	last := lateFactor * n.timeout
	b.deadline = min(max(n.timeout-n.timeout/16, 2*l.latency.Quantile()), last)
	n.time.at(b.p.after(now, b.deadline), evOverdue, b.id)
	n.time.at(b.p.after(now, last), evGone, b.id)
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
	n.time.cancel(evOverdue, b.id)
	n.time.cancel(evGone, b.id)
	b.link.underWay--
	if b.p.life == b.life {
		to := n.linkTo(b.p, int(b.shard))
		to.awaited = slices.DeleteFunc(to.awaited, func(o *batch) bool { return o == b })
	}
	if b.draws {
		b.link.lane.underWay--
		if b.p.life == b.life {
			n.depart(b.p, b.link)
		}
	}
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

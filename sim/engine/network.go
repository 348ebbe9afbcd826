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
	ports   []port // of each process
	batches []*batch
	spare   []*batch // that are nowhere any more
	made    int64    // calls ever: they are numbered
	trips   int64    // since the warm-up
}

// port is what one process knows of the network.
type port struct {
	links    []link // to each shard, and last the one for keys whose shard has not answered yet
	copiedAt int64  // when the last second copy of its calls arrives, where they keep their order
	calls    int64  // since the warm-up
}

// link is what one process knows of one shard.
type link struct {
	lastSent clock.Instant
	underWay int
	latency  lease.Latency
	held     []int32 // entries with a call that waits to travel with others
	open     []int32 // the batches of this instant, in the order in which they were begun
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

// batch is calls that travel together: one round trip. Its slot is used again when it is nowhere
// any more.
type batch struct {
	id         int32
	p          *process
	life       int32 // of the process
	link       int32
	shard      int32
	server     int32 // the shard's life when it arrived
	calls      []call
	sent       clock.Instant
	overdueSeq uint64 // the event that has its entries go on without it
	goneSeq    uint64 // the event that ends the wait for it
	pending    int    // the stages of its journey that are to come: events, and a place in a shard's line
	landed     bool   // answered, or given up for good
	copied     bool   // a duplicate: nobody is waiting for its answer
	refused    bool
}

// join gives a process that starts its links, which know nothing.
func (n *network) join(p *process, shards int) { n.ports[p.index].links = make([]link, shards+1) }

// linkOf is the link that e's calls take.
func (n *network) linkOf(e *entry) *link {
	links := n.ports[e.p.index].links
	if e.known {
		return &links[e.shard]
	}
	return &links[len(links)-1]
}

// add puts a call into the batch that leaves at the end of this instant, and returns its number.
func (n *network) add(e *entry, r *lease.Request) int64 {
	b := n.batchOf(n.linkOf(e), e)
	n.made++
	n.ports[e.p.index].calls++
	b.calls = append(b.calls, call{number: n.made, entry: e, request: *r})
	return n.made
}

// batchOf is the batch that l gathers in this instant for e's shard.
func (n *network) batchOf(l *link, e *entry) *batch {
	for i := len(l.open) - 1; i >= 0; i-- {
		if b := n.batches[l.open[i]]; b.shard == e.shard {
			if len(b.calls) < batchSize {
				return b
			}
			break // those before it are full too
		}
	}
	b := n.newBatch()
	b.p, b.life, b.shard = e.p, e.p.life, e.shard
	b.link = e.shard
	if !e.known {
		b.link = int32(len(n.ports[e.p.index].links) - 1)
	}
	l.open = append(l.open, b.id)
	n.stage(b, n.time.now, evFlush)
	return b
}

func (n *network) newBatch() *batch {
	if last := len(n.spare) - 1; last >= 0 {
		b := n.spare[last]
		n.spare = n.spare[:last]
		*b = batch{id: b.id, calls: b.calls[:0]}
		return b
	}
	b := &batch{id: int32(len(n.batches))}
	n.batches = append(n.batches, b)
	return b
}

// stage makes the event of the next stage of b's journey.
func (n *network) stage(b *batch, at int64, kind eventKind) {
	b.pending++
	n.time.at(at, kind, b.id)
}

// done ends a stage of b's journey.
func (n *network) done(b *batch) {
	b.pending--
	n.reuse(b)
}

// reuse frees b's slot if it is nowhere any more.
func (n *network) reuse(b *batch) {
	if b.pending == 0 && b.landed {
		n.spare = append(n.spare, b)
	}
}

// flush sends a batch.
func (n *network) flush(b *batch) {
	if b.p.life != b.life { // the process was killed and started again in this instant
		n.land(b)
		return
	}
	port := &n.ports[b.p.index]
	l := &port.links[b.link]
	l.open = slices.DeleteFunc(l.open, func(id int32) bool { return id == b.id })
	now := n.time.now
	l.lastSent = b.p.local(now)
	b.sent = l.lastSent
	l.underWay++
	n.trips++
	last := lateFactor * n.timeout
	overdue := min(max(n.timeout-n.timeout/16, 2*l.latency.Quantile()), last)
	b.overdueSeq = n.time.at(b.p.after(now, overdue), evOverdue, b.id)
	b.goneSeq = n.time.at(b.p.after(now, last), evGone, b.id)

	lost := n.chance(n.s.Loss)
	twice := n.chance(n.s.Duplicates)
	if lost || n.cut(b.p) {
		return
	}
	n.stage(b, now+n.oneWay(), evRequest)
	if twice {
		c := n.newBatch()
		calls := append(c.calls, b.calls...)
		*c = batch{id: c.id, p: b.p, life: b.life, shard: b.shard, calls: calls, landed: true, copied: true}
		at := now + n.oneWay()
		if n.s.DuplicatesAfter > 0 {
			at = max(at+int64(n.s.DuplicatesAfter), port.copiedAt)
			port.copiedAt = at
		}
		n.stage(c, at, evRequest)
	}
}

// chance draws whether something of this probability happens. It draws nothing where it never does.
func (n *network) chance(p scenario.Ratio) bool { return p > 0 && n.stream.Bernoulli(float64(p)) }

// oneWay is the time of one way through the network.
func (n *network) oneWay() int64 { return n.s.RoundTrip.Sample(&n.stream) / 2 }

// cut reports whether a partition separates p from Redis now.
func (n *network) cut(p *process) bool {
	for i := range n.s.Partitions {
		x := &n.s.Partitions[i]
		now := n.time.now >= int64(x.At) && n.time.now < int64(x.At+x.For)
		if !now || x.Group != "" && x.Group != p.group.Name {
			continue
		}
		if x.Part == 0 || float64(p.rank) < float64(x.Part)*float64(len(p.group.members)) {
			return true
		}
	}
	return false
}

// reply sends a batch's answers back.
func (n *network) reply(b *batch) {
	if b.copied || n.chance(n.s.LostReplies) || n.cut(b.p) {
		return
	}
	n.stage(b, n.time.now+n.oneWay(), evReply)
}

// answered is the calls of a batch that has come back, for the process that waits for them; none
// where nobody does any more.
func (n *network) answered(b *batch) []call {
	if n.cut(b.p) || b.landed {
		return nil
	}
	n.land(b)
	if b.p.life != b.life {
		return nil
	}
	if !b.refused {
		now := b.p.local(n.time.now)
		n.ports[b.p.index].links[b.shard].latency.Add(now, now.Sub(b.sent))
	}
	return b.calls
}

// land ends the wait for a batch.
func (n *network) land(b *batch) {
	b.landed, b.overdueSeq, b.goneSeq = true, 0, 0
	if b.p.life == b.life {
		n.ports[b.p.index].links[b.link].underWay--
	}
}

// overdue is the calls of a batch that has taken too long: their entries go on without it.
func (n *network) overdue(e event) []call {
	b := n.batches[e.who]
	if b.overdueSeq != e.seq || n.postponed(b, &b.overdueSeq, evOverdue) || b.p.life != b.life {
		return nil
	}
	return b.calls
}

// gone ends the wait for a batch that nobody listens for any more.
func (n *network) gone(e event) {
	b := n.batches[e.who]
	if b.goneSeq != e.seq || n.postponed(b, &b.goneSeq, evGone) {
		return
	}
	n.land(b)
	n.reuse(b)
}

// postponed has a timer of b, whose event seq numbers, go off when its process is awake again.
func (n *network) postponed(b *batch, seq *uint64, kind eventKind) bool {
	if !n.asleep(b) {
		return false
	}
	*seq = n.time.at(b.p.resumed(), kind, b.id)
	return true
}

// asleep reports whether whoever sent b is stopped now.
func (n *network) asleep(b *batch) bool { return b.p.pausedUntil > 0 && b.p.life == b.life }

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

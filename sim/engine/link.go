package engine

import (
	"slices"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// link is what one process knows of one shard, or of those whose keys no shard has answered for yet, and the batches that
// are being gathered.
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
	time    int // it was executed as the first, second, ... of its seq; 0 where the bucket gave its stored answer
	err     error
}

// batch is calls that travel together: one round trip. Its slot is used again when it is nowhere any more.
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

// addCall puts a call into l's batch and returns its number.
func (w *world) addCall(l *link, e *entry, r *lease.Request) int64 {
	b := w.batchOf(l, e)
	w.callNumber++
	b.calls = append(b.calls, call{number: w.callNumber, entry: e, request: *r})
	return w.callNumber
}

// batchOf is the batch that l gathers in this instant for e's shard.
func (w *world) batchOf(l *link, e *entry) *batch {
	for i := len(l.open) - 1; i >= 0; i-- {
		if b := w.batches[l.open[i]]; b.shard == e.shard {
			if len(b.calls) < batchSize {
				return b
			}
			break // those before it are full too
		}
	}
	b := w.newBatch()
	b.p, b.life, b.shard = e.p, e.p.life, e.shard
	b.link = e.shard
	if !e.known {
		b.link = int32(len(e.p.links) - 1)
	}
	l.open = append(l.open, b.id)
	w.event(b, w.now, evFlush)
	return b
}

func (w *world) newBatch() *batch {
	if n := len(w.freeBatches); n > 0 {
		b := w.freeBatches[n-1]
		w.freeBatches = w.freeBatches[:n-1]
		*b = batch{id: b.id, calls: b.calls[:0]}
		return b
	}
	b := &batch{id: int32(len(w.batches))}
	w.batches = append(w.batches, b)
	return b
}

// event makes an event about b, the next stage of its journey.
func (w *world) event(b *batch, at int64, kind eventKind) {
	b.pending++
	w.at(at, kind, b.id)
}

// done is called when a stage of b's journey has passed.
func (w *world) done(b *batch) {
	b.pending--
	w.free(b)
}

// free has b used again, if it is nowhere any more.
func (w *world) free(b *batch) {
	if b.pending == 0 && b.landed {
		w.freeBatches = append(w.freeBatches, b)
	}
}

// flush sends a batch.
func (w *world) flush(b *batch) {
	if b.p.life != b.life { // it was killed and started again in this instant
		w.land(b)
		return
	}
	l := &b.p.links[b.link]
	l.open = slices.DeleteFunc(l.open, func(id int32) bool { return id == b.id })
	l.lastSent = b.p.local()
	b.sent = l.lastSent
	l.underWay++
	w.roundTrips++
	timeout := w.s.CallTimeout
	last := lateFactor * timeout
	b.overdueSeq = w.at(b.p.after(min(max(timeout-timeout/16, 2*l.latency.Quantile()), last)), evOverdue, b.id)
	b.goneSeq = w.at(b.p.after(last), evGone, b.id)

	net := &w.s.Network
	lost := w.chance(net.Loss)
	twice := w.chance(net.Duplicates)
	if lost || w.cut(b.p) {
		return
	}
	w.event(b, w.now+w.oneWay(), evRequest)
	if twice {
		c := w.newBatch()
		id, calls := c.id, append(c.calls, b.calls...)
		*c = batch{id: id, p: b.p, life: b.life, shard: b.shard, calls: calls, landed: true, copied: true}
		at := w.now + w.oneWay()
		if net.DuplicatesAfter > 0 {
			at = max(at+int64(net.DuplicatesAfter), b.p.copiedAt)
			b.p.copiedAt = at
		}
		w.event(c, at, evRequest)
	}
}

// chance draws whether something of this probability happens; it draws nothing where it never does.
func (w *world) chance(p scenario.Ratio) bool { return p > 0 && w.netStream.Bernoulli(float64(p)) }

// oneWay is the time of one way through the network.
func (w *world) oneWay() int64 { return w.s.Network.RoundTrip.Sample(&w.netStream) / 2 }

// reply sends a batch's answers back.
func (w *world) reply(b *batch) {
	if b.copied || w.chance(w.s.Network.LostReplies) || w.cut(b.p) {
		return
	}
	w.event(b, w.now+w.oneWay(), evReply)
}

// answered brings a batch's answers to its entries.
func (w *world) answered(b *batch) {
	if b.landed {
		return
	}
	w.land(b)
	if b.p.life != b.life {
		return
	}
	if !b.refused {
		b.p.links[b.shard].latency.Add(b.p.local(), b.p.local().Sub(b.sent))
	}
	for i := range b.calls {
		c := &b.calls[i]
		if c.entry.alive {
			c.entry.receive(c)
		}
	}
}

// land ends the wait for a batch.
func (w *world) land(b *batch) {
	b.landed, b.overdueSeq, b.goneSeq = true, 0, 0
	if b.p.life == b.life {
		b.p.links[b.link].underWay--
	}
}

// late is when a batch has taken too long: its entries go on without it, or nobody listens for it any more.
func (w *world) late(e event) {
	b := w.batches[e.who]
	seq := &b.overdueSeq
	if e.kind == evGone {
		seq = &b.goneSeq
	}
	switch {
	case *seq != e.seq:
	case b.asleep():
		*seq = w.at(b.p.resumed(), e.kind, e.who)
	case e.kind == evGone:
		w.land(b)
		w.free(b)
	default:
		w.overdue(b)
	}
}

// asleep reports whether whoever sent b is stopped now.
func (b *batch) asleep() bool { return b.p.pausedUntil > 0 && b.p.life == b.life }

// overdue tells b's entries that they have waited long enough.
func (w *world) overdue(b *batch) {
	if b.p.life != b.life {
		return
	}
	for i := range b.calls {
		b.calls[i].entry.overdue(b.calls[i].number)
	}
}

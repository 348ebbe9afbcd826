package sim

import (
	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
)

// link is what one process knows of one shard, and the batch that is being gathered for it.
type link struct {
	lastSent clock.Instant
	underWay int
	latency  lease.Latency
	held     []int32 // entries with a call that waits to travel with others
	open     int32   // the batch of this instant; 0 for none
}

// call is one lease call on its way.
type call struct {
	number  int64
	entry   *entry
	request lease.Request
	grant   lease.Grant
	err     error
}

// batch is calls that travel together: one round trip. Its slot is used again when no event names it any more.
type batch struct {
	id      int32
	p       *process
	life    int32 // of the process
	link    int32
	shard   int32
	server  int32 // the shard's life when it arrived
	calls   []call
	sent    clock.Instant
	pending int  // events that name it
	landed  bool // answered, or given up for good
	copied  bool // a duplicate: nobody is waiting for its answer
	refused bool
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
	if l.open != 0 {
		if b := w.batches[l.open]; b.shard == e.shard && len(b.calls) < batchSize {
			return b
		}
		w.flush(w.batches[l.open])
	}
	b := w.newBatch()
	b.p, b.life, b.shard = e.p, e.p.life, e.shard
	b.link = e.shard
	if !e.known {
		b.link = int32(len(e.p.links) - 1)
	}
	l.open = b.id
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
	b := &batch{id: int32(len(w.batches))} // number 0 is nobody's: links say so that they gather none
	w.batches = append(w.batches, b)
	return b
}

// event makes an event about b, which stays in use until then.
func (w *world) event(b *batch, at int64, kind eventKind) {
	b.pending++
	w.at(at, kind, b.id)
}

// done is called when an event about b has been handled.
func (w *world) done(b *batch) {
	if b.pending--; b.pending == 0 {
		w.freeBatches = append(w.freeBatches, b)
	}
}

// flush sends a batch.
func (w *world) flush(b *batch) {
	l := &b.p.links[b.link]
	if l.open != b.id {
		return // it was full before the instant ended
	}
	l.open = 0
	l.lastSent = b.p.local()
	b.sent = l.lastSent
	l.underWay++
	w.roundTrips++
	timeout := w.s.CallTimeout
	last := lateFactor * timeout
	w.event(b, b.p.after(min(max(timeout-timeout/16, 2*l.latency.Quantile()), last)), evOverdue)
	w.event(b, b.p.after(last), evGone)

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
		*c = *b
		c.id, c.calls, c.pending, c.copied = id, calls, 0, true
		w.event(c, w.now+w.oneWay(), evRequest)
	}
}

// chance draws whether something of this probability happens; it draws nothing where it never does.
func (w *world) chance(p Ratio) bool { return p > 0 && w.netStream.Bernoulli(float64(p)) }

// oneWay is the time of one way through the network.
func (w *world) oneWay() int64 { return w.s.Network.RoundTrip.sample(&w.netStream) / 2 }

// reply sends a batch's answers back.
func (w *world) reply(b *batch) {
	if b.copied || w.chance(w.s.Network.LostReplies) || w.cut(b.p) {
		return
	}
	w.event(b, w.now+w.oneWay(), evReply)
}

// answered brings a batch's answers to its entries.
func (w *world) answered(b *batch) {
	if b.landed || b.p.life != b.life {
		return
	}
	b.landed = true
	l := &b.p.links[b.link]
	l.underWay--
	if !b.refused {
		b.p.links[b.shard].latency.Add(b.p.local().Sub(b.sent))
	}
	for i := range b.calls {
		c := &b.calls[i]
		if c.entry.alive {
			c.entry.receive(c)
		}
	}
}

// overdue tells b's entries that they have waited long enough.
func (w *world) overdue(b *batch) {
	if b.landed || b.p.life != b.life {
		return
	}
	for i := range b.calls {
		b.calls[i].entry.overdue(b.calls[i].number)
	}
}

// gone ends the wait for a late answer.
func (w *world) gone(b *batch) {
	if !b.landed && b.p.life == b.life {
		b.landed = true
		b.p.links[b.link].underWay--
	}
}

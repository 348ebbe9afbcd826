package engine

import (
	"fmt"

	"github.com/yuzhi-go/yuzhi/lease"
)

// books follow every token from the bucket that granted it to where it ended. They must balance at the end of every run:
// what buckets granted was accepted by a holder or never reached one; what a holder accepted was admitted, returned, burnt
// or is held; what holders admitted went to requests.
type books struct {
	granted     int64 // by all buckets
	undelivered int64 // of it: in answers that nobody accepted, and that nobody can accept any more
	closed      lease.Account
	toRequests  int64 // tokens that requests were admitted with
	unbalanced  error // the first thing that is wrong
}

// granted books what a bucket granted in a call that it executed.
func (w *world) granted(c *call) {
	w.books.granted += c.grant.Granted
	x := &c.entry.executed
	switch {
	case !c.entry.alive || c.request.Seq < x.seq || c.request.Seq == x.seq && x.accepted:
		w.books.undelivered += c.grant.Granted // a later call has closed it, or it was answered already
		return
	case c.request.Seq == x.seq:
		x.granted += c.grant.Granted // by a bucket that had forgotten the first time
	default:
		w.books.undelivered += x.granted
		w.audit.closeAll(c.entry.key, x.drawn, false)
		*x = executed{seq: c.request.Seq, granted: c.grant.Granted, drawn: x.drawn[:0]}
	}
	x.drawn = append(x.drawn, w.audit.open(w.now, c.entry.key, c.grant.Waited))
	c.time = len(x.drawn)
	c.entry.abandon()
}

// abandon notes that a call whose answer the holder does not wait for any more admits nobody.
func (e *entry) abandon() {
	if x := &e.executed; len(x.drawn) > 0 && (x.seq != e.asked || !e.holder.IsOpen()) {
		e.w.audit.closeAll(e.key, x.drawn, false)
		x.drawn = x.drawn[:0]
	}
}

// accepted books a grant that has reached its holder, and returns what was drawn for requests that
// wait. It must be one that was made, and be accepted once.
func (w *world) accepted(c *call) (handed drawn) {
	e, g, x := c.entry, &c.grant, &c.entry.executed
	if c.time == 0 {
		c.time = len(x.drawn) // a stored answer is that of the last execution
	}
	if x.seq != g.Seq || x.accepted || g.Granted > x.granted || c.time == 0 || x.drawn[c.time-1].n != g.Waited {
		w.books.complain("process %d, key %d accepted %d tokens, %d for requests that wait, in answer to call %d, having been granted %+v", e.p.index, e.key, g.Granted, g.Waited, g.Seq, *x)
		return w.audit.open(w.now, e.key, g.Waited)
	}
	w.books.undelivered += x.granted - g.Granted
	handed = x.drawn[c.time-1]
	x.drawn[c.time-1].n = 0
	w.audit.closeAll(e.key, x.drawn, false)
	x.granted, x.accepted, x.drawn = 0, true, x.drawn[:0]
	return handed
}

// close takes in the account of a holder that has ended.
func (b *books) close(e *entry) {
	e.w.audit.closeAll(e.key, e.executed.drawn, false)
	a := e.holder.Account()
	b.check(e, a)
	b.closed = b.closed.Plus(a)
	b.undelivered += e.executed.granted
}

func (b *books) check(e *entry, a lease.Account) {
	if !a.Conserved() {
		b.complain("process %d, key %d: %+v", e.p.index, e.key, a)
	}
}

// complain notes what is wrong; the first such note is the run's error.
func (b *books) complain(format string, args ...any) {
	if b.unbalanced == nil {
		b.unbalanced = fmt.Errorf("%w: "+format, append([]any{ErrNotConserved}, args...)...)
	}
}

// balance says what does not balance.
func (w *world) balance() error {
	b := w.books
	total, waiting := b.closed, int64(0)
	for _, e := range w.entries {
		if !e.alive {
			continue
		}
		a := e.holder.Account()
		b.check(e, a)
		total = total.Plus(a)
		b.undelivered += e.executed.granted
		for x := e.queue.head; x != nil; x = x.next {
			waiting += x.got
		}
	}
	switch {
	case b.unbalanced != nil:
		return b.unbalanced
	case b.granted != total.Granted+b.undelivered:
		return fmt.Errorf("%w: buckets granted %d, holders accepted %d, %d never arrived", ErrNotConserved, b.granted, total.Granted, b.undelivered)
	case total.Admitted != b.toRequests+waiting:
		return fmt.Errorf("%w: holders admitted %d, requests got %d and hold %d while they wait", ErrNotConserved, total.Admitted, b.toRequests, waiting)
	}
	return nil
}

// burnt is the tokens that were leased and lost so far: by their holders, and on the way to them.
func (w *world) burnt() int64 {
	n := w.books.closed.Burnt + w.books.undelivered
	for _, e := range w.entries {
		if e.alive {
			n += e.holder.Account().Burnt
		}
	}
	return n
}

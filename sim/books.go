package sim

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
	unbalanced  error // the first holder whose account does not balance
}

// granted books what a bucket granted in a call that it executed.
func (w *world) granted(c *call) {
	w.books.granted += c.grant.Granted
	if e := c.entry; e.alive {
		// A later call closes the one before.
		if c.request.Seq > e.executed.seq {
			w.books.undelivered += e.executed.granted
			e.executed = executed{c.request.Seq, c.grant.Granted}
			return
		}
		if c.request.Seq == e.executed.seq { // by a bucket that had forgotten the first time
			w.books.undelivered += e.executed.granted
			e.executed.granted = c.grant.Granted
			return
		}
	}
	w.books.undelivered += c.grant.Granted
}

// accepted books a grant that has reached its holder.
func (w *world) accepted(e *entry, g *lease.Grant) {
	if e.executed.seq == g.Seq {
		w.books.undelivered += e.executed.granted - g.Granted
	} else {
		w.books.undelivered -= g.Granted
	}
	e.executed.granted = 0
}

// close takes in the account of a holder that has ended.
func (b *books) close(e *entry) {
	a := e.holder.Account()
	b.check(e, a)
	b.closed = b.closed.Plus(a)
	b.undelivered += e.executed.granted
}

func (b *books) check(e *entry, a lease.Account) {
	if !a.Conserved() && b.unbalanced == nil {
		b.unbalanced = fmt.Errorf("%w: process %d, key %d: %+v", ErrNotConserved, e.p.index, e.key, a)
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

// burnt is the tokens that were lost so far.
func (w *world) burnt() int64 {
	n := w.books.closed.Burnt
	for _, e := range w.entries {
		if e.alive {
			n += e.holder.Account().Burnt
		}
	}
	return n
}

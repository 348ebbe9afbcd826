package engine

import (
	"errors"
	"fmt"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/audit"
)

// ErrNotConserved is wrapped by the error of a run whose books do not balance: a mistake in this
// program or in lease.
var ErrNotConserved = errors.New("sim: tokens lost or forged")

// conservation follows every token from the bucket that granted it to where it ended. At the end of
// a run, what buckets granted was accepted by a holder or never reached one; what a holder accepted
// was admitted, returned, burnt or is held; and what holders admitted went to requests.
type conservation struct {
	granted     int64 // by all buckets
	undelivered int64 // of it: in answers that nobody accepted, and that nobody can accept any more
	ended       lease.Account
	toRequests  int64 // tokens that requests were admitted with
	burntBefore int64 // burnt in the warm-up
	unbalanced  error // the first thing that is wrong
}

// execution is the last of an entry's calls that a bucket has executed, and what it granted.
type execution struct {
	seq, granted int64
	accepted     bool          // by the holder; then granted is 0, and drawn empty
	drawn        []audit.Drawn // for requests that wait: once for each time that the call was executed
}

// executed books what a bucket granted in a call; nothing where it gave its stored answer again,
// which is that of the last execution so far.
func (b *books) executed(c *call, stored bool) {
	x := &c.entry.last
	if stored {
		c.time = len(x.drawn)
		return
	}
	b.granted += c.grant.Granted
	switch {
	case !c.entry.alive || c.request.Seq < x.seq || c.request.Seq == x.seq && x.accepted:
		b.undelivered += c.grant.Granted // a later call has closed it, or it was answered already
		return
	case c.request.Seq == x.seq:
		x.granted += c.grant.Granted // by a bucket that had forgotten the first time
	default:
		b.undelivered += x.granted
		b.audit.Close(c.entry.key, false, x.drawn...)
		*x = execution{seq: c.request.Seq, granted: c.grant.Granted, drawn: x.drawn[:0]}
	}
	x.drawn = append(x.drawn, b.audit.Open(b.time.now, c.entry.key, c.grant.Waited))
	c.time = len(x.drawn)
	b.abandon(c.entry)
}

// abandon books that a call whose answer the holder does not wait for any more admits nobody.
func (b *books) abandon(e *entry) {
	if x := &e.last; len(x.drawn) > 0 && (x.seq != e.asked || !e.client.IsOpen()) {
		b.audit.Close(e.key, false, x.drawn...)
		x.drawn = x.drawn[:0]
	}
}

// accepted books a grant that has reached its holder, and returns what was drawn for requests that
// wait. It must be one that was made, and be accepted once.
func (b *books) accepted(c *call) (handed audit.Drawn) {
	e, g, x := c.entry, &c.grant, &c.entry.last
	made := x.seq == g.Seq && !x.accepted && g.Granted <= x.granted
	if !made || c.time == 0 || c.time > len(x.drawn) || x.drawn[c.time-1].N != g.Waited {
		b.complain("process %d, key %d accepted %d tokens, %d for requests that wait, in answer to call %d, having been granted %+v",
			e.p.index, e.key, g.Granted, g.Waited, g.Seq, *x)
		return b.audit.Open(b.time.now, e.key, g.Waited)
	}
	b.undelivered += x.granted - g.Granted
	handed = x.drawn[c.time-1]
	x.drawn[c.time-1].N = 0
	b.audit.Close(e.key, false, x.drawn...)
	x.granted, x.accepted, x.drawn = 0, true, x.drawn[:0]
	return handed
}

// close takes in the account of a holder that has ended.
func (b *books) close(e *entry) {
	b.audit.Close(e.key, false, e.last.drawn...)
	a := e.client.Account()
	b.check(e, a)
	b.ended = b.ended.Plus(a)
	b.undelivered += e.last.granted
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

// balance says what does not balance, where these are all entries.
func (b *books) balance(entries []*entry) error {
	total, undelivered, waiting := b.ended, b.undelivered, int64(0)
	for _, e := range entries {
		if !e.alive {
			continue
		}
		a := e.client.Account()
		b.check(e, a)
		total = total.Plus(a)
		undelivered += e.last.granted
		e.client.Waiters(func(x *lease.Waiter) { waiting += x.Got() })
	}
	switch {
	case b.unbalanced != nil:
		return b.unbalanced
	case b.granted != total.Granted+undelivered:
		return fmt.Errorf("%w: buckets granted %d, holders accepted %d, %d never arrived",
			ErrNotConserved, b.granted, total.Granted, undelivered)
	case total.Admitted != b.toRequests+waiting:
		return fmt.Errorf("%w: holders admitted %d, requests got %d and hold %d while they wait",
			ErrNotConserved, total.Admitted, b.toRequests, waiting)
	}
	return nil
}

// burnt is the tokens that were leased and lost so far: by their holders, and on the way to them.
func (b *books) burnt(entries []*entry) int64 {
	n := b.ended.Burnt + b.undelivered
	for _, e := range entries {
		if e.alive {
			n += e.client.Account().Burnt
		}
	}
	return n
}

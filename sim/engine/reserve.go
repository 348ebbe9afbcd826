package engine

import (
	"github.com/yuzhi-go/yuzhi/internal/pool"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/sim/audit"
)

// reservation is a request that reserves its tokens until its cost is known. The central bucket has a second
// reservation for the same request, which the same process settles.
type reservation struct {
	id        int32
	ofCentral bool // a central reservation uses only request, actual, cancelled and life
	request   request
	actual    int64 // final cost in tokens
	hold      int64 // nanoseconds from the admission until the final cost is known
	cancelled bool  // the settlement gives back all tokens of the reservation

	life   int32  // life of the process that admitted the request
	entry  *entry // the entry that admitted the request; the key may have another entry at the settlement
	tokens int64  // bucket tokens in the reservation; 0 for an admission without the store
	draw   pool.Draw
	pooled int64         // tokens that may go back to the pool
	open   []audit.Drawn // for a cancelled reservation: admissions that the auditor has not closed yet
}

// reserve draws the final cost of r, and the time at which the cost becomes known.
func (f *fleet) reserve(r *request) {
	load, stream := r.p.group.load, &r.p.reservations
	id, x := f.reservations.take()
	*x = reservation{id: id, actual: r.n, open: x.open[:0]}
	if !load.Actual.IsZero() {
		x.actual = load.Actual.Sample(stream)
	}
	x.hold = load.Hold.Sample(stream)
	x.cancelled = load.Cancelled > 0 && stream.Bernoulli(float64(load.Cancelled))
	r.reservation, x.request = id+1, *r
	if r.central {
		id, c := f.reservations.take()
		*c = reservation{id: id, ofCentral: true, request: *r, actual: x.actual, cancelled: x.cancelled,
			open: c.open[:0], life: r.p.life}
		f.time.at(f.time.now+x.hold, evSettle, id)
	}
}

// reservationOf returns r's reservation, or nil if r reserves nothing.
func (f *fleet) reservationOf(r *request) *reservation {
	if r.reservation == 0 {
		return nil
	}
	return f.reservations.all[r.reservation-1]
}

// admit records that e admits r with the tokens of d: for good, or until a cancellation of r.
func (e *entry) admit(r *request, d protocol.Decision) {
	x := e.fleet.reservationOf(r)
	if x == nil || !x.cancelled {
		e.fleet.books.audit.Admit(e.fleet.time.now, r.key, r.n)
	} else {
		x.open = append(x.open, e.fleet.books.audit.Open(e.fleet.time.now, r.key, r.n))
	}
	x.has(r.n, d)
}

// has records the tokens that admitted the request of x.
func (x *reservation) has(n int64, d protocol.Decision) {
	if x != nil {
		x.tokens, x.draw, x.pooled = n, d.Draw, d.Pooled
	}
}

// begin schedules the settlement of x, or drops x if e does not admit it.
func (x *reservation) begin(e *entry, ok bool) {
	if !ok {
		e.fleet.reservations.give(x.id)
		return
	}
	x.entry, x.life = e, e.p.life
	e.fleet.time.at(e.fleet.time.now+x.hold, evSettle, x.id)
}

// settle ends x, or postpones the end while x's process is paused. A process that has ended has spent all
// tokens.
func (f *fleet) settle(x *reservation) {
	r, b := &x.request, f.books
	if r.p.life == x.life && r.p.pausedUntil > 0 {
		f.time.at(r.p.sees(evSettle), evSettle, x.id)
		return
	}
	more := x.actual - r.n
	if x.cancelled {
		more = -r.n
	}
	spent := true
	switch p := r.p; {
	case p.state != running || p.life != x.life || more == 0:
	case x.ofCentral:
		b.central[r.key].Settle(f.time.now/1000, more)
	case more > 0:
		e := f.entry(p, r.key)
		n := e.client.Charge(e.Now(), more)
		e.charged, b.charged = e.charged+n, b.charged+n
		e.Wake(false)
	case x.tokens == 0: // a fallback took no tokens, so none can be given back
	case x.cancelled:
		e, pooled := f.entry(p, r.key), x.pooled
		if e != x.entry {
			pooled = 0
		}
		if e.client.GiveBack(e.Now(), r.n, pooled, x.draw) {
			b.cancelled(r)
			spent = false
		}
		e.Wake(false)
	default:
		e := f.entry(p, r.key)
		e.client.Holder.Refund(-more, &x.draw)
		b.refunded -= more
		e.Wake(false)
	}
	b.audit.Close(r.key, spent, x.open...)
	x.open = x.open[:0]
	f.reservations.give(x.id)
}

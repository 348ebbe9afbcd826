package engine

import (
	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
)

// schedule sets when e is asked next.
func (e *entry) schedule(next clock.Instant) {
	if next == lease.Never {
		e.pollSeq = 0
		return
	}
	at := e.p.when(e.fleet.time.now, next)
	if e.pollSeq == 0 || e.pollAt != at {
		e.pollAt = at
		e.pollSeq = e.fleet.time.at(at, evPoll, e.id)
	}
}

// ask polls e, and sends its call if it is time.
func (e *entry) ask() {
	e.pollSeq = 0
	call, next := e.poll()
	if !e.alive {
		return
	}
	if !call {
		e.pressing = false
		e.schedule(next)
		return
	}
	l := e.fleet.network.linkOf(e)
	now := e.now()
	if len(l.open) == 0 && now < l.lastSent.Add(batchWindow) && !(e.pressing && l.underWay == 0) {
		l.held = append(l.held, e.id)
		e.schedule(l.lastSent.Add(batchWindow))
		return
	}
	e.call()
	held := l.held
	l.held = l.held[:0]
	for _, id := range held { // what was held back goes along
		h := e.fleet.entries[id]
		if !h.alive || h.flight != 0 || h == e || h.p != e.p || e.fleet.network.linkOf(h) != l {
			continue
		}
		if call, next := h.poll(); !h.alive {
		} else if call {
			h.call()
		} else {
			h.schedule(next)
		}
	}
}

// poll asks the client whether a call is due, and when to ask again.
func (e *entry) poll() (call bool, next clock.Instant) {
	now := e.now()
	due := e.client.Tick(now, e.fleet.network.linkOf(e).latency.Quantile())
	e.fleet.books.abandon(e)
	switch {
	case e.client.Closed():
		e.finish()
		return false, lease.Never
	case due.Use == lease.InUse:
		return due.Call, due.At
	case due.Use == lease.UseEnded:
		e.leaveAt = now.Add(e.client.Lifetime())
	case due.Use == lease.Restable && e.rest():
		return false, lease.Never
	}
	if now >= e.leaveAt {
		e.finish()
		return false, lease.Never
	}
	return false, min(due.At, e.leaveAt)
}

// polled is the event of its next poll.
func (e *entry) polled(ev event) {
	switch {
	case !e.alive || e.pollSeq != ev.seq:
	case e.p.pausedUntil > 0:
		e.pollAt = e.p.resumed()
		e.pollSeq = e.fleet.time.at(e.pollAt, evPoll, e.id)
	default:
		e.ask()
	}
}

// spend is the event of an adversary whose lease is about to end.
func (e *entry) spend(ev event) {
	if e.alive && e.spendSeq == ev.seq && e.p.pausedUntil == 0 && e.now() < e.client.Deadline() {
		e.fleet.askers.drain(e)
	}
}

// call builds e's call into the batch that l sends at the end of this instant.
func (e *entry) call() {
	e.pressing = false
	if e.isAdversary() {
		e.fleet.askers.drain(e)
	}
	e.p.seq++
	r := e.client.Build(e.now(), e.p.seq, e.fleet.network.linkOf(e).latency.Quantile())
	e.asked = r.Seq
	e.flight = e.fleet.network.add(e, r)
	_, next := e.poll() // while the call is under way the lease may end
	e.schedule(next)
}

// receive takes in what the store answered to one call.
func (e *entry) receive(c *call) {
	now := e.now()
	current := c.number == e.flight
	if current {
		e.flight = 0
	}
	e.known = true
	err := c.err
	if err == nil {
		err = lease.ErrUnavailable // a reply to another call
		if got, ok := e.client.Accept(now, &c.grant); ok {
			e.flight, current = 0, false
			e.serve(now, got, c)
		}
	}
	if current {
		e.fail(now, err)
	}
	e.Wake(e.client.HasWaiters() || e.client.State(now) == lease.StateLeaving)
}

// serve hands out what an accepted reply brought.
func (e *entry) serve(now clock.Instant, got lease.Accepted, c *call) {
	e.handed = e.fleet.books.accepted(c)
	e.client.Serve(now, got)
	e.fleet.books.audit.Close(e.key, false, e.handed) // what was drawn for requests that have gone
	if e.isAdversary() {
		now := e.fleet.time.now
		e.spendSeq = e.fleet.time.at(max(now, e.p.when(now, e.client.Deadline())-1), evSpend, e.id)
	}
}

// fail takes in a call without a grant.
func (e *entry) fail(now clock.Instant, err error) {
	e.client.Fail(now, err)
	if e.client.Closed() {
		e.finish()
	}
}

// overdue ends the wait for the call with this number.
func (e *entry) overdue(number int64) {
	if !e.alive || e.flight != number {
		return
	}
	e.flight = 0
	now := e.now()
	e.fail(now, lease.ErrUnavailable)
	if e.alive {
		e.Wake(e.client.State(now) == lease.StateLeaving)
	}
}

// rest lets e go, but for what it must know of its bucket.
func (e *entry) rest() bool {
	m, ok := e.client.Rest()
	if ok {
		e.p.rest(e.key, memory{of: m, until: e.leaveAt, known: e.known}, e.now())
		e.finish()
	}
	return ok
}

// finish ends e: what it holds is burnt, and whoever waits is turned away.
func (e *entry) finish() {
	if e.alive {
		e.client.Close()
		e.fleet.retire(e)
	}
}

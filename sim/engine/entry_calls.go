package engine

import (
	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// This file is when an entry calls its bucket, and what it does with the answers.

// schedule sets when e is asked next, if it is still alive.
func (e *entry) schedule(next clock.Instant) {
	if next != protocol.Never {
		e.askAt(e.p.when(e.fleet.time.now, next))
	} else if e.alive {
		e.fleet.time.cancel(evPoll, e.id)
	}
}

func (e *entry) askAt(at int64) {
	if e.alive && !e.fleet.time.expects(at, evPoll, e.id) {
		e.fleet.time.at(at, evPoll, e.id)
	}
}

// ask polls e, and sends its call if it is time.
func (e *entry) ask() {
	call, next := e.poll()
	if !call {
		e.pressing = false
		e.schedule(next)
		return
	}
	l := e.fleet.network.linkOf(e)
	again := l.lastSent.Add(batchWindow)
	if len(l.open) == 0 && e.Now() < again && !(e.pressing && l.underWay == 0) {
		l.held = append(l.held, e.id)
		e.schedule(again)
		return
	}
	e.call()
	held := l.held
	l.held = l.held[:0]
	for _, id := range held { // what was held back goes along
		h := e.fleet.entries.all[id]
		if !h.alive || h.flight != 0 || h == e || h.p != e.p || e.fleet.network.linkOf(h) != l {
			continue
		}
		if call, next := h.poll(); call {
			h.call()
		} else {
			h.schedule(next)
		}
	}
}

// poll asks the client whether a call is due, and when to ask again.
func (e *entry) poll() (call bool, next clock.Instant) {
	now := e.Now()
	due := e.client.Tick(now, e.fleet.network.linkOf(e).latency.Quantile())
	e.fleet.books.lapse(e)
	switch {
	case e.client.Closed():
		e.finish()
		return false, protocol.Never
	case due.Use == protocol.InUse:
		return due.Call, due.At
	case due.Use == protocol.UseEnded:
		e.leaveAt = now.Add(e.client.Lifetime())
	case due.Use == protocol.Restable && e.rest():
		return false, protocol.Never
	}
	if now >= e.leaveAt {
		e.finish()
		return false, protocol.Never
	}
	return false, min(due.At, e.leaveAt)
}

// call builds e's call into the batch that its link sends at the end of this instant, if the shard
// takes any now.
func (e *entry) call() {
	e.pressing = false
	if !e.Breaker().Admit(e.Now()) {
		e.putOff()
		return
	}
	if e.isAdversary() {
		e.fleet.demand.drain(e)
	}
	e.p.seq++
	r := e.client.Build(e.Now(), e.p.seq, e.fleet.network.linkOf(e).latency.Quantile())
	e.fleet.books.owing(e, r)
	e.asked = r.Seq
	e.flight = e.fleet.network.add(e, r)
	_, next := e.poll() // while the call is under way the lease may end
	e.schedule(next)
}

// putOff has e ask again later whether its shard takes calls. Who waits is told what the fallback
// says, and a process that leaves gives nothing back to a shard that is away.
func (e *entry) putOff() {
	now, b := e.Now(), e.Breaker()
	again := b.Turn(now)
	if e.client.Pool.Held() > 0 {
		again = min(again, e.client.Deadline())
	}
	if e.client.State(now) == protocol.StateLeaving && b.Away(now) {
		e.fail(now, lease.ErrUnavailable)
	}
	if !e.alive {
		return
	}
	if _, next := e.poll(); next > now {
		again = min(next, again)
	}
	e.schedule(again)
}

// receive takes in what the store answered to one call.
func (e *entry) receive(c *call) {
	if e.drew(c) {
		return
	}
	e.use()
	now := e.Now()
	e.known = true
	err := c.err
	if err == nil {
		err = lease.ErrUnavailable // a reply to another call
		if got, ok := e.client.Accept(now, &c.grant); ok {
			e.flight = 0
			e.serve(now, got, c)
		}
	}
	if c.number == e.flight {
		e.fail(now, err)
	}
	e.Wake(e.client.HasWaiters() || e.client.State(now) == protocol.StateLeaving)
}

// serve hands out what an accepted reply brought.
func (e *entry) serve(now clock.Instant, got protocol.Accepted, c *call) {
	e.handed = e.fleet.books.accepted(c)
	e.client.Serve(now, got)
	e.fleet.books.audit.Close(e.key, false, e.handed) // what was drawn for requests that have gone
	if e.isAdversary() {
		now := e.fleet.time.now
		e.fleet.time.at(max(now, e.p.when(now, e.client.Deadline())-1), evSpend, e.id)
	}
}

// fail takes in a call without a grant.
func (e *entry) fail(now clock.Instant, err error) {
	e.flight = 0
	e.client.Fail(now, err)
	if e.client.Closed() {
		e.finish()
	}
}

// overdue ends the wait for the call with this number.
func (e *entry) overdue(number int64) {
	if e.alive && e.flight == number {
		e.use()
		now := e.Now()
		e.fail(now, lease.ErrUnavailable)
		e.Wake(e.client.State(now) == protocol.StateLeaving)
	}
}

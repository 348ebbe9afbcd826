package engine

import (
	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/node"
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
	if len(l.open) == 0 && !l.rules.Gate(e.Now(), e.pressing) && !(e.pressing && l.rules.Hold()) {
		l.held = append(l.held, e)
		e.schedule(l.rules.Next())
		return
	}
	e.call()
	held := l.held
	l.held = l.held[:0]
	for _, h := range held { // calls that were held back go along
		if !h.alive || h.flight != 0 || h == e {
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
	due := e.client.Tick(now, e.fleet.network.linkOf(e).rules.RTT())
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
	n, l, now := e.fleet.network, e.fleet.network.linkOf(e), e.Now()
	b := n.batchOn(l)
	if b == nil { // too many batches are under way
		again := now.Add(node.Window)
		if l.breaker.Stuck(now) {
			again = max(again, l.breaker.Turn(now))
			e.poll() // requests that wait get the answer of the fallback
		}
		e.schedule(again)
		return
	}
	if !l.breaker.Admit(now) {
		e.putOff()
		return
	}
	if e.isAdversary() {
		e.fleet.demand.drain(e)
	}
	e.p.seq++
	r := e.client.Build(now, e.p.seq, l.rules.RTT())
	e.fleet.books.owing(e, r)
	e.asked = r.Seq
	b.calls = append(b.calls, n.newCall(e, r))
	e.flight = n.made
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

// awaits reports whether e waits for an answer to c.
func (e *entry) awaits(c *call) bool { return e.alive && e.flight == c.number }

// overdue ends the wait for the call with this number.
func (e *entry) overdue(number int64) {
	if e.alive && e.flight == number {
		e.use()
		now := e.Now()
		e.fail(now, lease.ErrUnavailable)
		e.Wake(e.client.State(now) == protocol.StateLeaving)
	}
}

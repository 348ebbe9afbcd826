package engine

import (
	"errors"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
)

// kick has e asked at once, after everything else of this instant.
func (e *entry) kick(urgent bool) {
	e.pressing = e.pressing || urgent
	if e.pollSeq == 0 || e.pollAt != e.fleet.time.now {
		e.pollAt = e.fleet.time.now
		e.pollSeq = e.fleet.time.at(e.fleet.time.now, evPoll, e.id)
	}
}

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

// input is what the Holder cannot know.
func (e *entry) input() lease.Input {
	in := lease.Input{RTT: e.fleet.network.linkOf(e).latency.Quantile(), Refused: e.refused, Closing: e.leaving}
	lacking := e.queue.lacking
	if in.RTT >= e.fleet.s.CallTimeout {
		lacking = e.queue.patient
		in.Refused += e.queue.lacking - lacking
	}
	in.Waiting = max(0, lacking-e.holder.Pool.Held())
	return in
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
	if len(l.open) == 0 && now < l.lastSent.Add(batchPause) && !(e.pressing && l.underWay == 0) {
		l.held = append(l.held, e.id)
		e.schedule(l.lastSent.Add(batchPause))
		return
	}
	e.call()
	held := l.held
	l.held = l.held[:0]
	for _, id := range held { // what was held back goes along
		if h := e.fleet.entries[id]; h.alive && h.flight == 0 && h != e && h.p == e.p && e.fleet.network.linkOf(h) == l {
			if call, next := h.poll(); !h.alive {
			} else if call {
				h.call()
			} else {
				h.schedule(next)
			}
		}
	}
}

// poll asks the Holder whether a call is due.
func (e *entry) poll() (call bool, next clock.Instant) {
	now := e.now()
	if e.lowHit {
		e.lowHit = false
		e.holder.Low()
	}
	if now >= e.holder.DeniedUntil() {
		e.setGate(false)
	}
	if e.leaving && e.holder.Idle() {
		e.finish()
		return false, lease.Never
	}
	call, next = e.holder.Poll(now, e.input())
	e.fleet.books.abandon(e)
	if e.queue.patients > 0 && e.holder.Degraded() {
		next = min(next, e.serveWithout(now))
	}
	if call || e.queue.head != nil || !e.holder.Idle() {
		e.restAt = 0
		return call, next
	}
	if seen := e.holder.Attempts(); e.restAt == 0 || seen != e.restSeen {
		e.restAt, e.restSeen = now.Add(e.holder.TTL()), seen
		e.leaveAt = now.Add(e.holder.Lifetime())
	} else if now >= e.restAt && next == lease.Never && e.rest() {
		return false, lease.Never
	}
	if now >= e.leaveAt {
		e.finish()
		return false, lease.Never
	}
	if now >= e.restAt {
		return false, min(next, e.leaveAt)
	}
	return false, min(next, e.restAt)
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
	if e.alive && e.spendSeq == ev.seq && e.p.pausedUntil == 0 && e.now() < e.holder.Deadline() {
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
	in := e.input()
	if e.queue.head != nil {
		in.Need = max(1, e.queue.need(e.holder.Gather())-e.holder.Pool.Held())
	}
	r := e.holder.Build(e.now(), e.p.seq, in)
	e.asked = r.Seq
	if r.Seq == e.p.seq {
		for w := e.queue.head; w != nil; w = w.next {
			w.asked = r.Seq
		}
		e.refused = 0
	}
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
	if c.err == nil {
		if got, ok := e.holder.Accept(now, &c.grant, e.queue.patient); ok {
			e.flight = 0
			drawn := e.fleet.books.accepted(c)
			e.publish(now, &c.grant)
			e.distribute(now, got, drawn, c.grant.Seq)
			e.turnAway(now, c.grant.Seq)
			if e.isAdversary() {
				e.spendSeq = e.fleet.time.at(max(e.p.when(e.fleet.time.now, e.holder.Deadline())-1, e.fleet.time.now), evSpend, e.id)
			}
			e.kick(e.leaving || e.queue.head != nil)
			return
		}
	}
	if current {
		err := c.err
		if err == nil {
			err = lease.ErrUnavailable // a reply to another call
		}
		e.failed(now, err)
	}
	e.kick(e.leaving || e.queue.head != nil)
}

// publish notes what the reply says.
func (e *entry) publish(now clock.Instant, g *lease.Grant) {
	v := &e.view
	v.heard, v.limits, v.levels, v.others = true, e.holder.Limits(), g.Levels, e.holder.Others()
	v.at, v.made = now, e.holder.Executed()
	v.shortOf, v.shortUntil = e.holder.Shortage()
	e.setGate(now < e.holder.DeniedUntil() && !e.holder.Spares(1))
}

// failed takes in a call without a grant.
func (e *entry) failed(now clock.Instant, err error) {
	e.holder.Fail(now, err)
	if errors.Is(err, lease.ErrStale) {
		e.holder.Rename(e.p.rename())
		if !e.holder.Degraded() && !e.leaving {
			return
		}
	}
	e.serveWithout(now)
	if e.leaving {
		e.finish()
	}
}

// overdue ends the wait for the call with this number.
func (e *entry) overdue(number int64) {
	if !e.alive || e.flight != number {
		return
	}
	e.flight = 0
	e.failed(e.now(), lease.ErrUnavailable)
	if e.alive {
		e.kick(e.leaving)
	}
}

// rest lets e go, but for what it must know of its bucket.
func (e *entry) rest() bool {
	m, ok := e.holder.Rest()
	if ok {
		e.p.rest(e.key, memory{of: m, until: e.leaveAt, known: e.known}, e.now())
		e.finish()
	}
	return ok
}

// leave has e give back, and end when that has been heard; whoever waits is turned away.
func (e *entry) leave() {
	for e.queue.head != nil {
		e.settle(e.queue.head, false, true)
	}
	e.leaving = true
	e.kick(true)
}

// finish ends e: what it holds is burnt, and whoever waits is turned away.
func (e *entry) finish() {
	if !e.alive {
		return
	}
	for e.queue.head != nil {
		e.settle(e.queue.head, false, true)
	}
	e.setGate(false)
	e.holder.Close()
	e.fleet.retire(e)
}

package protocol

import (
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
)

// Never is the time at which nothing is due: only an event can bring news.
const Never = clock.Instant(1<<63 - 1)

// Due is what Tick found.
type Due struct {
	Call bool          // build a call
	At   clock.Instant // call Tick again, at the latest; with Call, if the node takes none now
	Use  Use
}

// Use is how far a key has come on the way to rest.
type Use int8

const (
	InUse    Use = iota // asked for, waited for, holding or owing
	UseEnded            // just now: nothing is held or owed, and nobody waits
	Unused              // for a while
	Restable            // for a TTL, and nothing is due: Rest may succeed
)

// Low notes that a Take has reported low; the user calls Tick soon. For any number of goroutines.
func (c *Client) Low() { c.tookLow.Store(true) }

// Tick lets time pass up to now and says what is due. rtt is the 99th percentile of the round trips
// to the key's node, 0 where it is not known. A client that was leaving may be closed afterwards.
func (c *Client) Tick(now clock.Instant, rtt time.Duration) Due {
	if c.tookLow.Swap(false) {
		c.low = true
	}
	if c.stage == leaving && c.Idle() {
		c.Close()
	}
	if c.stage == closed {
		return Due{At: Never, Use: Unused}
	}
	n := c.needs(rtt)
	c.advance(now, n)
	var d Due
	d.Call, d.At = c.due(now, n)
	if c.Degraded() && (c.queue.inLine > 0 || c.queue.head != nil && !c.calling) {
		again := c.serveWithout(now)
		if d.Call {
			d.At = again // when the fallback can serve somebody, which does not wait for the node
		}
		d.At = min(d.At, again)
	}
	c.use(now, &d)
	return d
}

// use says how far the key has come on the way to rest, and sees to it that a Tick comes in time.
func (c *Client) use(now clock.Instant, d *Due) {
	if d.Call || !c.Forgettable() {
		c.restAt = 0
		return
	}
	d.Use = Unused
	if seen := c.attempts(); c.restAt == 0 || seen != c.usedSeen {
		c.restAt, c.usedSeen = now.Add(c.TTL()), seen
		d.Use = UseEnded
	} else if now >= c.restAt && d.At == Never {
		d.Use = Restable
	}
	if now < c.restAt {
		d.At = min(d.At, c.restAt)
	}
}

// Forgettable reports whether c may be forgotten: it holds nothing, owes nothing and nobody waits.
// At most a denial would be lost, which the next request would learn again.
func (c *Client) Forgettable() bool { return c.stage != closed && c.queue.head == nil && c.Idle() }

// Idle reports whether no call is under way or open, and nothing is held or owed.
func (c *Client) Idle() bool {
	return !c.calling && !c.isOpen && c.Pool.Held() == 0 && !c.owes()
}

// needs is what requests lack.
type needs struct {
	waiting int64 // tokens that queued requests lack beside what is held
	refused int64 // the largest n that was refused without queueing since the last call
	closing bool  // everything is to be given back
}

// needs sums up what requests lack. Where a round trip takes as long as CallTimeout, those that
// wait for one call will have gone when it is answered (9.10): they count as refused.
func (c *Client) needs(rtt time.Duration) needs {
	lacking, refused := c.queue.lacking, c.refused
	if rtt >= c.callTimeout {
		lacking = c.queue.lackingInLine
		refused += c.queue.lacking - lacking
	}
	return needs{
		waiting: max(0, lacking-c.Pool.Held()),
		refused: refused,
		closing: c.stage == leaving || c.resets > 0 && !c.HasEnded(c.returnFrom),
	}
}

// advance lets time pass up to now: a lease that has ended is burnt, attempts become demand, and a
// call that got no answer is given up when a retry is not worth sending any more.
func (c *Client) advance(now clock.Instant, n needs) {
	c.Expire(now) // also while a call is under way: one that hangs does not keep a lease alive
	if c.calling {
		return
	}
	c.observe(now)
	if !c.isYoung(now) {
		c.giveUp()
	}
	if c.failures > 0 {
		return
	}
	held := c.Pool.Held()
	asks := n.closing || c.wants(n, held) && now >= c.deniedUntil
	c.reviewing = held > 0 && c.heard.replied && now >= c.reviewAt && !asks && !c.owes()
	if c.reviewing && c.excess(held) == 0 {
		c.reviewAt = now.Add(c.reviewIn())
	}
}

// observe feeds the demand estimate. A request that was refused and served later is one attempt.
func (c *Client) observe(now clock.Instant) {
	c.demand.observe(now, c.attempts()-c.servedLater, c.target)
}

// wants reports whether somebody is waiting for tokens, was refused them, or is about to be. Before
// the first reply, and on a slow key, a take that the pool refused is no reason: who made it is
// about to be counted in needs.
func (c *Client) wants(n needs, held int64) bool {
	return n.waiting > 0 || n.refused > 0 || c.low ||
		c.heard.replied && held == 0 && c.Pool.Missed() > c.missedAtAsk && !c.slow()
}

// owes reports whether the next call has something to bring beside its report.
func (c *Client) owes() bool { return c.debt > 0 || c.charge > 0 || c.refund > 0 || c.unused > 0 }

// due says whether a call is due at time now, up to which c was advanced, and if not, when to look
// again at the latest.
func (c *Client) due(now clock.Instant, n needs) (call bool, next clock.Instant) {
	held := c.Pool.Held()
	next = Never
	if held > 0 {
		next = c.Deadline()
	}
	if c.calling {
		return false, next
	}
	if now < c.deniedUntil {
		next = min(next, c.deniedUntil)
	}
	wants := c.wants(n, held)
	if c.failures > 0 {
		// One call at a time, and only where somebody needs it, or something is on its way back.
		if wants || n.closing || c.isOpen || c.owes() {
			return now >= c.probeAt, min(next, max(c.probeAt, now))
		}
		return false, next
	}
	if n.closing || c.isOpen || wants && now >= c.deniedUntil {
		return true, now
	}
	if c.owes() {
		// What is owed travels with the next report, and makes one where none is due.
		if now >= c.reviewAt {
			return true, now
		}
		next = min(next, c.reviewAt)
	}
	if held > 0 && c.heard.replied {
		return c.renewal(now, held, next)
	}
	return false, next
}

// renewal is the part of due that is about a lease nobody lacks anything of: whether to give some
// of it back, to report what was spent, or to have it last longer.
func (c *Client) renewal(now clock.Instant, held int64, next clock.Instant) (bool, clock.Instant) {
	if c.reviewing && c.excess(held) > 0 {
		return true, now
	}
	if now < c.staleAt && c.isLarge(c.leased) {
		next = min(next, c.staleAt)
	} else if c.isLarge(c.leased - held) {
		urgent := slides(c.config.Limits) || c.demand.rate()*c.target.Seconds() > c.perTarget()
		if c.reviewing || urgent { // a bucket that will be empty is worth more than a call in a Target
			return true, now
		}
	}
	if c.demand.seen != c.seenAtReply {
		renewAt := c.Deadline().Add(-(c.target/2 + 2*c.rtt))
		if now >= renewAt {
			return true, now
		}
		next = min(next, renewAt)
	}
	return false, min(next, c.reviewAt)
}

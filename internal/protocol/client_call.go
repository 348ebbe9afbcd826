package protocol

import (
	"errors"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Due is the result of Tick.
type Due struct {
	Call bool          // a call must be built
	At   clock.Instant // when to call Tick again at the latest
	Use  Use
}

// Use says how close a key is to rest.
type Use int8

const (
	InUse    Use = iota // the key has requests, or its Client holds or owes tokens
	UseEnded            // the key's use has just ended
	Unused              // the key has been unused for less than a TTL, or needs another Tick
	Restable            // the key has been unused for a TTL: Rest may succeed
)

// Low records that a take has reported low; the user calls Tick soon. Any goroutine may call Low.
func (c *Client) Low() { c.tookLow.Store(true) }

// Tick advances c to now and reports whether a call is due. rtt is the 99th percentile of the node's round
// trips, 0 if unknown. Tick may close a Client that is leaving.
func (c *Client) Tick(now clock.Instant, rtt time.Duration) Due {
	if c.tookLow.Swap(false) {
		c.low = true
	}
	if c.stage == StateLeaving && c.Idle() {
		c.Close()
	}
	if c.Closed() {
		return Due{At: Never, Use: Unused}
	}
	n := c.needs(rtt)
	c.advance(now, n)
	var d Due
	if d.Call, d.At = c.due(now, n); d.Call {
		d.At = c.Holder.endsAt() // the lease may end while the call is under way
	}
	if c.Failures.Degraded() && (c.Line.inLine > 0 || c.Line.head != nil && !c.Holder.calling) {
		d.At = min(d.At, c.serveWithout(now)) // the fallback decides without the node
	}
	c.use(now, &d)
	return d
}

// use sets d.Use, and lowers d.At to the time at which the key may go to rest.
func (c *Client) use(now clock.Instant, d *Due) {
	if d.Call || !c.Forgettable() {
		c.restAt = 0
		return
	}
	d.Use = Unused
	if seen := c.Holder.Account().Admitted + c.sizer.lacked(); c.restAt == 0 || seen != c.usedSeen {
		c.restAt, c.usedSeen = now.Add(c.TTL()), seen
		d.Use = UseEnded
	} else if now >= c.restAt && d.At == Never {
		d.Use = Restable
	}
	if now < c.restAt {
		d.At = min(d.At, c.restAt)
	}
}

// Forgettable reports whether dropping c loses at most the state of a denial.
func (c *Client) Forgettable() bool { return !c.Closed() && c.Line.head == nil && c.Idle() }

// Idle reports whether no call is under way or open, and nothing is held or owed.
func (c *Client) Idle() bool {
	return !c.Holder.calling && !c.Holder.isOpen && c.Holder.Pool.Held() == 0 && !c.sizer.owes()
}

// needs sums up the tokens that requests lack. On a slow network OneCall requests count as refused (9.10).
func (c *Client) needs(rtt time.Duration) needs {
	lacking, refused := c.Line.lacking, c.Line.refused
	if rtt >= c.settings.callTimeout {
		lacking = c.Line.lackingInLine
		refused += c.Line.lacking - lacking
	}
	return needs{
		waiting: max(0, lacking-c.Holder.Pool.Held()),
		refused: refused,
		closing: c.stage == StateLeaving || c.resets > 0 && !c.HasEnded(c.returnFrom),
	}
}

// advance burns an expired lease, updates the demand, and gives up an open call that is too old for a retry.
func (c *Client) advance(now clock.Instant, n needs) {
	c.Holder.Expire(now) // an unanswered call must not extend a lease
	if now >= c.Holder.Deadline() {
		c.sizer.leased = 0
	}
	if c.Holder.calling {
		return
	}
	c.observe(now, 0)
	if !c.Holder.isYoung(now) {
		c.Holder.giveUp()
	}
	if c.Failures.inARow > 0 {
		return
	}
	c.sizer.reviewSpent(now)
	held := c.Holder.Pool.Held()
	asks := n.closing || c.wants(n, held) && now >= c.Denials.until
	c.sizer.reviewing = held > 0 && c.Holder.heard.replied && now >= c.sizer.reviewAt && !asks && !c.sizer.owes()
	if c.sizer.reviewing && c.sizer.excess(held) == 0 {
		c.sizer.reviewAt = now.Add(c.sizer.reviewIn())
	}
}

// observe feeds the demand estimate with the tokens admitted, denied and waited for. arrived is the number of
// admitted tokens that served waiting requests.
func (c *Client) observe(now clock.Instant, arrived int64) {
	attempts := c.Holder.Account().Admitted - arrived + c.Denials.Count() + c.Line.lacking
	c.sizer.demand.observe(now, attempts, c.settings.target)
}

// wants reports whether requests or a low pool need a call. If the key is slow, or has had no reply yet, a
// request that the pool denied needs no call.
func (c *Client) wants(n needs, held int64) bool {
	return n.waiting > 0 || n.refused > 0 || c.low ||
		c.Holder.heard.replied && held == 0 && c.sizer.lacked() > c.sizer.missedAtAsk && !c.sizer.slow()
}

// due reports whether a call is due at now, or else when to check again.
func (c *Client) due(now clock.Instant, n needs) (call bool, next clock.Instant) {
	held := c.Holder.Pool.Held()
	next = c.Holder.endsAt()
	if c.Holder.calling || c.resets > 0 && !n.closing {
		return false, next
	}
	if now < c.Denials.until {
		next = min(next, c.Denials.until)
	}
	wants := c.wants(n, held)
	if c.Failures.inARow > 0 {
		// After a failure, call only for requests, and for tokens to give back or report.
		if wants || n.closing || c.Holder.isOpen || c.sizer.owes() {
			return now >= c.Failures.probeAt, min(next, max(c.Failures.probeAt, now))
		}
		return false, next
	}
	if n.closing || c.Holder.isOpen || wants && now >= c.Denials.until {
		return true, now
	}
	if c.sizer.owes() {
		// Late tokens travel with the next call. From reviewAt on late tokens alone make a call due (8.9).
		if now >= c.sizer.reviewAt {
			return true, now
		}
		next = min(next, c.sizer.reviewAt)
	}
	if held > 0 && c.Holder.heard.replied {
		return c.sizer.renewal(now, held, next)
	}
	return false, next
}

// Build opens the call that Tick found due: a retry of the open call (5.2), or a new call with this seq,
// which must be above all earlier seqs. The request is valid until the next Build.
func (c *Client) Build(now clock.Instant, seq int64, rtt time.Duration) *lease.Request {
	n := c.needs(rtt)
	need := int64(0)
	if c.Line.head != nil {
		need = max(1, c.Line.need(c.sizer.portion())-c.Holder.Pool.Held())
	}
	c.Holder.calling = true
	if rtt > 0 {
		c.settings.rtt = rtt
	}
	if r := c.Holder.resend(now); r != nil {
		return r
	}
	if c.settings.change == overtaken {
		c.settings.change = outdated
	}
	c.Holder.Expire(now)
	c.observe(now, 0)
	c.Holder.giveUp()
	c.fallback.forgive(now)
	a := c.settings.ask(now)
	if !n.closing {
		a.Want, a.Need, a.Waiting = c.sizer.size(c.Holder.Pool.Held(), n, need)
		if wanted := n.waiting > 0 || n.refused > 0 || c.low; !wanted && c.sizer.reports(now) {
			a.Return = c.sizer.excess
			a.Want, a.Need = 0, 0
		}
	}
	// A report of more tokens than lowered limits allow would be void, and count in the ledger for a T.
	if n.closing || c.settings.outdated() {
		a.Return = func(held int64) int64 { return held }
	}
	c.low = false
	c.sizer.missedAtAsk = c.sizer.lacked()
	a.Denied = c.Denials.report()
	c.Line.join(seq)
	c.Line.refused = 0
	return c.Holder.openCall(now, seq, a)
}

// Accept processes the reply to the call under way, or a late reply after Fail; the caller then calls Serve.
// Any other reply changes nothing, and ok is false.
func (c *Client) Accept(now clock.Instant, g *lease.Grant) (got Accepted, ok bool) {
	c.Denials.attribute()
	h := &c.Holder.heard
	running, calls, counted := h.running, h.calls, h.counts(c.Holder.firstSent, &c.Holder.open)
	inLine := c.Line.lackingInLine
	if c.settings.change == overtaken {
		inLine = 0
	}
	if got, ok = c.Holder.accept(now, g, inLine, c.settings.change == overtaken); !ok {
		return got, false
	}
	c.Holder.calling = false
	c.Holder.ended = max(c.Holder.ended, g.Seq)
	c.Failures.inARow, c.Failures.stales = 0, 0
	c.fallback.hear(now, g)
	b := c.settings.host.Breaker()
	b.heardServer(now, g.ServerTime)
	if counted {
		b.Heard(now, g.ActiveWeight)
	} else {
		if !b.well() {
			h.calls = calls // many processes call a recovering node at once: keep the old mean
		}
		b.heardCalls(now, c.Holder.open.Weight, g.ActiveWeight, h.byCalls(c.Holder.open.Weight))
	}
	c.observe(now, got.Waited+got.Reserved)
	c.settings.follow(g, c.Holder.firstSent)
	c.sizer.hear(now, g, running)
	c.Denials.until = c.Denials.delay(now, g)
	if c.settings.change == overtaken {
		c.settings.change, c.Denials.until = outdated, 0
		c.Holder.burn() // leased before the change
	} else {
		c.settings.change = unchanged
		c.KnowLimits(c.settings.config.Limits)
	}
	c.sizer.arm()
	c.Denials.judge(now, c.Line.inLine)
	return got, true
}

// Fail records that the call under way brought no grant. The call stays open for a retry or a late reply, and
// Policy.Fallback decides the waiting requests. Fail closes a Client that is leaving.
func (c *Client) Fail(now clock.Instant, err error) {
	c.Holder.calling = false
	c.Holder.ended = max(c.Holder.ended, c.Holder.open.Seq)
	stale := errors.Is(err, lease.ErrStale)
	if stale {
		c.Holder.giveUp()
		c.Failures.stales++
	}
	if !stale || c.Failures.stales > 1 {
		c.Failures.add(now)
	}
	if stale {
		c.Holder.rename(c.settings.host.NewID())
		if !c.Failures.Degraded() && c.stage != StateLeaving {
			return // waiting requests are served under the new id
		}
	}
	c.serveWithout(now)
	if c.stage == StateLeaving {
		c.Close()
	}
}

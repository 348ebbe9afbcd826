package protocol

import (
	"errors"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Never is the time at which nothing is due: only an event can bring news.
const Never = clock.Instant(1<<63 - 1)

// Due is the result of Tick.
type Due struct {
	Call bool          // build a call
	At   clock.Instant // call Tick again, at the latest; with Call, if the node takes none now
	Use  Use
}

// Use is how far a key has come on the way to rest.
type Use int8

const (
	InUse    Use = iota // asked for, waited for, holding or owing
	UseEnded            // just now: nothing is held or owed, and no request waits
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
			d.At = again // when the fallback can serve a request, which does not wait for the node
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
	if seen := c.Account().Admitted + c.lacked(); c.restAt == 0 || seen != c.usedSeen {
		c.restAt, c.usedSeen = now.Add(c.TTL()), seen
		d.Use = UseEnded
	} else if now >= c.restAt && d.At == Never {
		d.Use = Restable
	}
	if now < c.restAt {
		d.At = min(d.At, c.restAt)
	}
}

// Forgettable reports whether c may be forgotten: it holds nothing, owes nothing and has no waiting request.
// At most a denial would be lost, which the next request would learn again.
func (c *Client) Forgettable() bool { return c.stage != closed && c.queue.head == nil && c.Idle() }

// Idle reports whether no call is under way or open, and nothing is held or owed.
func (c *Client) Idle() bool {
	return !c.calling && !c.isOpen && c.Pool.Held() == 0 && !c.owes()
}

// owes reports whether the next call has something to bring beside its report, or that itself, of a lease
// that was spent to the last token: the bucket counts it as held.
func (c *Client) owes() bool {
	return c.holding.owes() || c.leased > 0 && c.heard.replied && c.Pool.Held() == 0
}

// reviewSpent puts the report of a lease that was spent to the last token off while requests come: the next
// that finds no token makes a call anyway.
func (c *Client) reviewSpent(now clock.Instant) {
	if c.owes() && !c.holding.owes() && now >= c.reviewAt && c.seenAtReview != c.demand.seen {
		c.seenAtReview, c.reviewAt = c.demand.seen, now.Add(c.heard.ttl/2)
	}
}

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
	if now >= c.Deadline() {
		c.leased = 0
	}
	if c.calling {
		return
	}
	c.observe(now, 0)
	if !c.isYoung(now) {
		c.giveUp()
	}
	if c.failures > 0 {
		return
	}
	c.reviewSpent(now)
	held := c.Pool.Held()
	asks := n.closing || c.wants(n, held) && now >= c.deniedUntil
	c.reviewing = held > 0 && c.heard.replied && now >= c.reviewAt && !asks && !c.owes()
	if c.reviewing && c.excess(held) == 0 {
		c.reviewAt = now.Add(c.reviewIn())
	}
}

// observe feeds the demand estimate with the tokens that were admitted, that were denied, and that requests
// wait for. arrived of the admitted ones are for requests that wait.
func (c *Client) observe(now clock.Instant, arrived int64) {
	c.demand.observe(now, c.Account().Admitted-arrived+c.Denied()+c.queue.lacking, c.target)
}

// lacked counts the tokens that requests did not find in the pool.
func (c *Client) lacked() int64 { return c.missed + c.Pool.Missed() }

// wants reports whether a request waits for tokens or was refused them. Before the first reply, and on a slow
// key, one that the pool has denied is no reason for a call.
func (c *Client) wants(n needs, held int64) bool {
	return n.waiting > 0 || n.refused > 0 || c.low ||
		c.heard.replied && held == 0 && c.lacked() > c.missedAtAsk && !c.slow()
}

// due says whether a call is due at now, up to which c was advanced, or else when to look again.
func (c *Client) due(now clock.Instant, n needs) (call bool, next clock.Instant) {
	held := c.Pool.Held()
	next = Never
	if held > 0 {
		next = c.Deadline()
	}
	if c.calling || c.resets > 0 && !n.closing {
		return false, next
	}
	if now < c.deniedUntil {
		next = min(next, c.deniedUntil)
	}
	wants := c.wants(n, held)
	if c.failures > 0 {
		// One call at a time, and only where a request needs it, or tokens are on their way back.
		if wants || n.closing || c.isOpen || c.owes() {
			return now >= c.probeAt, min(next, max(c.probeAt, now))
		}
		return false, next
	}
	if n.closing || c.isOpen || wants && now >= c.deniedUntil {
		return true, now
	}
	if c.owes() {
		// Debts travel with the next report, and make one where none is due.
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

// renewal is the part of due for a lease that no request lacks tokens of: whether to give some of it back,
// to report what was spent, or to have it last longer.
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

// Build opens the call that Tick found due: a retry of the open one while that is worth sending, otherwise a
// new one under seq, which must be above all earlier ones. The request is valid until the next Build.
func (c *Client) Build(now clock.Instant, seq int64, rtt time.Duration) *lease.Request {
	n := c.needs(rtt)
	need := int64(0)
	if c.queue.head != nil {
		need = max(1, c.queue.need(c.portion())-c.Pool.Held())
	}
	if !c.failing(now) {
		c.failures = 0 // requests wait for this call as for any other
	}
	c.calling = true
	if rtt > 0 {
		c.rtt = rtt
	}
	if r := c.resend(now); r != nil {
		return r
	}
	if c.change == overtaken {
		c.change = outdated
	}
	c.Expire(now)
	c.observe(now, 0)
	c.giveUp()
	c.forgive(now)
	c.weight = weightOf(c.policy)
	a := ask{Config: c.proposal(), Weight: c.weight, Headroom: c.policy.Headroom, Server: c.host.Breaker().Server(now)}
	if !n.closing {
		a.Want, a.Need, a.Waiting = c.size(c.Pool.Held(), n, need)
		wanted := n.waiting > 0 || n.refused > 0 || c.low
		if held := c.Pool.Held(); !wanted && c.heard.replied && now >= c.reviewAt && (held == 0 || c.excess(held) > 0) {
			a.Return = c.excess
			a.Want, a.Need = 0, 0
		}
	}
	// A lease that does not fit lowered limits would be void, and fill the ledger for a T.
	if n.closing || c.Outdated() {
		a.Return = func(held int64) int64 { return held }
	}
	c.low = false
	c.missedAtAsk = c.lacked()
	a.Denied = c.tellDenied()
	c.queue.join(seq)
	c.refused = 0
	return c.openCall(now, seq, a)
}

// proposal is the configuration that a call proposes: what this process was told to, unless a newer
// one is in force, which survives the loss of the bucket so. One of an equal version is not
// proposed, or it would be in force for ever (6.9). T is made long enough for the network as it is
// now (8.4): a client whose leases spend more than a quarter of their time on the way starves.
func (c *Client) proposal() lease.Config {
	p := propose(&c.own, &c.config, c.rtt)
	if c.large() && c.policy.TTL == 0 {
		p.TTL = max(p.TTL, min(lease.TTLPerTarget*c.target, lease.TTLMax))
	}
	return p
}

func propose(own, inForce *lease.Config, rtt time.Duration) lease.Config {
	p := *own
	if inForce.Version.After(p.Version) {
		p = *inForce
	}
	p.TTL = max(p.TTL, 2*inForce.Target)
	for p.TTL < 4*rtt && p.TTL <= lease.TTLMax/2 {
		p.TTL *= 2
	}
	return p
}

// Accept takes in the reply to the call under way, or a late one to it after Fail; ok is false for
// any other, which changes nothing. Serve is to follow.
func (c *Client) Accept(now clock.Instant, g *lease.Grant) (got Accepted, ok bool) {
	c.attribute()
	running, calls, counted := c.heard.running, c.heard.calls, c.heard.counts(c.firstSent, &c.open)
	inLine := c.queue.lackingInLine
	if c.change == overtaken {
		inLine = 0
	}
	if got, ok = c.accept(now, g, inLine, c.change == overtaken); !ok {
		return got, false
	}
	c.calling = false
	c.ended = max(c.ended, g.Seq)
	c.stales = 0
	c.failures = 0
	if g.ActiveWeight >= c.mostActive || now > c.mostAt.Add(activeFor*c.TTL()) {
		c.mostActive, c.mostAt = g.ActiveWeight, now
	}
	b := c.host.Breaker()
	b.heardServer(now, g.ServerTime)
	if counted {
		b.Heard(now, g.ActiveWeight)
	} else {
		if !b.well() {
			c.heard.calls = calls // many processes call a node that comes back at once
		}
		b.heardCalls(now, c.open.Weight, g.ActiveWeight, c.heard.byCalls(c.open.Weight))
	}
	c.observe(now, got.Waited+got.Reserved)
	c.seenAtReply = c.demand.seen
	c.leased = c.Pool.Held()
	c.follow(g.Config)
	c.hearTarget(g)
	c.gauge(g, running)
	c.staleAt = c.fullAt(g)
	c.deniedUntil = c.delay(now, g)
	// Where far too much is held, no call that comes earlier than a review may put that off again and again.
	if now >= c.reviewAt || c.leased <= 2*c.keep() {
		c.reviewAt = now.Add(c.reviewIn())
	}
	if c.change == overtaken {
		c.change, c.deniedUntil = outdated, 0
		c.burn() // what was leased before the change
	} else {
		c.change = unchanged
		c.KnowLimits(c.config.Limits)
	}
	c.arm()
	c.judgeDenial(now)
	return got, true
}

// Fail says that the call under way brought no grant. It stays open, so that a retry can carry the same seq
// and a late reply can still be accepted. Policy.Fallback decides the requests that wait. A client that was
// leaving is closed: what it holds expires at the bucket.
func (c *Client) Fail(now clock.Instant, err error) {
	c.calling = false
	c.ended = max(c.ended, c.open.Seq)
	stale := errors.Is(err, lease.ErrStale)
	if stale {
		c.giveUp()
		c.stales++
	}
	// The first time that a call is stale, the store is well.
	if !stale || c.stales > 1 {
		c.failed(now)
	}
	if stale {
		c.rename(c.host.NewID())
		if !c.Degraded() && c.stage != leaving {
			return // waiting requests are served under the new id
		}
	}
	c.serveWithout(now)
	if c.stage == leaving {
		c.Close()
	}
}

func (c *Client) follow(in lease.Config) {
	c.heard.ttl = in.TTL
	if !equal(&in, &c.config) {
		c.adopt(in)
	}
	c.heard.conflict = in.Version == c.own.Version && !equal(&in, &c.own) && c.firstSent >= c.conflictsFrom
}

func (c *Client) adopt(in lease.Config) {
	c.config, c.target = in, in.Target
	c.heard.limits = in.Limits
}

func (c *Client) alone() bool { return c.heard.replied && c.heard.active <= c.weight }

// spares reports whether the bucket, from which no other process draws, and this one are known to have n
// tokens: it was a larger request that they did not have enough for.
func (c *Client) spares(n int64) bool { return c.alone() && n <= c.heard.level()+c.Pool.Held() }

// delay is when the delay ends that the reply g asks for; 0 where it asks for none.
func (c *Client) delay(now clock.Instant, g *lease.Grant) clock.Instant {
	if !g.Short || g.Delay <= 0 {
		return 0
	}
	// Limits that are changed or reset elsewhere are to be followed within T, and what was drawn for a
	// request that has gone can be given back only while the bucket knows the holder.
	longest := c.heard.ttl / 4 * 3
	delay := min(g.Delay, longest)
	switch {
	case c.large():
		delay = min(c.spreadDelay(delay), longest)
	case !c.alone():
		// Not more: a tenth of a long delay would leave the next token of a small burst lying about.
		span := min(delay, c.target/2) / 10
		delay = min(delay+time.Duration(c.next()%uint64(span+1)), longest)
	}
	// Counted from the sending, as the next call takes as long to the bucket as this one did: from the
	// reply on, a round trip of a small burst's refill would be lost with each token.
	return max(now+1, c.firstSent.Add(delay))
}

func (c *Client) endDelay() {
	c.deniedUntil = 0
	c.shut(0)
}

// delayFor is when the delay after a shortfall ends for n tokens. It is sooner for fewer than fell short,
// which the bucket had left then, or, where no other process draws from it, will have by refill: but at least
// half a Target after the call, unless others draw from it and a lease would hold no more than one token.
func (c *Client) delayFor(n int64) clock.Instant {
	missing := n - c.Pool.Held()
	if c.deniedUntil == 0 || c.heard.shortOf == 0 || missing >= c.heard.shortOf {
		return c.deniedUntil
	}
	alone, lacking := c.alone(), max(0, missing-c.heard.level())
	if !alone && (missing <= 0 || lacking > 0 || c.large()) {
		return c.deniedUntil
	}
	at := c.firstSent
	if alone || !c.slow() {
		at = at.Add(c.target / 2)
	}
	for k := range c.config.Limits {
		at = max(at, c.firstSent.Add(c.heard.until(k, c.heard.levels[k]+lacking)))
	}
	return min(c.deniedUntil, at)
}

// change says whether what was last heard of the bucket is still true of it.
type change int8

const (
	unchanged change = iota
	outdated         // limits were set, or the bucket was reset, since the last call was executed
	overtaken        // the same, and a call was open: its reply may not know either
)

// BucketChanged says that limits were set or the bucket was reset, so that what was last heard of it is
// outdated: it ends the delay after a shortfall and makes a call due. What is held was leased before and is
// burnt. limits are those in force now.
func (c *Client) BucketChanged(limits []lease.Limit) {
	c.burn()
	c.endDelay()
	c.change, c.setTo = outdated, limits
	if c.isOpen {
		c.change = overtaken
	}
	c.low = true
	c.KnowLimits(limits)
}

// Outdated reports whether the bucket is known to have been changed since the last reply was made.
func (c *Client) Outdated() bool { return c.change != unchanged }

// limitsNow are the limits in force as last heard, or those that were set since.
func (c *Client) limitsNow() []lease.Limit {
	if c.Outdated() {
		return c.setTo
	}
	return c.config.Limits
}

func (c *Client) next() uint64 { return splitmix(&c.random) }

package protocol

import (
	"math"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Heard is what the last reply said of the bucket, such as when it has tokens again. It is a value:
// a copy may be read by anybody, whatever its Client does meanwhile. The zero value is nothing.
type Heard struct {
	Memory
	headroom  float64 // Policy.Headroom, by which levels are less than the bucket's
	contended bool    // another holder could not be served, because of what others hold
	limits    []lease.Limit
	levels    [lease.LimitsMax]int64         // whole tokens
	next      [lease.LimitsMax]time.Duration // until a level has one token more; 0 where it is full
	at        clock.Instant                  // of the reply; 0 where none has come since the key came into use
	others    int64                          // tokens that other processes held: they may yet come back
	frozen    time.Duration                  // from the reply on, while a loss is waited out
	leasedOut bool                           // leases of the bucket itself were out at the reply
	// The bucket had fewer than shortOf tokens, which were needed, and cannot have them before
	// shortUntil; 0 where it had them. This is more exact than levels and next, because the bucket
	// counts fractions of tokens.
	shortOf    int64
	shortUntil clock.Instant
}

// lineage is what a holder must know of its bucket to prove one day that the bucket has lost its
// state: docs/protocol.md, section 6.
type lineage struct {
	epoch      int64 // 0: nothing is known
	counter    int64
	running    int64
	leaseMax   time.Duration // with what was left of a freeze, but in Heard
	serverTime int64
	expiry     time.Duration // of the bucket, from serverTime on
}

// age is how long ago the bucket executed the call, at most. A 1/15 more covers a clock that is
// slow by a 1/16, as leaseSpan does.
func (m *Memory) age(now clock.Instant) time.Duration {
	d := max(0, now.Sub(m.executed))
	return d + d/15
}

// expired reports whether the bucket may have expired by now, unless others have called it.
func (m *Memory) expired(now clock.Instant) bool { return now >= m.executed.Add(m.expiry) }

// prove has r say what is known of the bucket, unless that may have expired by now.
func (m *Memory) prove(now clock.Instant, r *lease.Request) {
	if m.expired(now) {
		m.lineage = lineage{}
	}
	if m.epoch > 0 {
		r.Epoch, r.Counter = m.epoch, m.counter
		r.LeaseMax, r.HeardAt, r.HeardAge = m.leaseMax, m.serverTime, m.age(now)
		r.HeardExpiry = m.expiry
	}
}

// prove is Memory.prove that tells of a freeze, too. A bucket from which others had leased before it was
// frozen is as if its leases lasted for all of that.
func (h *Heard) prove(now clock.Instant, r *lease.Request) {
	h.Memory.prove(now, r)
	switch {
	case r.Epoch == 0:
	case h.leasedOut:
		r.LeaseMax = max(h.leaseMax, h.frozen)
	default:
		r.HeardFrozen = h.frozen
	}
}

// hear takes in the reply g to a call that was first sent at sent.
func (m *Memory) hear(sent clock.Instant, g *lease.Grant) {
	counter := g.Counter
	if g.Epoch == m.epoch {
		counter = max(m.counter, counter)
	}
	m.lineage = lineage{
		epoch: g.Epoch, counter: counter, running: g.Running, leaseMax: max(g.LeaseMax, g.Frozen),
		serverTime: g.ServerTime, expiry: g.Expiry,
	}
	m.executed, m.replied, m.active = sent, true, g.ActiveWeight
}

// hear takes in the reply g to the call open, which was first sent at sent.
func (h *Heard) hear(now, sent clock.Instant, open *lease.Request, g *lease.Grant) {
	h.Memory.hear(sent, g)
	h.leaseMax, h.frozen, h.leasedOut = g.LeaseMax, g.Frozen, g.Ledger > 0
	h.at, h.contended = now, g.Contended
	h.levels, h.next = g.Levels, g.Next
	h.others = max(0, g.Ledger-open.Remaining-(g.Granted-g.Waited))
	h.shortOf, h.shortUntil = 0, 0
	if g.RetryAfter > 0 {
		h.shortOf, h.shortUntil = max(1, open.Need), sent.Add(g.RetryAfter)
	}
}

// level is the least level of all limits.
func (h *Heard) level() int64 {
	least := h.levels[0]
	for k := range h.limits {
		least = min(least, h.levels[k])
	}
	return least
}

// Limits are the bucket's, as the last reply had them. They are not to be changed.
func (h *Heard) Limits() []lease.Limit { return h.limits }

// binding is the limit that one token, or what the last call needed, has to wait for longest: the
// first of those that are alike.
func (h *Heard) binding() (k int) {
	n := max(1, h.shortOf)
	for i := range h.limits {
		if h.until(i, n) > h.until(k, n) {
			k = i
		}
	}
	return k
}

// earliest is a time before which n tokens cannot be there, even if the others gave all back.
func (h *Heard) earliest(n int64) clock.Instant {
	at := h.executed
	n -= h.others
	further := time.Duration(math.MaxInt64) // for what is needed beyond shortOf, by the fastest of the limits
	for k, l := range h.limits {
		soonest := timeFor(l, n-h.levels[k]-1) // a level may be almost a token higher
		if l.Windowed() {
			soonest = h.until(k, n)
		}
		at = max(at, h.executed.Add(soonest))
		further = min(further, timeFor(l, n-h.shortOf))
	}
	if h.shortOf > 0 && n >= h.shortOf {
		at = max(at, h.shortUntil.Add(further))
	}
	return at
}

// Outlook is what a process can tell about a key beside whether a request is admitted.
type Outlook struct {
	Limit      lease.Limit   // with the least left of its burst; for a denial, with the longest wait
	Remaining  int64         // of Limit, what the process holds and the bucket has, 0 to the burst less headroom
	RetryAfter time.Duration // until the tokens can exist, at least 1 ns
	ResetAfter time.Duration // until Remaining is the burst, if nobody draws
}

// Outlook judges a request for n tokens at time now, of a process that held so many.
func (h *Heard) Outlook(now clock.Instant, n, held int64, admitted bool) Outlook {
	var o Outlook
	since := now.Sub(h.at)
	least := 2.0 // above the part that is left of any burst
	longest := time.Duration(math.MinInt64)
	for k, l := range h.limits {
		capacity := grantable(l, h.headroom)
		left := min(capacity, h.levels[k]+held)
		wait := h.until(k, n-held) - since
		if h.shortOf > 0 && len(h.limits) == 1 && n-held >= h.shortOf {
			// As if the bucket had executed the call when it replied: nobody is to come back too early.
			wait = h.shortUntil.Sub(h.executed) + timeFor(l, n-held-h.shortOf) - since
		}
		part := float64(left) / float64(capacity)
		binding := part < least
		if !admitted {
			binding = wait > longest
		}
		if binding {
			least, longest = part, wait
			o.Limit, o.Remaining = l, max(left, 0)
			o.ResetAfter = max(0, h.reset(k, capacity-held)-since)
		}
	}
	o.RetryAfter = max(longest, 1)
	return o
}

// until is how long after the reply level k has n tokens, if nobody draws. A calendar has all of
// them at its boundary. A sliding window has one token more when its oldest cell is dropped, which
// may bring all of them.
func (h *Heard) until(k int, n int64) time.Duration {
	missing := n - h.levels[k]
	if missing > 0 && h.next[k] > 0 {
		return h.next[k] + timeFor(h.limits[k], missing-1)
	}
	return timeFor(h.limits[k], missing)
}

// reset is how long after the reply level k has n tokens again, at most, if nobody draws. What is
// charged to a sliding window by now is dropped no later than a window and a cell from now.
func (h *Heard) reset(k int, n int64) time.Duration {
	if l := h.limits[k]; l.Kind == lease.KindSliding && n > h.levels[k] {
		return l.TimeToFull()
	}
	return h.until(k, n)
}

// GrantOutlook judges a request for n tokens that g has admitted, of a process that holds nothing and
// has this Policy.Headroom.
func GrantOutlook(g *lease.Grant, n int64, headroom float64) Outlook {
	h := Heard{limits: g.Config.Limits, levels: g.Levels, next: g.Next, headroom: headroom}
	return h.Outlook(0, n, 0, true)
}

// StateOutlook judges a request for n tokens at the time of s, of a process that holds so many and has
// this Policy.Headroom.
func StateOutlook(s *lease.State, n, held int64, headroom float64, admitted bool) Outlook {
	h := Heard{limits: s.Config.Limits, levels: s.Levels, next: s.Next, headroom: headroom}
	for k, l := range h.limits {
		h.levels[k] -= l.Capacity() - grantable(l, headroom)
	}
	return h.Outlook(0, n, held, admitted)
}

// Memory is what is left of a Client whose key has not been used for a while: what it must know to
// notice that the bucket was lost, and what it would otherwise have to learn again. It is small,
// since a process may have a million keys at rest. The zero value knows nothing.
type Memory struct {
	lineage
	executed clock.Instant // the bucket executed the last call then or later
	ttl      time.Duration // T in force
	active   int64         // sum of the weights of all holders
	config   *lease.Config // at rest: in force, where it is not what the client proposes
	pace     pace          // at rest: of its draws
	replied  bool          // any reply ever
	conflict bool          // see Client.Conflict
	// At rest: what was left of each burst, in 255ths of one above 255, and a fingerprint of the limits.
	left [lease.LimitsMax]uint8
	of   uint16
}

// Rest is what c remembers if it is let go now. It is false where more than an estimate would be
// lost: tokens, debts, an open call, failures of its own calls, the local share, or that the bucket owes
// or waits out a loss.
func (c *Client) Rest() (Memory, bool) {
	h := &c.heard
	if !c.Idle() || c.failures > 0 || c.fallback != nil || c.Outdated() ||
		h.at > 0 && (h.level() < 0 || c.host.Now() < h.at.Add(h.frozen)) {
		return Memory{}, false
	}
	m := h.Memory
	if h.at > 0 {
		m.keep(c.config.Limits, &c.heard.levels, c.policy.Headroom)
	}
	if !equal(&c.config, &c.own) {
		config := c.config
		m.config = &config
	}
	return m, true
}

// Recall has c, which has just been started, go on where the one ended that Rest was asked of.
func (c *Client) Recall(m Memory) {
	c.heard.Memory = m
	if m.config != nil {
		c.adopt(*m.config)
		c.heard.config = nil
		if !m.conflict { // it is what this process has proposed before
			c.conflictsFrom = m.executed.Add(3 * m.ttl)
		}
	}
	p := m.pace.after(c.demand.at.Sub(m.executed), 0, c.config.Target)
	c.demand.fast, c.demand.slow = float64(p.fast), float64(p.slow)
	c.heard.pace = pace{}
	for k, l := range c.config.Limits {
		if l.TimeToFull() < exact.MaxTime {
			c.heard.levels[k] = c.burst(l) // it has had a T or more to fill up
		}
	}
	c.KnowLimits(c.config.Limits)
}

// Lifetime is how long after the last use the bucket is full again and every lease has ended:
// forgetting the client then changes nothing.
func (c *Client) Lifetime() time.Duration {
	return longestToFull(c.config.Limits) + c.heard.ttl
}

package protocol

import (
	"sync/atomic"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Client is one process's side of one key: a state machine that decides when to call the bucket and for how
// many tokens (docs/protocol.md section 8), and serves requests (section 9). The comment of a field names its
// section of docs/protocol.md. ExampleClient shows how to drive a Client: Decide, Build, Accept, Tick.
//
// Any number of goroutines may take from Holder.Pool and call Pool.Drawn, Low, KnowLimits, Capacity and
// Denials.DeniesOneUntil. The user serialises all other calls with a lock. The zero Client is not usable; see
// Start. Do not copy a Client.
type Client struct {
	Holder   holder // 5
	settings settings
	sizer    sizer    // 8.5-8.10
	Denials  denials  // 5.14, 8.11
	Failures failures // 8.12
	fallback fallback // 8.14
	Line     line     // 9

	stage   ClientState // StateActive, StateLeaving or StateClosed
	low     bool        // a take has reported low since the last call
	tookLow atomic.Bool // a take has reported low since the last Tick

	resets     int   // number of resets of the bucket under way (9.13)
	returnFrom int64 // see BeginReset

	usedSeen int64         // attempts up to the time when restAt was set
	restAt   clock.Instant // when the unused key may go to rest; 0 while in use
}

// ClientConfig is the configuration of a Client. Policy and Proposed must be valid.
type ClientConfig struct {
	ID          string        // the instance id, unique among processes
	Policy      *lease.Policy // may be shared
	Proposed    *lease.Config // see Policy.ConfigFor; may be shared
	CallTimeout time.Duration
	Seed        uint64 // seed of the jitter
	// Stripes is the number of Ps, each of which gets a stripe of the Pool if several Ps take at once. A
	// simulation sets Stripes to 0: with stripes the Go scheduler decides which take reports low.
	Stripes int
}

// Start makes c a Client that has had no reply.
func (c *Client) Start(now clock.Instant, host Host, cfg ClientConfig) {
	c.Holder.init(cfg.ID, cfg.Stripes)
	s := &c.settings
	s.holder, s.heard = &c.Holder, &c.Holder.heard
	c.sizer.settings, c.Failures.settings = s, s
	c.Denials.settings, c.Denials.sizer = s, &c.sizer
	c.fallback.settings, c.fallback.failures = s, &c.Failures
	c.Line.settings, c.Line.denials = s, &c.Denials
	s.host, s.policy, s.callTimeout, s.random = host, cfg.Policy, cfg.CallTimeout, cfg.Seed
	s.weight, s.own, s.rtt = weightOf(s.policy), cfg.Proposed, rttUnknown
	s.heard.ttl, s.heard.headroom = s.own.TTL, s.policy.Headroom
	c.sizer.lasts, c.sizer.demand.at = lastsAlways, now
	s.adopt(*s.own)
	c.KnowLimits(s.config.Limits)
}

// Propose changes this process's proposed configuration, which must be valid. Before the first reply the
// proposal is in force at once, afterwards when a reply names it (6.9).
func (c *Client) Propose(now clock.Instant, p *lease.Config) {
	if equal(p, c.settings.own) && p.TTL == c.settings.own.TTL {
		return
	}
	c.Denials.attribute()
	c.settings.own = p
	c.settings.conflictsFrom = now.Add(3 * c.TTL()) // a call that proposes p is made within T
	if !c.Holder.heard.replied {
		c.Holder.heard.ttl = p.TTL
		c.settings.adopt(*p)
		c.KnowLimits(p.Limits)
	}
}

// Insist makes the reply to every later call report a conflict, even soon after Propose (5.13).
func (c *Client) Insist(now clock.Instant) {
	c.settings.conflictsFrom = min(c.settings.conflictsFrom, now)
}

// BeginReset makes calls give everything back until a call with at least this seq has ended, and then makes
// no call until EndReset (9.13). A seq of 0 means that nothing is held and no call is needed.
func (c *Client) BeginReset(seq int64) {
	if c.resets++; c.resets == 1 {
		c.returnFrom = 0
	}
	c.returnFrom = max(c.returnFrom, seq)
}

// EndReset ends the reset that BeginReset began.
func (c *Client) EndReset() { c.resets-- }

// HasEnded reports whether a call with this seq or a later one has been answered or has failed.
func (c *Client) HasEnded(seq int64) bool { return c.Holder.ended >= seq }

// BucketChanged burns the holding and makes a call due, because the bucket was reset or has new limits.
func (c *Client) BucketChanged(limits []lease.Limit) {
	c.Holder.burn()
	c.Denials.end()
	c.settings.change, c.settings.setTo = outdated, limits
	if c.Holder.isOpen {
		c.settings.change = overtaken
	}
	c.low = true
	c.KnowLimits(limits)
}

// Leave gives everything back and ends waiting requests with VerdictClosed. A later Tick or Fail closes c.
func (c *Client) Leave() {
	c.stage = StateLeaving
	c.Line.settleAll(Decision{Verdict: VerdictClosed})
	c.settings.host.Wake(true)
}

// Close ends c and its waiting requests at once. The bucket counts the holding until its lease expires.
func (c *Client) Close() {
	if c.Closed() {
		return
	}
	c.Denials.denyOne(0)
	c.Line.settleAll(Decision{Verdict: VerdictClosed})
	c.stage = StateClosed
	c.Holder.giveUp()
	c.Holder.burn()
	c.Holder.burnUnused()
	c.Holder.charge = nil
}

// Closed reports whether Close was called, or Leave has completed.
func (c *Client) Closed() bool { return c.stage == StateClosed }

// TTL returns the T in force.
func (c *Client) TTL() time.Duration { return c.settings.ttl() }

// Limits returns the limits in force. The caller must not change the slice.
func (c *Client) Limits() []lease.Limit { return c.settings.config.Limits }

// Capacity returns the smallest burst in force, less Policy.Headroom. Any goroutine may call Capacity.
func (c *Client) Capacity() int64 { return c.Holder.Pool.Capacity() }

// KnowLimits sets the limits from which Capacity is computed. Any goroutine may call KnowLimits.
func (c *Client) KnowLimits(limits []lease.Limit) {
	c.Holder.Pool.SetCapacity(mostOf(limits, c.settings.policy.Headroom))
}

// Conflict reports whether the configuration in force differs from a proposal of the same version (5.13).
func (c *Client) Conflict() bool { return c.Holder.heard.conflict }

// Outdated reports whether the bucket is known to have been reset or reconfigured since the last reply.
func (c *Client) Outdated() bool { return c.settings.outdated() }

// Heard returns the last reply.
func (c *Client) Heard() Heard { return c.Holder.heard }

// ClientState is a Client's state. If several states apply, the last one listed counts.
type ClientState int8

const (
	StateActive   ClientState = iota // no other state applies
	StateDenied                      // the delay after a shortfall lasts, so no call is made
	StateCold                        // no reply has ever arrived
	StateDegraded                    // the store does not answer: Policy.Fallback decides
	StateLeaving                     // the Client gives everything back
	StateClosed                      // the Client is closed and decides no request
)

// State returns c's state at now.
func (c *Client) State(now clock.Instant) ClientState {
	switch {
	case c.stage >= StateLeaving:
		return c.stage
	case c.Failures.Degraded():
		return StateDegraded
	case !c.Holder.heard.replied:
		return StateCold
	case now < c.Denials.until:
		return StateDenied
	}
	return StateActive
}

// Rest returns the Memory of c, so that the caller can drop c. Rest returns false if dropping c loses more
// than estimates (8.13).
func (c *Client) Rest() (Memory, bool) {
	h := &c.Holder.heard
	if !c.Idle() || c.Failures.inARow > 0 || c.fallback.seeded != nil || c.settings.outdated() ||
		h.at > 0 && (h.level() < 0 || c.settings.host.Now() < h.at.Add(h.frozen)) {
		return Memory{}, false
	}
	m := h.Memory
	if h.at > 0 {
		if c.fallback.mostActive > c.settings.weight {
			m.calls = max(m.calls, float32(c.fallback.mostActive)/float32(c.settings.weight))
		}
		m.keep(c.settings.config.Limits, &c.Holder.heard.levels, c.settings.policy.Headroom)
	}
	if !equal(&c.settings.config, c.settings.own) {
		config := c.settings.config
		m.config = &config
	}
	return m, true
}

// recall restores the Memory m of a key at rest into c, a Client that was just started.
func (c *Client) recall(m Memory) {
	c.Holder.heard.Memory, c.Holder.heard.active = m, m.byCalls(c.settings.weight)
	if m.config != nil {
		c.settings.adopt(*m.config)
		c.Holder.heard.config = nil
		if !m.conflict { // this process has proposed m.config before
			c.settings.conflictsFrom = m.executed.Add(3 * m.ttl)
		}
	}
	p := m.pace.after(c.sizer.demand.at.Sub(m.executed), 0, c.settings.config.Target)
	c.sizer.demand.fast, c.sizer.demand.slow = float64(p.fast), float64(p.slow)
	c.Holder.heard.pace = pace{}
	for k, l := range c.settings.config.Limits {
		if l.TimeToFull() < exact.MaxTime {
			c.Holder.heard.levels[k] = c.settings.burst(l) // assume a full burst, as the level is unknown
		}
	}
	c.KnowLimits(c.settings.config.Limits)
}

// Lifetime returns the time from the last use until the bucket is full again and every lease has ended.
func (c *Client) Lifetime() time.Duration {
	return longestToFull(c.settings.config.Limits) + c.TTL()
}

// takeOver makes the draw r the call under way of c, which was just started and has recalled the Memory from
// which r was made. r was sent at sent for the request w, which joins c's queue.
func (c *Client) takeOver(sent clock.Instant, r *lease.Request, w *Waiter) {
	c.Holder.open, c.Holder.isOpen, c.Holder.firstSent = *r, true, sent
	c.Holder.calling = true
	if !equal(&r.Config, c.settings.own) { // the draw proposed another configuration
		c.settings.conflictsFrom = sent.Add(3 * c.TTL())
	}
	c.Line.push(w)
	c.Line.join(r.Seq)
}

// meet gives c, which was just started, the share s and a debt for the tokens that s admitted by these
// limits.
func (c *Client) meet(now clock.Instant, s share, admitted int64, limits []lease.Limit) {
	c.fallback.seeded = &seeded{share: s, limits: limits}
	c.Holder.debt = s.owed(now, limits, admitted, c.fallback.dates(now))
}

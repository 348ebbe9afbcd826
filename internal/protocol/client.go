package protocol

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Client is one process's side of one key: it decides when to call the bucket and how much to ask for
// (docs/protocol.md section 8), and which request is served when (section 9). It is a state machine without
// goroutines and I/O. Its user tells it the time, and the same inputs give the same outputs.
//
// Requests take tokens from Pool. One that the pool refuses goes to Decide, and from there perhaps
// to Enqueue. Tick says when a call is due and Build makes it. Its reply goes to Accept and then to
// Serve, its failure to Fail. The package comment shows this loop.
//
// Pool's takes, Pool.Drawn, Low, ShutUntil and Capacity are for any number of goroutines.
// Everything else is serialised by a lock of the user's.
//
// The zero value is not usable; see Start.
type Client struct {
	holding

	host        Host
	policy      *lease.Policy // may be shared
	callTimeout time.Duration
	random      uint64
	stage       stage

	own    lease.Config  // what this process proposes
	config lease.Config  // in force; where that is not own, with the TTL that it came with
	target time.Duration // in force
	rtt    time.Duration // 99th percentile, of the key's node
	change change        // of the bucket, by others than its calls
	setTo  []lease.Limit // the limits in force since that change
	// Another configuration in force is only what this process proposed before, by calls sent before then.
	conflictsFrom clock.Instant

	weight int64 // of the last call

	demand       demand
	stock        int64         // tokens in the bucket and leased, as the last reply said
	lasts        time.Duration // how long the level lasts from then on; see gauge
	seenAtReply  int64         // attempts at the last reply
	seenAtReview int64         // attempts when a lease that was spent was last looked at
	missed       int64         // tokens of requests that came to Decide
	missedAtAsk  int64         // lacked when the last call was built: more than that is new demand
	denied       int64         // tokens of requests that Decide or the end of a wait has denied
	attributed   int64         // of Denied: those that are, or were, in denials
	deniedTold   int64         // of attributed: what calls have carried to the bucket
	denials      []denials

	calling     bool          // a call is under way
	low         bool          // a Take has reported low since the last call
	tookLow     atomic.Bool   // and since the last Tick
	leased      int64         // held after the last reply
	reviewAt    clock.Instant // when to look next whether more is held than needed
	reviewing   bool          // that time has come
	staleAt     clock.Instant // the bucket is full by then, unless it hears what was spent
	deniedUntil clock.Instant // the bucket is known to have too little until then; 0 where it is not
	shutUntil   atomic.Int64  // the same, as far as it concerns requests for one token

	queue   queue
	refused int64 // the largest n refused without queueing since the last call

	failures int           // of calls, in a row
	stales   int           // the same, of calls that were ErrStale
	probeAt  clock.Instant // while degraded: when the next call may go out
	fallback *seeded       // nil before the first outage

	mostActive int64         // the largest sum of weights that a reply has named for some TTLs,
	mostAt     clock.Instant // and when

	resets     int   // of the bucket that are under way: no waiting request is turned away meanwhile
	returnFrom int64 // then calls give everything back, until one with this seq or a later one has ended
	ended      int64 // the highest seq of a call that has ended

	usedSeen int64         // attempts when restAt was set
	restAt   clock.Instant // when the key may go to rest, if it stays unused; 0 while it is in use
}

// stage is how far a Client has come in its life.
type stage int8

const (
	serving stage = iota
	leaving       // gives everything back
	closed
)

// ClientConfig is the configuration with which a Client starts. Its Policy and Config were validated before.
type ClientConfig struct {
	ID          string        // the instance id; differs between processes
	Policy      *lease.Policy // may be shared
	Proposed    lease.Config  // see Policy.ConfigFor
	CallTimeout time.Duration
	Seed        uint64 // of the jitter
	// Stripes is the number of Ps, each of which has a part of the Pool where several take at once.
	// Which take reports low then depends on the scheduler, so a simulation leaves it 0.
	Stripes int
}

// Host is the user of a Client. Its methods are called while the Client is, so they may not call it.
type Host interface {
	// Now reads the clock: whether a token may still be spent (Policy.StrictExpiry), or put back into
	// the pool, cannot rest on what the time was a moment ago.
	Now() clock.Instant
	// Wake asks for a Tick soon; urgent says that a request waits for it.
	Wake(urgent bool)
	// Shut says that requests for one token are denied until then, when Reopen is due; 0 ends that.
	Shut(until clock.Instant)
	// Handed says that the waiting request w has been given n tokens.
	Handed(w *Waiter, n int64, from Origin)
	// Passed says that n tokens which were drawn for w, and given to it, are to's.
	Passed(w, to *Waiter, n int64)
	// Forfeited says that what w has been given so far is lost.
	Forfeited(w *Waiter)
	// Settled ends w's wait. w is the user's again.
	Settled(w *Waiter, d Decision)
	// Breaker is that of the node that serves the key now. Several keys share it.
	Breaker() *Breaker
	// NewID returns another instance id, because another process calls under the present one.
	NewID() string
}

// Origin says where the tokens come from that a waiting request is given.
type Origin int8

const (
	FromGrant Origin = iota // drawn for waiting requests: admitted when the bucket granted them
	FromPool                // leased to this process, and spent now
)

// Start makes c a cold client.
func (c *Client) Start(now clock.Instant, host Host, cfg ClientConfig) {
	c.holding.init(cfg.ID, cfg.Stripes)
	c.host, c.policy, c.callTimeout = host, cfg.Policy, cfg.CallTimeout
	c.random = cfg.Seed
	c.weight = weightOf(c.policy)
	c.own = cfg.Proposed
	c.heard.ttl, c.heard.headroom = c.own.TTL, c.policy.Headroom
	c.rtt, c.lasts = rttUnknown, lastsAlways
	c.demand.at = now
	c.adopt(c.own)
	c.KnowLimits(c.config.Limits)
}

// Propose changes what this process proposes. Before the first reply it is in force at once, and
// otherwise when the bucket says so: that is 2 T after the last call of any process that proposes
// what is in force now, this one included, under an equal version. p was validated before.
func (c *Client) Propose(now clock.Instant, p lease.Config) {
	if equal(&p, &c.own) && p.TTL == c.own.TTL {
		return
	}
	c.attribute()
	c.own = p
	c.conflictsFrom = now.Add(3 * c.TTL()) // a call comes within a T
	if !c.heard.replied {
		c.heard.ttl = p.TTL
		c.adopt(p)
		c.KnowLimits(p.Limits)
	}
}

// Insist says that what is proposed is to be in force with the next call: where the reply to one
// that is sent from now on names another configuration of an equal version, that is a conflict.
func (c *Client) Insist(now clock.Instant) { c.conflictsFrom = min(c.conflictsFrom, now) }

// BeginReset has a call give everything back before the bucket is reset or gets other limits, and no call ask
// for more until EndReset. The call has this seq or a later one; with 0 none is made, as nothing is held. No
// waiting request is turned away meanwhile.
func (c *Client) BeginReset(seq int64) {
	if c.resets++; c.resets == 1 {
		c.returnFrom = 0
	}
	c.returnFrom = max(c.returnFrom, seq)
}

// EndReset ends what BeginReset began.
func (c *Client) EndReset() { c.resets-- }

// HasEnded reports whether a call with this seq or a later one has been answered or has failed.
func (c *Client) HasEnded(seq int64) bool { return c.ended >= seq }

// Leave gives everything back. Requests that wait end with VerdictClosed; Tick or Fail closes c in the end.
func (c *Client) Leave() {
	c.stage = leaving
	c.settleAll(Decision{Verdict: VerdictClosed})
	c.host.Wake(true)
}

// Close ends the client at once. Requests that wait end with VerdictClosed, and no reply is accepted any
// more. The holding is burnt here, and expires at the bucket.
func (c *Client) Close() {
	if c.stage == closed {
		return
	}
	c.shut(0)
	c.settleAll(Decision{Verdict: VerdictClosed})
	c.stage = closed
	c.giveUp()
	c.burn()
	c.burnUnused()
	c.charge = nil
}

// Closed reports whether c has been closed, or has left.
func (c *Client) Closed() bool { return c.stage == closed }

// TTL is the T in force.
func (c *Client) TTL() time.Duration { return c.heard.ttl }

// Limits are the limits in force. The slice may not be changed.
func (c *Client) Limits() []lease.Limit { return c.config.Limits }

// Capacity is the largest n that can ever be granted, as far as is known: the smallest burst of the
// limits in force, less Policy.Headroom. For any number of goroutines.
func (c *Client) Capacity() int64 { return c.Pool.Capacity() }

// KnowLimits says which limits Capacity goes by from now on. For any number of goroutines.
func (c *Client) KnowLimits(limits []lease.Limit) {
	c.Pool.SetCapacity(mostOf(limits, c.policy.Headroom))
}

// Conflict reports whether another configuration is in force, under the same version, than this
// process proposes. It begins and ends with a reply. Where processes were deployed with different
// limits, those that are stored hold until 2 T after the last process that proposes them has
// called; a higher version ends that at once.
func (c *Client) Conflict() bool { return c.heard.conflict }

// Heard returns the last reply.
func (c *Client) Heard() Heard { return c.heard }

// ClientState says where a Client stands. Where several apply it is the last of them.
type ClientState int8

const (
	StateActive   ClientState = iota // holds tokens
	StateLow                         // holds few: a prefetch is due
	StateDry                         // holds none: the next request waits for a call
	StateDenied                      // the bucket is known to have too little, so no call is made
	StateCold                        // no reply has ever come
	StateDegraded                    // the last call failed: Policy.Fallback decides
	StateLeaving                     // gives everything back
	StateClosed                      // Close was called: it decides nothing any more
)

// String is the state's name.
func (s ClientState) String() string {
	names := [...]string{"active", "low", "dry", "denied", "cold", "degraded", "leaving", "closed"}
	if s < 0 || int(s) >= len(names) {
		return fmt.Sprintf("ClientState(%d)", int(s))
	}
	return names[s]
}

// State says where c stands at now.
func (c *Client) State(now clock.Instant) ClientState {
	switch {
	case c.stage == closed:
		return StateClosed
	case c.stage == leaving:
		return StateLeaving
	case c.Degraded():
		return StateDegraded
	case !c.heard.replied:
		return StateCold
	case now < c.deniedUntil:
		return StateDenied
	case c.Pool.Held() == 0:
		return StateDry
	case c.low || c.tookLow.Load():
		return StateLow
	}
	return StateActive
}

// LateAfterClose books as burnt the tokens that were taken before Close and found to be past the
// strict deadline after it, which Close has counted as admitted. It returns how many these are.
func (c *Client) LateAfterClose() int64 {
	n := c.Pool.Late() - c.lateSeen
	if c.stage != closed || n == 0 {
		return 0
	}
	c.lateSeen += n
	c.account.Admitted -= n
	c.account.Burnt += n
	return n
}

// Rest returns the Memory of c, to let c go now. It is false where more than an estimate would be lost:
// tokens, debts, an open call, failures of its own calls, the local share, or that the bucket owes or waits
// out a loss.
func (c *Client) Rest() (Memory, bool) {
	h := &c.heard
	if !c.Idle() || c.failures > 0 || c.fallback != nil || c.Outdated() ||
		h.at > 0 && (h.level() < 0 || c.host.Now() < h.at.Add(h.frozen)) {
		return Memory{}, false
	}
	m := h.Memory
	if h.at > 0 {
		if c.mostActive > c.weight {
			m.calls = max(m.calls, float32(c.mostActive)/float32(c.weight))
		}
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
	c.heard.Memory, c.heard.active = m, m.byCalls(c.weight)
	if m.config != nil {
		c.adopt(*m.config)
		c.heard.config = nil
		if !m.conflict { // this process has proposed it before
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

// TakeOver has c, which was just started and has recalled what r was made from, go on with that draw, which
// was sent at sent for the request w, as with a call of its own that is under way, and with w in its queue.
func (c *Client) TakeOver(sent clock.Instant, r *lease.Request, w *Waiter) {
	c.open, c.isOpen, c.firstSent = *r, true, sent
	c.calling = true
	if !equal(&r.Config, &c.own) { // which was proposed until now
		c.conflictsFrom = sent.Add(3 * c.TTL())
	}
	c.queue.push(w)
	c.queue.join(r.Seq)
}

// Meet has c, which was just started and knows nothing, go on where u ended, which decided by these
// limits: c owes what u has admitted.
func (c *Client) Meet(now clock.Instant, u *Unheard, limits []lease.Limit) {
	c.fallback, c.debt = &seeded{share: u.share, limits: limits}, u.owed(now, limits, c.dates(now))
}

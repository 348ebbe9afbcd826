package protocol

import (
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/internal/pool"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Key is the state of one key in one process (docs/protocol.md sections 8.13, 8.14 and 8.17).
//
//	resting          -- Draw -->      drawing
//	drawing          -- Drew -->      resting
//	resting, drawing -- Activate -->  active
//	active           -- Rest -->      resting
//	any              -- Leave -->     gone
//
// An active key has a Client, which decides its requests. A request for a key at rest becomes a draw, is
// decided by the local share (Fallback), or activates the key. The user guards each Key with a lock.
type Key struct {
	state  keyState
	denied bool // at rest: whether the last request was denied
	// The user owns Given, whether the proposal came from the key's handle, and Node, the key's node.
	Given bool
	Node  int32

	memory  Memory        // at rest
	own     *lease.Config // at rest: this process's proposal; nil if unknown
	unheard *Unheard      // at rest: the tokens admitted without the store, by the limits of own
	draw    *Draw         // the draw under way; nil unless the key is drawing
}

type keyState uint8

const (
	keyResting keyState = iota // the key has no Client and no draw
	keyDrawing                 // the key has no Client; a draw is under way
	keyActive                  // the key has a Client
	keyGone                    // the key is forgotten
)

// Draw is a call that draws tokens for one request, without a lease, for a key at rest. The user sets For,
// Request and Owner.
type Draw struct {
	For     *Waiter        // the request
	Request *lease.Request // the call, which the user sends once, without delay
	Owner   any            // for the user's own use
	Sent    clock.Instant
	own     *lease.Config // the configuration that the request proposes
}

// Terms are the settings for draws of a key at rest: those of the process and of the key's node.
type Terms struct {
	ID       string // the instance id
	Policy   *lease.Policy
	Proposed *lease.Config
	RTT      time.Duration // 99th percentile of the node's round trips; 0 if unknown
	// A node with round trips above a quarter of CallTimeout gets no draws (8.17).
	CallTimeout time.Duration
}

// AtRest reports whether k has no Client and is not gone.
func (k *Key) AtRest() bool { return k.state == keyResting || k.state == keyDrawing }

// Gone reports whether k is forgotten.
func (k *Key) Gone() bool { return k.state == keyGone }

// UnderWay returns the draw under way, or nil.
func (k *Key) UnderWay() *Draw { return k.draw }

// Way says how to answer a request.
type Way int8

const (
	ByClient Way = iota // a Client decides: call Activate
	ByDraw              // a draw decides: call Draw, then Drew
	ByShare             // the local share decides: call Fallback
)

// Asked returns how to answer the request a. b is the breaker of the key's node.
func (k *Key) Asked(now clock.Instant, a Ask, t *Terms, b *Breaker) Way {
	switch {
	case k.state != keyResting:
		return ByClient
	case b.Away():
		if !k.memory.replied && t.decides(b.Active(), a) &&
			(k.unheard == nil || slices.Equal(k.own.Limits, t.Proposed.Limits)) {
			return ByShare
		}
		return ByClient
	case a.Patience != OneCall, 4*t.RTT > t.CallTimeout,
		k.unheard != nil && now < k.unheard.FullAt(t, b.Active()), // a Client must report the debt of unheard
		k.own != nil && k.own != t.Proposed && k.memory.recent(now),
		!k.memory.draws(now, a.N, t):
		return ByClient
	}
	return ByDraw
}

// draws reports whether a request for n tokens should draw, rather than activate the key (8.17).
func (m *Memory) draws(now clock.Instant, n int64, t *Terms) bool {
	c := m.inForce(t.Proposed)
	if t.Policy.MinBatch > 1 || SwitchOf(c.Limits) != SwitchNone { // a MinBatch above 1 demands leases
		return false
	}
	single := false
	for _, l := range c.Limits {
		if n > grantable(l, t.Policy.Headroom) {
			return false
		}
		part, _ := ceilingOf(t.Policy, c, c.Target, l, m.byCalls(1) <= 1)
		single = single || part < 2
	}
	p := m.pace
	if m.replied {
		p = p.after(now.Sub(m.executed), 1, c.Target)
	}
	rtt := max(t.RTT, rttUnknown)
	return float64(max(p.fast, p.slow))*(c.Target+rtt).Seconds() < slowBelow ||
		single || cramped(t.Policy, c, rtt)
}

// Draw begins the draw d for the request d.For, which Asked answers with ByDraw. No other draw may begin
// before Drew has processed the reply or a Client has taken over d.
func (k *Key) Draw(now clock.Instant, seq int64, t *Terms, d *Draw) {
	m, n := &k.memory, d.For.N
	c := m.inForce(t.Proposed)
	*d.Request = lease.Request{
		Holder: t.ID, Seq: seq, Config: propose(t.Proposed, c, max(t.RTT, rttUnknown)),
		Want: n, Need: n, Waiting: n, Weight: weightOf(t.Policy), Headroom: t.Policy.Headroom,
		Draw: true,
	}
	m.prove(now, d.Request)
	if m.replied {
		m.pace = m.pace.after(now.Sub(m.executed), 1, c.Target)
	}
	d.Sent, d.own = now, t.Proposed
	k.state, k.draw, k.own, k.unheard = keyDrawing, d, t.Proposed, nil
}

// Drew processes the reply g to the draw d, which arrived at now from the node of b. If ok is true, g admits
// the request with tokens of the draw from. Otherwise a Client must take over d, unless a Client has done so.
func (k *Key) Drew(now clock.Instant, d *Draw, b *Breaker, g *lease.Grant) (from pool.Draw, ok bool) {
	m, r := &k.memory, d.Request
	plain := k.draw == d && g.Seq == r.Seq && g.Granted == r.Want && g.Waited == r.Waiting && g.Config.TTL > 0 &&
		min(g.Epoch, g.Counter, g.Running) >= 0 && equal(&g.Config, m.inForce(d.own))
	if !plain {
		return from, false
	}
	if m.config != nil && equal(m.config, d.own) {
		m.config, m.conflict = nil, false
	}
	m.hear(d.Sent, r.Weight, false, g)
	b.heardServer(now, g.ServerTime)
	b.heardCalls(now, r.Weight, g.ActiveWeight, m.byCalls(r.Weight))
	m.ttl = g.Config.TTL
	m.keep(g.Config.Limits, &g.Levels, r.Headroom)
	if k.own != d.own { // the proposal has changed since the draw began
		m.propose(d.own)
	}
	k.state, k.draw, k.denied = keyResting, nil, false
	return pool.Draw{Epoch: g.Epoch, Running: g.Running}, true
}

// Fallback takes up to n tokens from the local share of a key that has had no reply, or none if the share has
// fewer than least. active is the node's active weight.
func (k *Key) Fallback(now clock.Instant, least, n int64, t *Terms, active int64) (took int64, u *Unheard) {
	if k.unheard == nil {
		k.unheard = new(Unheard)
	}
	k.own = t.Proposed
	return k.unheard.take(now, least, n, t, active), k.unheard
}

// Activate moves the state of k into c, which was just started, and returns the draw under way, or nil.
func (k *Key) Activate(now clock.Instant, c *Client) (d *Draw) {
	if k.memory != (Memory{}) {
		c.recall(k.memory)
	}
	if k.unheard != nil {
		c.meet(now, k.unheard.share, k.unheard.debt, k.own.Limits)
	}
	if d = k.draw; d != nil {
		c.takeOver(d.Sent, d.Request, d.For)
	}
	*k = Key{state: keyActive, Node: k.Node}
	return d
}

// Rest stores m, the Memory of the Client that ends, and whether the key's last request was denied.
func (k *Key) Rest(m Memory, denied bool) {
	*k = Key{state: keyResting, denied: denied, memory: m, Node: k.Node}
}

// Leave marks k as gone.
func (k *Key) Leave() { k.state = keyGone }

// Propose makes c the proposal of k; nil makes the next request look up the limits. The former proposal
// counts as in force unless a reply has named another configuration.
func (k *Key) Propose(c *lease.Config) {
	k.memory.propose(k.own)
	k.own = c
}

// Own returns the proposal of k; nil if unknown.
func (k *Key) Own() *lease.Config { return k.own }

// Proposed returns Own if k is drawing or had a reply within the last T, otherwise nil.
func (k *Key) Proposed(now clock.Instant) *lease.Config {
	if k.state != keyDrawing && !k.memory.recent(now) {
		return nil
	}
	return k.own
}

// InUse returns the limits in force, as known to k, if Proposed is not nil; otherwise nil.
func (k *Key) InUse(now clock.Instant) []lease.Limit {
	if k.Proposed(now) == nil {
		return nil
	}
	return k.memory.inForce(k.own).Limits
}

// Limits returns the limits in force, if a reply has come within the last T; otherwise nil.
func (k *Key) Limits(now clock.Instant) []lease.Limit {
	if !k.memory.recent(now) {
		return nil
	}
	return k.InUse(now)
}

// Owes reports whether k may have admitted tokens that no call has reported.
func (k *Key) Owes() bool { return k.unheard != nil }

// Denied reports whether k is at rest and its last request was denied.
func (k *Key) Denied() bool { return k.denied }

// Admits reports whether k is at rest and one of its draws was admitted within the last T.
func (k *Key) Admits(now clock.Instant) bool {
	return k.own != nil && !k.denied && k.memory.recent(now)
}

// Lifetime returns for how long to keep k after its last use. c is this process's proposal.
func (k *Key) Lifetime(c *lease.Config) time.Duration {
	return longestToFull(k.memory.inForce(c).Limits) + k.memory.ttl
}

// Unheard decides requests for a key that has had no reply and has no Client, while its node is away
// (docs/protocol.md section 8.14). The zero Unheard has a full share.
type Unheard struct {
	share
	debt int64 // tokens admitted so far
}

// decides reports whether an Unheard can decide the request a, by the node's active weight (0 if unknown).
func (t *Terms) decides(active int64, a Ask) bool {
	return a.Patience != InLine && (active > 0 || t.Policy.ColdStart == lease.ColdStartDeny) &&
		SwitchOf(t.Proposed.Limits) != SwitchUnlimited && a.Most(t.Most()) <= t.Most()
}

// Denies reports whether an Unheard denies every request. With StartEmpty the bucket may be empty.
func (t *Terms) Denies(active int64) bool {
	return active == 0 || t.Policy.Fallback == lease.FallbackDeny ||
		SwitchOf(t.Proposed.Limits) == SwitchBlocked ||
		t.Proposed.StartEmpty && t.Policy.Fallback == lease.FallbackLocalShare
}

// Most returns the smallest burst, less the headroom.
func (t *Terms) Most() int64 { return mostOf(t.Proposed.Limits, t.Policy.Headroom) }

func (u *Unheard) take(now clock.Instant, least, n int64, t *Terms, active int64) int64 {
	if now >= u.FullAt(t, active) {
		*u = Unheard{}
	}
	p := partOf(t.Policy, t.Proposed.Limits, active)
	if t.Policy.Fallback == lease.FallbackAllowAll {
		for k := range p.limits {
			u.charge(now, k, p, n)
		}
	} else {
		n = u.share.take(now, p, least, n)
	}
	u.debt += min(n, lease.WaitingMax-u.debt)
	return n
}

// FullAt returns when the share is full again and u may be forgotten.
func (u *Unheard) FullAt(t *Terms, active int64) (at clock.Instant) {
	p := partOf(t.Policy, t.Proposed.Limits, active)
	for k, l := range p.limits {
		if u.emptyAt[k] != 0 || u.windows != nil {
			at = max(at, u.at(0, k, p, p.burst(l)))
		}
	}
	return at
}

// Outlook returns the Outlook of a request for n tokens that u has decided. RetryAfter is at least
// callTimeout for a request that the share can never serve.
func (u *Unheard) Outlook(
	now clock.Instant, n int64, t *Terms, active int64, callTimeout time.Duration,
) Outlook {
	o := Outlook{
		Remaining: exact.MaxUnits, RetryAfter: fallbackPause,
		ResetAfter: max(0, u.FullAt(t, active).Sub(now)),
	}
	p := partOf(t.Policy, t.Proposed.Limits, active)
	for k, l := range p.limits {
		has := u.has(now, k, p)
		if has < o.Remaining {
			o.Limit, o.Remaining = l, has
		}
		switch {
		case n > p.burst(l) || t.Denies(active):
			o.RetryAfter = max(o.RetryAfter, callTimeout)
		case has < n:
			o.RetryAfter = max(o.RetryAfter, u.at(now, k, p, n).Sub(now))
		}
	}
	return o
}

package protocol

import (
	"math"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/internal/pool"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Heard is the last reply about the bucket, such as when it has tokens again. It is a value: a copy may be
// read by anybody, whatever its Client does meanwhile. The zero value is nothing.
type Heard struct {
	Memory
	headroom  float64 // Policy.Headroom, by which levels are less than the bucket's
	contended bool    // another holder could not be served, because of what others hold
	active    int64   // sum of the weights of all holders
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

// lineage has the facts that prove that a bucket has lost its state: docs/protocol.md, section 6.
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

func (m *Memory) expired(now clock.Instant) bool { return now >= m.executed.Add(m.expiry) }

// prove has r say what is known of the bucket, unless that may have expired by now.
func (m *Memory) prove(now clock.Instant, r *lease.Request) {
	if m.epoch > 0 && !m.expired(now) {
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

// hear takes in the reply g to a call of a holder of this weight, first sent at sent; counted is what
// Heard.counts returned.
func (m *Memory) hear(sent clock.Instant, weight int64, counted bool, g *lease.Grant) {
	m.count(weight, counted, g)
	counter := g.Counter
	if g.Epoch == m.epoch {
		counter = max(m.counter, counter)
	}
	m.lineage = lineage{
		epoch: g.Epoch, counter: counter, running: g.Running, leaseMax: max(g.LeaseMax, g.Frozen),
		serverTime: g.ServerTime, expiry: g.Expiry,
	}
	m.executed, m.replied = sent, true
}

// count updates calls by the reply g to a holder of this weight (docs/protocol.md section 8.14). The first
// reply of a bucket gives a guess: the processes that it names or, if there is no other, the mean number of
// calls in activeFor TTLs.
func (m *Memory) count(weight int64, counted bool, g *lease.Grant) {
	if !counted && g.Epoch != m.epoch {
		calls, span := g.ActiveWeight/weight, max(1, exact.Micros(activeFor*g.Config.TTL))
		if calls <= 1 {
			calls = 1 + exact.MulDiv(max(0, min(g.Counter-1, callsMost)), span, max(span, g.ServerTime-g.Epoch))
		}
		if m.calls = 0; calls > 1 {
			m.calls = -float32(calls)
		}
		return
	}
	calls, last := float32(1), float32(8)
	if !counted {
		calls, last = float32(max(1, min(g.Counter-m.counter, callsMost))), 4
	}
	if m.calls <= 0 {
		m.calls = calls
	}
	m.calls += (calls - m.calls) / last
}

// callsMost bounds what one reply counts.
const callsMost = 1 << 30

// byCalls returns the active weight, if each process has this weight and calls as often as this one. It
// returns 0 where that is not known.
func (m *Memory) byCalls(weight int64) int64 {
	return weight * int64(math.Round(math.Abs(float64(m.calls))))
}

// hear takes in the reply g to the call open, which was first sent at sent.
func (h *Heard) hear(now, sent clock.Instant, open *lease.Request, g *lease.Grant) {
	h.Memory.hear(sent, open.Weight, h.counts(sent, open), g)
	h.leaseMax, h.frozen, h.leasedOut = g.LeaseMax, g.Frozen, g.Ledger > 0
	h.at, h.contended, h.active = now, g.Contended, g.ActiveWeight
	h.levels, h.next = g.Levels, g.Next
	h.others = max(0, g.Ledger-open.Remaining-(g.Granted-g.Waited))
	h.shortOf, h.shortUntil = 0, 0
	if g.RetryAfter > 0 {
		h.shortOf, h.shortUntil = max(1, open.Need), sent.Add(g.RetryAfter)
	}
}

// Frozen reports whether the bucket waited out a loss at the reply.
func (h *Heard) Frozen() bool { return h.frozen > 0 }

// counts reports whether the reply to open, first sent at sent, names all processes that call as often as this
// one. A bucket names a holder until a T after its call, and names no other holder at a draw at rest.
func (h *Heard) counts(sent clock.Instant, open *lease.Request) bool {
	return !open.Draw && h.at > 0 && sent.Sub(h.executed) <= h.ttl
}

func (h *Heard) level() int64 {
	least := h.levels[0]
	for k := range h.limits {
		least = min(least, h.levels[k])
	}
	return least
}

// Limits are the bucket's, as the last reply had them. They are not to be changed.
func (h *Heard) Limits() []lease.Limit { return h.limits }

// binding is the first limit that one token, or what the last call needed, waits for longest.
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
		at = max(at, h.executed.Add(h.until(k, n)))
		further = min(further, kindOf(l).timeFor(l, n-h.shortOf))
	}
	if h.shortOf > 0 && n >= h.shortOf {
		at = max(at, h.shortUntil.Add(further))
	}
	return at
}

// Outlook is the information about a key beside the decision on a request.
type Outlook struct {
	Limit      lease.Limit   // with the least left of its burst; for a denial, with the longest wait
	Remaining  int64         // of Limit, what the process holds and the bucket has, 0 to the burst less headroom
	RetryAfter time.Duration // until the tokens can exist, at least 1 ns
	ResetAfter time.Duration // until Remaining is the burst, without further draws
}

// Outlook judges a request for n tokens at time now, of a process that held that number of tokens.
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
			// As if the bucket had executed the call when it replied: no caller may come back too early.
			wait = h.shortUntil.Sub(h.executed) + kindOf(l).timeFor(l, n-held-h.shortOf) - since
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

// until is how long after the reply level k has n tokens, without further draws. A calendar has all of them
// at its boundary. A sliding window has one token more when its oldest cell is dropped, which may bring all
// of them.
func (h *Heard) until(k int, n int64) time.Duration {
	l, missing := h.limits[k], n-h.levels[k]
	if missing > 0 && h.next[k] > 0 {
		return h.next[k] + kindOf(l).timeFor(l, missing-1)
	}
	return kindOf(l).timeFor(l, missing)
}

// reset is how long after the reply level k has n tokens again, at most, without further draws.
func (h *Heard) reset(k int, n int64) time.Duration {
	until := h.until(k, n)
	if n > h.levels[k] {
		until = kindOf(h.limits[k]).reset(h.limits[k], until)
	}
	return until
}

// GrantOutlook judges a request for n tokens that g admitted, of a process that holds nothing.
func GrantOutlook(g *lease.Grant, n int64, headroom float64) Outlook {
	h := Heard{limits: g.Config.Limits, levels: g.Levels, next: g.Next, headroom: headroom}
	return h.Outlook(0, n, 0, true)
}

// StateOutlook judges a request for n tokens at the time of s, of a process that holds held tokens and has
// this Policy.Headroom.
func StateOutlook(s *lease.State, n, held int64, headroom float64, admitted bool) Outlook {
	h := Heard{limits: s.Config.Limits, levels: s.Levels, next: s.Next, headroom: headroom}
	for k, l := range h.limits {
		h.levels[k] -= l.Capacity() - grantable(l, headroom)
	}
	return h.Outlook(0, n, held, admitted)
}

// Memory is the rest of a Client whose key has not been used for a while: what it must know to notice that
// the bucket was lost, and what it would otherwise have to learn again. It is small, since a process may
// have a million keys at rest. The zero value knows nothing.
type Memory struct {
	lineage
	executed clock.Instant // the bucket executed the last call then or later
	ttl      time.Duration // T in force
	config   *lease.Config // at rest: in force, where it is not what the client proposes
	pace     pace          // at rest: of its draws
	calls    float32       // mean calls of the bucket per own call; negative for a guess, 0 for not known
	replied  bool          // any reply ever
	conflict bool          // see Client.Conflict
	// At rest: what was left of each burst, in 255ths of one above 255, and a fingerprint of the limits.
	left [lease.LimitsMax]uint8
	of   uint16
}

// Terms are the settings by which a key at rest draws: those of its process, and of the node that serves it.
type Terms struct {
	ID       string // the instance id
	Policy   *lease.Policy
	Proposed *lease.Config
	RTT      time.Duration // 99th percentile of the node's round trips; 0 for not known
}

// Draws reports whether a request for n tokens of a key at rest is best served by a draw
// (docs/protocol.md section 8.17). Otherwise a Client has to decide about it.
func (m *Memory) Draws(now clock.Instant, n int64, t *Terms) bool {
	c := m.inForce(t.Proposed)
	if t.Policy.MinBatch > 1 || SwitchOf(c.Limits) != SwitchNone { // a process that sets it wants leases
		return false
	}
	single := t.Policy.MaxBatch == 1
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
		single || crampedBy(t.Policy, c, rtt)
}

// Draw makes r the draw of n tokens for one request, to be sent at once and never again. Until its
// reply came to Drew, or a Client has taken it over, there may be no other.
func (m *Memory) Draw(now clock.Instant, seq, n int64, t *Terms, r *lease.Request) {
	c := m.inForce(t.Proposed)
	*r = lease.Request{
		Holder: t.ID, Seq: seq, Config: propose(t.Proposed, c, max(t.RTT, rttUnknown)),
		Want: n, Need: n, Waiting: n, Weight: weightOf(t.Policy), Headroom: t.Policy.Headroom,
		Draw: true,
	}
	m.prove(now, r)
	if m.replied {
		m.pace = m.pace.after(now.Sub(m.executed), 1, c.Target)
	}
}

// Drew takes in, at now, the reply g to the draw r, which was sent at sent to the node of b. It reports
// whether g admits the request and says nothing else that a Client must hear of, and then how the tokens left
// the bucket. Otherwise m is unchanged, and a Client has to take the draw over.
func (m *Memory) Drew(
	now, sent clock.Instant, b *Breaker, proposed *lease.Config, r *lease.Request, g *lease.Grant,
) (pool.Draw, bool) {
	plain := g.Seq == r.Seq && g.Granted == r.Want && g.Waited == r.Waiting && g.Config.TTL > 0 &&
		min(g.Epoch, g.Counter, g.Running) >= 0 && equal(&g.Config, m.inForce(proposed))
	if !plain {
		return pool.Draw{}, false
	}
	if m.config != nil && equal(m.config, proposed) {
		m.config, m.conflict = nil, false
	}
	m.hear(sent, r.Weight, false, g)
	b.heardServer(now, g.ServerTime)
	b.heardCalls(now, r.Weight, g.ActiveWeight, m.byCalls(r.Weight))
	m.ttl = g.Config.TTL
	m.keep(g.Config.Limits, &g.Levels, r.Headroom)
	return pool.Draw{Epoch: g.Epoch, Running: g.Running}, true
}

// Recent reports whether m's bucket was called within the last T, so that its key counts as in use.
func (m *Memory) Recent(now clock.Instant) bool { return m.replied && now < m.executed.Add(m.ttl) }

// Limits are those in force as far as m knows, of a process that proposes so.
func (m *Memory) Limits(proposed *lease.Config) []lease.Limit { return m.inForce(proposed).Limits }

// Lifetime is Client.Lifetime of a key at rest.
func (m *Memory) Lifetime(proposed *lease.Config) time.Duration {
	return longestToFull(m.inForce(proposed).Limits) + m.ttl
}

// Propose says that before is no longer proposed. It stays in force until a reply says otherwise.
func (m *Memory) Propose(before *lease.Config) {
	if m.replied && m.config == nil {
		m.config = before
	}
}

// inForce is the configuration in force, of a process that proposes so.
func (m *Memory) inForce(proposed *lease.Config) *lease.Config {
	if m.config != nil {
		return m.config
	}
	return proposed
}

package protocol

import (
	"math"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/internal/pool"
	"github.com/yuzhi-go/yuzhi/lease"
)

// lineage has the facts that prove that a bucket has lost its state: docs/protocol.md, section 6.
type lineage struct {
	epoch      int64 // 0 if nothing is known
	counter    int64
	running    int64
	leaseMax   time.Duration // LeaseMax of the last reply, or the rest of the freeze if that is longer
	serverTime int64
	expiry     time.Duration // remaining life of the bucket, counted from serverTime
}

// Memory keeps the state of a Client whose key is at rest: the facts that prove a lost bucket, and estimates
// that are slow to learn again. A Memory is small, since a process may have a million keys at rest. The zero
// Memory means no reply.
type Memory struct {
	lineage
	executed clock.Instant // earliest time at which the bucket can have executed the last call
	ttl      time.Duration // T in force
	config   *lease.Config // at rest: the configuration in force, if it differs from the proposal
	pace     pace          // at rest: the demand of the key's draws
	calls    float32       // mean calls to the bucket per call of this process; negative for a guess, 0 if unknown
	replied  bool          // a reply has arrived at some time
	conflict bool          // see Client.Conflict
	// At rest: the part of each burst that was left (8.14), and a fingerprint of the limits.
	left [lease.LimitsMax]uint8
	of   uint16
}

// age returns an upper bound on the time since the bucket executed the last call. An added fifteenth covers a
// clock that is slow by a sixteenth; see leaseSpan.
func (m *Memory) age(now clock.Instant) time.Duration {
	d := max(0, now.Sub(m.executed))
	return d + d/15
}

func (m *Memory) expired(now clock.Instant) bool { return now >= m.executed.Add(m.expiry) }

// prove writes the known facts about the bucket to r, unless the bucket may have expired by now.
func (m *Memory) prove(now clock.Instant, r *lease.Request) {
	if m.epoch > 0 && !m.expired(now) {
		r.Epoch, r.Counter = m.epoch, m.counter
		r.LeaseMax, r.HeardAt, r.HeardAge = m.leaseMax, m.serverTime, m.age(now)
		r.HeardExpiry = m.expiry
	}
}

// hear records the reply g to a call of a holder of this weight; counted is the result of Heard.counts.
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

// count updates m.calls from the reply g to a holder of this weight (docs/protocol.md section 8.14). The
// first reply of a bucket gives only a guess.
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

// callsMost bounds the calls that one reply adds to the mean.
const callsMost = 1 << 30

// byCalls returns the active weight if all processes have this weight and call alike; 0 if unknown.
func (m *Memory) byCalls(weight int64) int64 {
	return weight * int64(math.Round(math.Abs(float64(m.calls))))
}

// Terms are the settings for draws of a key at rest: those of the process and of the key's node.
type Terms struct {
	ID       string // the instance id
	Policy   *lease.Policy
	Proposed *lease.Config
	RTT      time.Duration // 99th percentile of the node's round trips; 0 if unknown
	// CallTimeout bounds a draw. If the node answers too slowly for draws, a Client decides.
	CallTimeout time.Duration
}

// draws reports whether a draw, not a Client, serves a request for n tokens best (8.17).
func (m *Memory) draws(now clock.Instant, n int64, t *Terms) bool {
	c := m.inForce(t.Proposed)
	if t.Policy.MinBatch > 1 || SwitchOf(c.Limits) != SwitchNone { // a process that sets MinBatch wants leases
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
		single || crampedBy(t.Policy, c, rtt)
}

// draw makes r the draw of n tokens for one request, to be sent once without delay. No other draw may begin
// until drew has processed the reply or a Client has taken over the draw.
func (m *Memory) draw(now clock.Instant, seq, n int64, t *Terms, r *lease.Request) {
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

// drew processes the reply g to the draw r, which was sent at sent to the node of b. drew reports whether g
// admits the request and no Client need process the reply; otherwise m is unchanged.
func (m *Memory) drew(
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

// recent reports whether the last answered call was sent within the last T: the key then counts as in use.
func (m *Memory) recent(now clock.Instant) bool { return m.replied && now < m.executed.Add(m.ttl) }

// propose records that before is no longer proposed; before stays in force until a reply says otherwise.
func (m *Memory) propose(before *lease.Config) {
	if m.replied && m.config == nil {
		m.config = before
	}
}

// inForce returns the configuration in force for a process with this proposal.
func (m *Memory) inForce(proposed *lease.Config) *lease.Config {
	if m.config != nil {
		return m.config
	}
	return proposed
}

// keep records which part of each burst, less the headroom, was left at a reply.
func (m *Memory) keep(limits []lease.Limit, levels *[lease.LimitsMax]int64, headroom float64) {
	m.of = fingerprint(limits)
	for k, l := range limits {
		burst := grantable(l, headroom)
		m.left[k] = uint8(exact.MulDiv(max(0, min(levels[k], burst)), min(burst, 255), max(burst, 1)))
	}
}

// leftOf returns how many tokens of the burst of limit k were left at the last keep.
func (m *Memory) leftOf(k int, burst int64) int64 {
	return exact.MulDiv(int64(m.left[k]), burst, max(1, min(burst, 255)))
}

// fingerprint distinguishes the limits of a key at rest from limits configured later.
func fingerprint(limits []lease.Limit) uint16 {
	h := uint64(0)
	for _, l := range limits {
		for _, x := range [...]int64{l.Tokens, int64(l.Per), l.Capacity(), int64(l.Kind), int64(l.Offset)} {
			h ^= uint64(x)
			h = splitmix(&h)
		}
	}
	return uint16(h)
}

func propose(own, inForce *lease.Config, rtt time.Duration) lease.Config {
	p := *own
	if v := inForce.Version; Wins(v, p.Version) {
		if v.Deploy == p.Version.Deploy && !IsSet(v) {
			p.Version = v // the limits set at run time were cleared, so the program's count again
		} else {
			p = *inForce
		}
	}
	p.TTL = max(p.TTL, 2*inForce.Target)
	for p.TTL < 4*rtt && p.TTL <= exact.MaxTTL/2 {
		p.TTL *= 2
	}
	return p
}

// slowBelow is the fewest expected requests per lease: a key with fewer gets no lease.
const slowBelow = 2

// rttUnknown is the assumed round trip to a node that has not been called yet.
const rttUnknown = time.Millisecond

// leaseSpan returns how long the holder uses a lease that the bucket counts for ttl. The last 1/16 covers the
// drift of the two clocks: 62,500 ppm, hundreds of times the drift of quartz.
func leaseSpan(ttl time.Duration) time.Duration { return ttl / 16 * 15 }

package protocol

import (
	"math"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/pool"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Terms are what a key at rest draws by: those of its process, and of the node that serves it.
type Terms struct {
	ID       string // the instance id
	Policy   *lease.Policy
	Proposed *lease.Config
	RTT      time.Duration // 99th percentile of the node's round trips; 0 for not known
}

// pace is the demand of a key at rest: the two means of demand, but in requests per second, because
// what a lease saves is calls. There may be a million of them, so they are short numbers.
type pace struct{ fast, slow float32 }

// after is p when so many requests, 0 or 1, have come since, the time after the last one. Unlike
// demand it takes in each request by itself: as a rate of one in that time, kept for that time.
func (p pace) after(since time.Duration, requests float64, target time.Duration) pace {
	dt := max(since, 0).Seconds()
	mean := func(old float32, halfLife float64) float32 {
		w := weigh(dt, halfLife)
		return float32(float64((1-w)*float64(old)) + float64((1-w)*requests)/float64(halfLife*math.Log2E))
	}
	return pace{mean(p.fast, target.Seconds()/2), mean(p.slow, target.Seconds()*4)}
}

// Draws reports whether a request for n tokens of a key at rest is best served by a draw
// (docs/protocol.md section 8.17). Otherwise a Client has to decide about it.
func (m *Memory) Draws(now clock.Instant, n int64, t *Terms) bool {
	c := m.inForce(t.Proposed)
	if t.Policy.MinBatch > 1 { // whoever sets it wants leases
		return false
	}
	unlimited, single := true, t.Policy.MaxBatch == 1
	for _, l := range c.Limits {
		if lease.Blocked.Equal(l) || n > grantable(l, t.Policy.Headroom) {
			return false
		}
		part, _ := ceilingOf(t.Policy, c, c.Target, l, m.active <= weightOf(t.Policy))
		unlimited, single = unlimited && lease.Unlimited.Equal(l), single || part < 2
	}
	if unlimited {
		return false
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

// Drew takes in the reply g to the draw r, which was sent at sent. It reports whether that admits
// the request and says nothing else that anybody must hear of, and then how the tokens left the
// bucket. Otherwise m is unchanged, and a Client has to take the draw over.
func (m *Memory) Drew(sent clock.Instant, proposed *lease.Config, r *lease.Request, g *lease.Grant) (pool.Draw, bool) {
	plain := g.Seq == r.Seq && g.Granted == r.Want && g.Waited == r.Waiting && g.Config.TTL > 0 &&
		min(g.Epoch, g.Counter, g.Running) >= 0 && equal(&g.Config, m.inForce(proposed))
	if !plain {
		return pool.Draw{}, false
	}
	if m.config != nil && equal(m.config, proposed) {
		m.config, m.conflict = nil, false
	}
	m.hear(sent, g)
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

// Propose says that another configuration is proposed from now on than before, which stays in force
// until a reply says otherwise.
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

// TakeOver has c, which was just started and has recalled what r was made from, go on with that
// draw, which was sent at sent for the request w, as with a call of its own that is under way, and
// with w in its queue.
func (c *Client) TakeOver(sent clock.Instant, r *lease.Request, w *Waiter) {
	c.Pool.Miss(w.N) // also where c proposes limits by now that are below that
	c.missedAtAsk = c.Pool.Missed()
	c.open, c.isOpen, c.firstSent = *r, true, sent
	c.calling = true
	if !equal(&r.Config, &c.own) { // which was proposed until now
		c.conflictsFrom = sent.Add(3 * c.TTL())
	}
	c.queue.push(w)
	c.queue.join(r.Seq)
}

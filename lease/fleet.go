package lease

import (
	"math"
	"time"
)

// This file is docs/protocol.md section 7.8: how the calls of a large fleet come near their budget,
// Policy.CallsPerSecond. Each of n holders calls once in n/budget seconds then, so leases are to
// last for as long, as far as the burst allows: a token that is leased is not refilled.

// spacing is the microseconds between two calls of a holder of this weight that keep the budget; 0
// where there is none, or nobody is active.
func (b *Bucket) spacing(weight int64) float64 {
	active := b.ring.weightSum()
	if b.config.CallsPerSecond == 0 || active == 0 {
		return 0
	}
	n := float64(max(active, weight)) / float64(weight)
	return float64(n*1e6) / float64(b.config.CallsPerSecond)
}

// fills is the microseconds in which the limit that takes least makes its burst and the overcommit.
func (b *Bucket) fills() float64 {
	least := math.Inf(1)
	for k := range b.config.Limits {
		sc := &b.scales[k]
		least = min(least, float64(sc.Capacity+b.config.Overcommit)/sc.rate())
	}
	return least
}

// target is the Target in force for a holder of this weight, in microseconds: the configured one,
// or where the fleet is too large for that a longer one, of which half of the burst can be leased.
func (b *Bucket) target(weight int64) float64 {
	longer := math.Floor(min(b.spacing(weight), float64(fleetTarget*b.fills()), targetMax))
	return max(float64(micros(b.config.Target)), longer)
}

// pause is how long a holder of a large fleet should wait after a short grant, in microseconds: as
// the budget wants, but not longer than it is remembered, and what all of them are granted within
// that time must fit into the bucket beside what refills.
func (b *Bucket) pause(weight int64) float64 {
	return min(b.spacing(weight), float64(0.75*float64(b.ttl)), float64(0.88*b.fills()))
}

// The parts of B + E: what all holders of a large fleet may hold together, and at most within one
// Target.
const (
	fleetLeased = 0.85
	fleetTarget = 0.5
	// targetMax is that whose T is the longest there may be, in microseconds.
	targetMax = float64(ttlMax / ttlPerTarget / time.Microsecond)
)

// Spacing is the time between two calls of a holder of this weight with which the fleet keeps its
// budget (Policy.CallsPerSecond); 0 for a fleet that does so with the Target that is configured.
func (g *Grant) Spacing(weight int64) time.Duration {
	if g.Config.CallsPerSecond == 0 {
		return 0
	}
	n := float64(g.ActiveWeight) / float64(max(weight, 1))
	d := n / float64(g.Config.CallsPerSecond) * float64(time.Second)
	if d <= float64(g.Config.Target) {
		return 0
	}
	return time.Duration(min(d, float64(ttlMax)))
}

// BurstWanted is the burst of the tightest limit with which leases could be as long as the budget
// of calls wants them (Policy.CallsPerSecond); 0 where they are.
func (g *Grant) BurstWanted(weight int64) int64 {
	spacing, wanted := g.Spacing(weight), 0.0
	for _, l := range g.Config.Limits {
		burst := float64(l.Rate()*spacing.Seconds())/fleetTarget - float64(g.Config.Overcommit)
		if burst > float64(l.Capacity()) {
			wanted = max(wanted, burst)
		}
	}
	return int64(math.Ceil(min(wanted, maxUnits)))
}

// large reports whether the Target in force is longer than the configured one, for the sake of the
// budget of calls.
func (c *Client) large() bool { return c.target > c.config.Target }

// hearTarget takes in the Target in force. Leases of a TTL that was set explicitly are no longer.
// Who uses several shards is one of few (section 3.8), but weighs so little in each that it looks
// like one of many: it goes by the configured Target.
func (c *Client) hearTarget(g *Grant) {
	c.target = max(g.Target, c.config.Target)
	if c.spread > 1 {
		c.target = c.config.Target
	}
	if c.policy.TTL > 0 {
		c.target = max(c.config.Target, min(c.target, c.config.TTL/2))
	}
}

// fleetPart limits the n tokens that a lease should have to this holder's part of what a large
// fleet may hold, but not below mean. n has room for three standard deviations of the demand and
// mean has none: without that room some leases end before their Target.
func (c *Client) fleetPart(n, mean float64) float64 {
	if !c.large() {
		return n
	}
	part := float64(fleetLeased*float64(c.Capacity()+c.config.Overcommit)) * float64(c.weight)
	return min(n, max(mean, part/float64(max(c.heard.active, c.weight))))
}

// reviewIn is how long after a reply to look whether more is held than needed. In a large fleet a
// call costs more than a token that lies about, so it is only just before the bucket forgets it.
func (c *Client) reviewIn() time.Duration {
	if c.large() {
		return c.heard.ttl / 4 * 3
	}
	return c.target
}

// spreadDelay moves a delay by up to half of itself. The members of a large fleet that are short at
// one moment would otherwise come back at one moment, and so find the bucket empty again for ever.
func (c *Client) spreadDelay(delay time.Duration) time.Duration {
	return delay/2 + time.Duration(c.next()%uint64(delay+1))
}

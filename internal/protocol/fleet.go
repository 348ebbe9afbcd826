package protocol

import (
	"math"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

// This file is docs/protocol.md section 7.8: how the calls of a large fleet come near their budget,
// Policy.CallsPerSecond. Each of n holders calls once in n/budget seconds then, so leases are to
// last for as long, as far as the burst allows: a token that is leased is not refilled.

// holders is how many holders of this weight would weigh as much as all that are active; 0 where none is.
func (b *Bucket) holders(weight int64) float64 {
	active := b.ring.weightSum()
	if active == 0 {
		return 0
	}
	return float64(max(active, weight)) / float64(weight)
}

// fills is the microseconds in which the limit that takes least makes its burst and the overcommit.
func (b *Bucket) fills() float64 {
	least := math.Inf(1)
	for k := range b.config.Limits {
		sc := &b.scales[k]
		least = min(least, float64(sc.Capacity+b.config.Overcommit)/rateOf(sc))
	}
	return least
}

// pace returns, for a holder of this weight, the Target in force, in microseconds, how long to wait
// after a short grant, in microseconds, or 0 where that is no longer than the configured Target, and
// whether the budget of calls wants less than one call in the configured Target.
func (b *Bucket) pace(weight int64) (target, pause float64, crowded bool) {
	n, fills, configured := b.holders(weight), b.fills(), float64(exact.Micros(b.config.Target))
	pause = pauseOf(&b.config, n, fills, float64(b.ttl))
	if pause <= configured {
		pause = 0
	}
	return targetOf(&b.config, n, fills), pause, spacing(&b.config, n) > configured
}

// large reports whether the Target in force is longer than the configured one, to save calls.
func (c *Client) large() bool { return c.target > c.config.Target }

// hearTarget takes in the Target in force. Leases of a TTL that was set explicitly are no longer.
func (c *Client) hearTarget(g *lease.Grant) {
	c.target = max(g.Target, c.config.Target)
	if c.policy.TTL > 0 {
		c.target = max(c.config.Target, min(c.target, c.config.TTL/2))
	}
}

// fleetPart limits the n tokens that a lease should have to this holder's part of what a large
// fleet may hold, but not below what the slow mean of its demand says, as the fast one says most of
// a load that has just gone. n has room for three standard deviations and that for half of one:
// without room some leases end before their Target.
func (c *Client) fleetPart(n float64, span time.Duration) float64 {
	if !c.large() {
		return n
	}
	steady := float64(c.demand.slow * span.Seconds())
	least := steady + float64(math.Sqrt(steady)/2) + c.watermark()
	part := float64(fleetLeased*float64(c.Capacity()+c.config.Overcommit)) * float64(c.weight)
	return min(n, max(least, part/float64(max(c.heard.active, c.weight))))
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

package protocol

import (
	"math"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/internal/pool"
	"github.com/yuzhi-go/yuzhi/lease"
)

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

// size is how much to ask for (8.6 to 8.8): what was asked for, or on a key that is not slow what the next
// Target needs if that is more. Fewer than need tokens would serve no waiting request.
func (c *Client) size(held int64, n needs, need int64) (want, least, waiting int64) {
	asked := n.waiting + n.refused
	if n.refused > 0 && c.cramped() {
		// Nothing is leased ahead and no request waits: as many as were refused will ask again.
		asked = max(asked, min(c.lacked()-c.missedAtAsk, c.ceiling()))
	}
	want = asked
	if !c.slow() {
		want = max(want, c.ahead(held, n.waiting))
	}
	want = min(want, pool.Most-held)
	least = min(want, 1)
	if n.waiting > 0 {
		least = min(max(least, need), want)
	}
	return want, least, min(n.waiting, want)
}

// ahead is how much the next Target needs, whether a request waits for it yet or not. Where one waits, demand
// has just begun or has just grown, so the fast estimate is a guess from a few milliseconds, and asking for
// as much would take tokens from processes that ask at the same moment. Then the slow estimate counts, or the
// tokens missed since the last call. Nothing is asked for ahead then where the level will not last: the last
// of a burst that all processes ask for in step would lie in the leases of those that have been served.
func (c *Client) ahead(held, waiting int64) int64 {
	most := c.ceiling()
	n := float64(most)
	whole := c.target + c.rtt
	if c.heard.replied {
		span := min(whole, c.lasts)
		ask := c.demand.expected(span)
		if slides(c.config.Limits) {
			ask = float64(c.demand.rate() * span.Seconds())
		}
		n = c.fleetPart(ask+c.watermark(), span) - float64(held)
	} else {
		n = min(n, c.perTarget())
	}
	switch {
	case waiting == 0:
	case c.lasts < whole:
		n = min(n, float64(waiting))
	default:
		steady := spread(float64(c.demand.slow*whole.Seconds())) + c.watermark() - float64(held)
		n = min(n, max(steady, float64(max(waiting, c.lacked()-c.missedAtAsk))))
	}
	least := max(c.policy.MinBatch, 1)
	return min(max(int64(math.Ceil(min(n, float64(most)))), least), most)
}

// lastsAlways is how long a level lasts that does not fall.
const lastsAlways = time.Duration(math.MaxInt64)

// gauge sets how long the level lasts if all that is in the bucket and leased goes on to fall as it
// has since the reply before, which was of the running time before. After a shortfall the next call
// comes so late that this says nothing of it, a holder that is alone leaves tokens to no other, and in
// a fleet that hardly keeps its budget of calls shorter leases would exceed that.
func (c *Client) gauge(g *lease.Grant, before int64) {
	level := max(0, c.heard.level())
	stock := level + g.Ledger
	fell, took := c.stock-stock, g.Running-before
	c.stock, c.lasts = stock, lastsAlways
	if fell > 0 && took > 0 && !g.Short && !c.alone() && Spacing(g, c.weight) == 0 {
		c.lasts = time.Duration(1e3 * min(float64(level)/float64(fell)*float64(took), 1e12))
	}
}

// ceiling is the most to ask for ahead (8.8): a part of the burst, so that others can be served too. Below
// half a burst, a lease that is longer than needed is taken from another process.
func (c *Client) ceiling() int64 {
	most := int64(pool.Most)
	for k, l := range c.config.Limits {
		burst := c.burst(l)
		part, divisor := ceilingOf(c.policy, &c.config, c.target, l, c.heard.active <= c.weight)
		if c.heard.replied && c.heard.levels[k] < burst/2 {
			perTarget := int64(math.Ceil(l.Rate() * c.target.Seconds()))
			part = min(part, max(c.heard.levels[k]/divisor, perTarget))
		}
		most = min(most, max(part, 1))
	}
	if c.policy.MaxBatch > 0 {
		most = min(most, c.policy.MaxBatch)
	}
	return most
}

// burst is the part of l's burst that this process can be granted; what a reply says of the levels
// is less by the rest, too.
func (c *Client) burst(l lease.Limit) int64 { return grantable(l, c.policy.Headroom) }

// perTarget is R*Target of the tightest limit, at least 1.
func (c *Client) perTarget() float64 {
	n := math.Inf(1)
	for _, l := range c.config.Limits {
		n = min(n, l.Rate()*c.target.Seconds())
	}
	return max(n, 1)
}

// watermark is the spending of one round trip, with three standard deviations of room.
func (c *Client) watermark() float64 { return c.demand.expected(c.rtt) + 1 }

// slow reports whether leasing ahead would only strand tokens (8.6): a lease of a single token
// saves no call, and after it is spent the bucket does not refill until the next call says so.
func (c *Client) slow() bool {
	return c.cramped() || c.ceiling() < 2 ||
		c.heard.replied && c.demand.rate()*(c.target+c.rtt).Seconds() < slowBelow
}

// slowBelow is how many requests must be expected for as long as a lease lasts for one to pay.
const slowBelow = 2

// rttUnknown stands for the round trip to a node that has not been called yet.
const rttUnknown = time.Millisecond

// cramped reports whether most of the burst, below four round trips' refill, would be on its way.
func (c *Client) cramped() bool { return crampedBy(c.policy, &c.config, c.rtt) }

func (c *Client) arm() {
	n := int64(0)
	if !c.slow() {
		n = int64(min(c.watermark(), pool.Most))
	}
	c.Pool.Arm(n)
}

// excess is how much of a holding to give back, a Target after the last reply (8.10). While no other process
// is short it must be more than the need itself, so that ordinary fluctuation makes no calls.
func (c *Client) excess(held int64) int64 {
	if c.demand.seen == c.seenAtReply {
		return held
	}
	if keep := c.keep(); c.heard.contended || held > 2*keep {
		return max(0, held-keep)
	}
	return 0
}

// keep returns the tokens that a process needs until a Target later. The watermark is spent while the next
// call is on its way.
func (c *Client) keep() int64 {
	return int64(math.Ceil(c.demand.expected(c.target+c.rtt) + c.watermark()))
}

// fullAt is when the bucket will be full without further calls, but at least half a Target after the call
// was sent. From then on it cannot refill what was spent since, before a report tells it.
func (c *Client) fullAt(g *lease.Grant) clock.Instant {
	at := Never
	for k, l := range g.Config.Limits {
		full := kindOf(l).reportIn(l, float64(c.burst(l)+g.Config.Overcommit-g.Levels[k]-g.Ledger))
		at = min(at, c.firstSent.Add(max(min(full, c.open.Config.TTL), c.target/2)))
	}
	return at
}

// isLarge reports whether n spent tokens are worth a report, because a full bucket that counts them
// as held may not refill: a good part of the burst, or what the bucket makes in a Target. A window
// counts each one from its report on.
func (c *Client) isLarge(n int64) bool {
	if slides(c.config.Limits) {
		return n > 0
	}
	return float64(n) >= min(float64(c.Capacity()+c.config.Overcommit)/16, c.perTarget())
}

// portion is the fewest tokens to give at once to a request that collects them. A bucket from which no other
// process draws can keep them until all are there. One that others draw from hovers around its set point
// (7.1): half of that will be there at some time, and much more will not.
func (c *Client) portion() int64 {
	if c.alone() {
		return exact.MaxUnits
	}
	n := int64(exact.MaxUnits)
	for _, l := range c.config.Limits {
		point := min(float64(c.burst(l))/2, max(1, l.Rate()*c.target.Seconds()/2))
		n = min(n, int64(point/2))
	}
	return max(1, n)
}

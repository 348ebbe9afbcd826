package lease

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// This file is docs/protocol.md section 7.8: how the calls of a large fleet come near their budget,
// Policy.CallsPerSecond. Each of n holders calls once in n/budget seconds then, so leases are to
// last for as long, as far as the burst allows: a token that is leased is not refilled.

const (
	// defaultCalls is a sixteenth of what one Redis can answer. A burst of a fifth of a second lets a
	// fleet of 200 keep it.
	defaultCalls = 3_125
	// easyCalls is how many calls a second of a whole fleet are not worth longer leases: ten processes
	// make as many with the default Target.
	easyCalls = 90
	// easyTarget and easyPause, in microseconds, are the Target and the pause after a short grant that a
	// large burst gives a fleet by default. T stays at a second, so a loss is waited out in that.
	easyTarget, easyPause = 250_000, 450_000
	// easyTargetPart and easyPausePart are the parts of B + E that a fleet which wants the whole rate
	// leases in one of those. With more, loads that come and go lose accuracy: docs/figures.md.
	easyTargetPart, easyPausePart = 1. / 8, 2. / 9
	// fleetLeased is the part of B + E that all holders of a large fleet may hold together.
	fleetLeased = 0.85
	// targetMax is that whose T is the longest there may be, in microseconds.
	targetMax = float64(ttlMax / ttlPerTarget / time.Microsecond)
)

// CallBudget is how many calls of all holders together a bucket of c should cost a second.
func (c *Config) CallBudget() int64 { return cmp.Or(c.CallsPerSecond, defaultCalls) }

// spacing is the microseconds between two calls of each of n holders that keep the budget.
func (c *Config) spacing(n float64) float64 { return float64(n*1e6) / float64(c.CallBudget()) }

// fleetTarget is the part of B + E that n holders may lease within one Target for the sake of their
// budget: half of it for many, a quarter for twenty. The fewer they are, the more their demand varies,
// for which they need the rest.
func fleetTarget(n float64) float64 { return n / (float64(2*n) + 40) }

// easy is the microseconds between two calls that cost n holders no accuracy where they are within a
// part of the burst, at most longest; 0 where a budget was set, or a window counts what is spent from
// its report on.
func (c *Config) easy(n, longest float64) float64 {
	if c.CallsPerSecond != 0 || slices.ContainsFunc(c.Limits, Limit.Windowed) {
		return 0
	}
	return min(float64(n*1e6)/easyCalls, longest)
}

// targetOf is the Target in force for each of n alike holders, in microseconds: the configured one, or
// where they are too many for that a longer one. fills is the microseconds in which the limit that takes
// least makes its burst and the overcommit.
func (c *Config) targetOf(n, fills float64) float64 {
	longer := min(c.spacing(n), float64(fleetTarget(n)*fills), targetMax)
	longer = max(longer, min(c.easy(n, easyTarget), float64(easyTargetPart*fills)))
	return max(float64(micros(c.Target)), math.Floor(longer))
}

// pauseOf is how long each of n holders should wait after a short grant, in microseconds: as the
// budget wants, but not longer than it is remembered, and what all of them are granted within that
// time must fit into the bucket beside what refills.
func (c *Config) pauseOf(n, fills, ttl float64) float64 {
	pause := min(c.spacing(n), float64(0.88*fills))
	pause = max(pause, min(c.easy(n, easyPause), float64(easyPausePart*fills)))
	return min(pause, float64(0.75*ttl))
}

// TargetInForce is the Target in force for each of n alike holders of a bucket of c.
func (c *Config) TargetInForce(n float64) time.Duration {
	fills := math.Inf(1)
	for _, l := range c.Limits {
		fills = min(fills, float64(l.Capacity()+c.Overcommit)/l.Rate()*1e6)
	}
	return duration(int64(c.targetOf(n, fills)))
}

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
		least = min(least, float64(sc.Capacity+b.config.Overcommit)/sc.rate())
	}
	return least
}

// pace returns, for a holder of this weight, the Target in force, in microseconds, how long to wait
// after a short grant, in microseconds, or 0 where that is no longer than the configured Target, and
// whether the budget of calls wants less than one call in the configured Target.
func (b *Bucket) pace(weight int64) (target, pause float64, crowded bool) {
	n, fills, configured := b.holders(weight), b.fills(), float64(micros(b.config.Target))
	pause = b.config.pauseOf(n, fills, float64(b.ttl))
	if pause <= configured {
		pause = 0
	}
	return b.config.targetOf(n, fills), pause, b.config.spacing(n) > configured
}

// Spacing is the time between two calls of a holder of this weight with which the fleet keeps its
// budget (Policy.CallsPerSecond); 0 for a fleet that does so with the Target that is configured.
func (g *Grant) Spacing(weight int64) time.Duration {
	n := float64(g.ActiveWeight) / float64(max(weight, 1))
	d := g.Config.spacing(n) * float64(time.Microsecond)
	if d <= float64(g.Config.Target) {
		return 0
	}
	return time.Duration(min(d, float64(ttlMax)))
}

// BurstWanted is the burst of the tightest limit with which leases could be as long as the budget
// of calls wants them (Policy.CallsPerSecond); 0 where they are.
func (g *Grant) BurstWanted(weight int64) int64 {
	spacing, wanted := g.Spacing(weight), 0.0
	part := fleetTarget(float64(g.ActiveWeight) / float64(max(weight, 1)))
	for _, l := range g.Config.Limits {
		burst := float64(l.Rate()*spacing.Seconds())/part - float64(g.Config.Overcommit)
		if burst > float64(l.Capacity()) {
			wanted = max(wanted, burst)
		}
	}
	return int64(math.Ceil(min(wanted, maxUnits)))
}

// large reports whether the Target in force is longer than the configured one, to save calls.
func (c *Client) large() bool { return c.target > c.config.Target }

// hearTarget takes in the Target in force. Leases of a TTL that was set explicitly are no longer.
func (c *Client) hearTarget(g *Grant) {
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

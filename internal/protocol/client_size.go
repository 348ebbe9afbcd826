package protocol

import (
	"math"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/internal/pool"
	"github.com/yuzhi-go/yuzhi/lease"
)

// size is how much to ask for (8.6 to 8.8): what was asked for, or on a key that is not slow what
// the next Target needs if that is more. Fewer than need tokens would serve nobody who waits.
func (c *Client) size(held int64, n needs, need int64) (want, least, waiting int64) {
	asked := n.waiting + n.refused
	if n.refused > 0 && c.cramped() {
		// Nothing is leased ahead and nobody waits: as many as were refused will ask again.
		asked = max(asked, min(c.Pool.Missed()-c.missedAtAsk, c.ceiling()))
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

// ahead is how much the next Target needs, whether anybody waits for it yet or not. Where somebody
// waits, demand has just begun or has just grown, so the fast estimate is a guess from a few
// milliseconds, and asking for as much would take tokens from processes that ask at the same
// moment. Then it is what the slow estimate says, or what was missed since the last call. Nothing
// is asked for ahead then where the level will not last: the last of a burst that all processes
// ask for in step would lie in the leases of those that have been served.
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
		n = min(n, max(steady, float64(max(waiting, c.Pool.Missed()-c.missedAtAsk))))
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

// ceiling is the most to ask for ahead (8.8): a part of the burst, so that others can be served
// too. Below half a burst, a lease that is longer than it need be is taken from somebody.
func (c *Client) ceiling() int64 {
	most := int64(pool.Most)
	for _, l := range c.config.Limits {
		burst := c.burst(l)
		part, divisor := ceilingOf(c.policy, &c.config, c.target, l, c.heard.active <= c.weight)
		if c.heard.replied && c.heard.level() < burst/2 {
			perTarget := int64(math.Ceil(l.Rate() * c.target.Seconds()))
			part = min(part, max(c.heard.level()/divisor, perTarget))
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

// watermark is what is spent during one round trip, with three standard deviations of room.
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

// cramped reports whether the burst is smaller than what the limit makes in four round trips: most
// of it would always be on its way.
func (c *Client) cramped() bool { return crampedBy(c.policy, &c.config, c.rtt) }

// arm sets the watermark for the next prefetch.
func (c *Client) arm() {
	n := int64(0)
	if !c.slow() {
		n = int64(min(c.watermark(), pool.Most))
	}
	c.Pool.Arm(n)
}

// excess is how much of a holding to give back, a Target after the last reply (8.10). While nobody
// else is short it must be more than the need itself, so that ordinary fluctuation makes no calls.
func (c *Client) excess(held int64) int64 {
	if c.demand.seen == c.seenAtReply {
		return held
	}
	// The watermark is what is spent while the next call is on its way.
	keep := int64(math.Ceil(c.demand.expected(c.target+c.rtt) + c.watermark()))
	if c.heard.contended || held > 2*keep {
		return max(0, held-keep)
	}
	return 0
}

// fullAt is when the bucket will be full, if nobody calls, but at least half a Target after the
// call was sent. From then on it cannot refill what was spent since, before a report tells it.
func (c *Client) fullAt(g *lease.Grant) clock.Instant {
	at := Never
	for k, l := range g.Config.Limits {
		if l.Kind == lease.KindSliding {
			at = min(at, c.firstSent.Add(max(l.Per/128, c.target/2)))
		}
		if l.Windowed() {
			continue
		}
		room := float64(c.burst(l) + g.Config.Overcommit - g.Levels[k] - g.Ledger)
		full := time.Duration(min(room/l.Rate(), c.open.Config.TTL.Seconds()) * 1e9)
		at = min(at, c.firstSent.Add(max(full, c.target/2)))
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

// portion is the fewest tokens to give at once to a request that collects them. A bucket that
// nobody else draws from can keep them until all are there. One that others draw from hovers around
// its set point (7.1): half of that will be there at some time, and much more will not.
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

// demand estimates attempts per second, denied ones included. It is the larger of two exponentially
// weighted means: the fast one (half-life Target/2) follows a rise at once, and the slow one
// (4*Target) keeps a pause between two bursts from looking like the end.
type demand struct {
	fast, slow float64 // attempts per second
	seen       int64   // attempts counted so far
	at         clock.Instant
}

// observe takes in the total number of attempts up to now. A sample with no time since the last one
// is merged with the next, because a rate over zero seconds is not a number.
func (d *demand) observe(now clock.Instant, attempts int64, target time.Duration) {
	dt := now.Sub(d.at).Seconds()
	if dt <= 0 {
		return
	}
	rate := float64(max(0, attempts-d.seen)) / dt
	d.fast += float64(weigh(dt, target.Seconds()/2) * (rate - d.fast))
	d.slow += float64(weigh(dt, target.Seconds()*4) * (rate - d.slow))
	d.seen = attempts
	d.at = now
}

// weigh is the weight of a sample over dt seconds: about 1 - 2^(-dt/halfLife) for short ones, but
// the same on every machine to the last bit, which the simulator needs. For the same reason
// products are rounded by float64(x*y): some processors would fuse them with the sum that follows.
func weigh(dt, halfLife float64) float64 {
	return dt / (dt + float64(halfLife*math.Log2E))
}

// rate is d of docs/protocol.md section 8.
func (d *demand) rate() float64 { return max(d.fast, d.slow) }

// expected is a number of attempts within span that a Poisson process of the present rate exceeds
// about once in a thousand times: its mean and three standard deviations.
func (d *demand) expected(span time.Duration) float64 {
	return spread(float64(d.rate() * span.Seconds()))
}

func spread(mean float64) float64 { return mean + float64(3*math.Sqrt(mean)) }

const (
	// latencySamples are how many are kept: of so many, the 99th percentile is the second largest.
	// From latencyFew on, one that is larger than all others counts as a stall.
	latencySamples, latencyFew = 128, 16
	// latencySpan is how long a sample counts: the network as it was before says nothing about now.
	latencySpan = 3 * time.Second
)

// Latency estimates the 99th percentile of the round trips of the last seconds to one node of a
// store, which Client.Tick and Build want. Where there were few, the latest few count, however old.
// The zero value knows none. Goroutines that share one need a lock.
type Latency struct {
	samples [latencySamples]struct {
		took time.Duration
		at   clock.Instant
	}
	n      int
	p99    time.Duration
	sorted clock.Instant // when p99 was last taken from the samples
}

// Add takes in that a round trip ended now and took so long. One that failed says nothing.
func (l *Latency) Add(now clock.Instant, d time.Duration) {
	s := &l.samples[l.n%latencySamples]
	s.took, s.at = d, now
	l.n++
	// A rise is taken over at once. Otherwise sorting every eighth time, or after a while, is
	// enough.
	if l.n%8 != 1 && d <= l.p99 && now.Sub(l.sorted) < latencySpan/8 {
		return
	}
	l.sorted = now
	var sorted [latencySamples]time.Duration
	have := sorted[:0]
	for back := 1; back <= min(l.n, latencySamples); back++ {
		s := &l.samples[(l.n-back)%latencySamples]
		if len(have) >= latencyFew && now.Sub(s.at) > latencySpan {
			break
		}
		have = append(have, s.took)
	}
	slices.Sort(have)
	// The second largest, so that one stall changes nothing. Of a few it is the largest.
	last := len(have) - 1
	if len(have) >= latencyFew {
		last--
	}
	l.p99 = have[last]
}

// Quantile is the 99th percentile; 0 before the first sample.
func (l *Latency) Quantile() time.Duration { return l.p99 }

package protocol

import (
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Degraded reports whether no request waits for the store: the key's node is away, or takes no call
// of this process yet, or the key's own last call failed. A failure after which nothing has asked
// for the next call in time does not count any more.
func (c *Client) Degraded() bool {
	b := c.host.Breaker()
	if c.failures == 0 && b.well() {
		return false
	}
	now := c.host.Now()
	return c.failing(now) || b.Away(now) || !c.calling && b.Holds(now)
}

// Suspect reports whether the last call failed, of the key or of its node, however long ago, or
// requests do not wait for the store for another reason.
func (c *Client) Suspect() bool {
	return c.failures > 0 || c.host.Breaker().Suspect() || c.Degraded()
}

// failing reports whether the key's own calls fail.
func (c *Client) failing(now clock.Instant) bool {
	return c.failures > 0 && (c.calling || now < c.probeAt.Add(silence(c.config.Target, c.TTL())))
}

// failed puts off the next call of a key whose call failed though its node is well, with full
// jitter. Where the node is away its Breaker says who calls next.
func (c *Client) failed(now clock.Instant) {
	if c.host.Breaker().Away(now) {
		c.failures = 0
		return
	}
	c.failures++
	c.probeAt = now.Add(time.Duration(c.next() % uint64(backoff(c.failures, c.config.Target, c.heard.ttl))))
}

// takeFallback decides on a request for n tokens, or for fewer but at least so many, without the
// store: by Policy.Fallback while degraded, by Policy.ColdStart before the first reply, and always
// where the limits in force are enough to say. The next call that succeeds reports what it
// admitted as debt, but for what is unlimited. It returns how many tokens were admitted.
func (c *Client) takeFallback(now clock.Instant, least, n int64) (took int64) {
	switch {
	case c.stage == closed || c.admitsNone():
	case c.admitsAll():
		c.servedLater += n
		return n
	case c.coldDecides():
		if c.policy.ColdStart == lease.ColdStartAllow {
			took = n
		}
	case !c.Degraded():
	case c.policy.Fallback == lease.FallbackAllowAll:
		took = n
	case c.policy.Fallback == lease.FallbackLocalShare:
		took = c.takeShare(now, least, n)
	}
	c.debt += took
	c.servedLater += took
	return took
}

// coldDecides reports whether Policy.ColdStart decides without the store. It is for who knows
// nothing. A key that is new in an outage of a node that this process has heard of is like the
// others there: Policy.Fallback is for it.
func (c *Client) coldDecides() bool {
	return !c.heard.replied && !(c.Degraded() && c.host.Breaker().Active() > 0)
}

// fallbackAt is when the local share can serve n tokens, for a request that takeFallback refused at
// now. It is false where waiting does not help: with another fallback, before the first reply, or
// for more than the share ever holds.
func (c *Client) fallbackAt(now clock.Instant, n int64) (clock.Instant, bool) {
	if c.fallback == nil || !c.Degraded() || n > c.shareMost() || c.admitsNone() {
		return Never, false
	}
	return now.Add(c.shareIn(now, n)), true
}

// admitsNone reports whether Blocked is in force, among whatever other limits.
func (c *Client) admitsNone() bool { return slices.ContainsFunc(c.limitsNow(), lease.Blocked.Equal) }

// admitsAll reports whether nothing but Unlimited is in force.
func (c *Client) admitsAll() bool {
	return !slices.ContainsFunc(c.limitsNow(), func(l lease.Limit) bool { return !lease.Unlimited.Equal(l) })
}

// activeFor is for how many TTLs the largest active weight counts. A process that calls about once in
// a TTL is not counted now and then, and the parts would add up to more than 1.
const activeFor = 10

// active returns the sum of the weights of all processes that share the key, as far as was heard: of
// the key itself, or else of any on its node.
func (c *Client) active() int64 {
	active := max(c.heard.active, c.mostActive, c.weight)
	if c.heard.at == 0 { // the reply to a draw of a bucket at rest names only the caller's own
		active = max(active, c.host.Breaker().Active())
	}
	return active
}

package lease

import (
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
)

// Degraded reports whether the last call failed. Nobody waits for the store then.
func (c *Client) Degraded() bool { return c.failures > 0 }

// failed puts off the next call (8.12), with full jitter, so that a fleet that lost its store at
// one moment does not come back at one moment.
func (c *Client) failed(now clock.Instant) {
	c.failures++
	span := c.heard.ttl
	if c.failures < 30 {
		span = min(c.config.Target<<c.failures, span)
	}
	c.probeAt = now.Add(time.Duration(c.next() % uint64(max(span, 1))))
}

// takeFallback decides on a request for n tokens, or for fewer but at least so many, without the
// store: by Policy.ColdStart while no reply has ever come, by Policy.Fallback while degraded, and
// always where the limits in force are enough to say. The next call that succeeds reports what it
// admitted as debt, but for what is unlimited. It returns how many tokens were admitted.
func (c *Client) takeFallback(now clock.Instant, least, n int64) (took int64) {
	switch {
	case c.stage == closed || c.admitsNone():
	case c.admitsAll():
		c.servedLater += n
		return n
	case !c.heard.replied:
		if c.policy.ColdStart == ColdStartAllow {
			took = n
		}
	case !c.Degraded():
	case c.policy.Fallback == FallbackAllowAll:
		took = n
	case c.policy.Fallback == FallbackLocalShare:
		took = c.takeShare(now, least, n)
	}
	c.debt += took
	c.servedLater += took
	return took
}

// fallbackAt is when the local share can serve n tokens, for a request that takeFallback refused at
// now. It is false where waiting does not help: with another fallback, before the first reply, or
// for more than the share ever holds.
func (c *Client) fallbackAt(now clock.Instant, n int64) (clock.Instant, bool) {
	if c.fallback == nil || !c.Degraded() || n > c.fallback.config.Capacity() || c.admitsNone() {
		return Never, false
	}
	return now.Add(duration(c.fallback.wait(n, 0))), true
}

// admitsNone reports whether Blocked is in force, among whatever other limits.
func (c *Client) admitsNone() bool { return slices.ContainsFunc(c.limitsNow(), Blocked.same) }

// admitsAll reports whether nothing but Unlimited is in force.
func (c *Client) admitsAll() bool {
	return !slices.ContainsFunc(c.limitsNow(), func(l Limit) bool { return !Unlimited.same(l) })
}

// takeShare draws from a bucket of this process's own, which has its share of every limit (8.14):
// a Bucket with one holder, so that there is no second kind of token bucket to get wrong.
func (c *Client) takeShare(now clock.Instant, least, n int64) (took int64) {
	if c.fallback == nil {
		c.fallback = new(Bucket)
	}
	weight, active := c.policy.weight(), max(c.heard.active, c.policy.weight())
	share := c.config
	share.Overcommit, share.StartEmpty = 0, false
	limits := c.limitsNow()
	share.Limits = make([]Limit, len(limits))
	for k, l := range limits {
		share.Limits[k] = scaled(l, weight, active)
	}
	// The bucket stays after the outage: a store that fails now and then must not give a full local
	// burst each time. Where the share has changed, what was used stays used.
	share.Version = c.fallback.config.Version
	if !slices.Equal(share.Limits, c.fallback.config.Limits) {
		share.Version.Revision++
	}
	// Under a name of its own: as another holder, after a rename, it would share with its former self.
	r := Request{
		Holder: "local", Seq: c.fallback.counter + 1, Config: share,
		Want: n, Need: least, Waiting: n, Weight: 1,
	}
	var g Grant
	if c.fallback.Call(int64(now)/1000, &r, &g) != nil {
		return 0
	}
	return g.Waited
}

// scaled is l times weight/active, with a burst of at least 1: exact where a bucket can count that
// exactly, otherwise rounded down to whole tokens.
func scaled(l Limit, weight, active int64) Limit {
	g := int64(gcd(uint64(weight), uint64(active)))
	weight, active = weight/g, active/g
	burst := l.Capacity()
	if weight < active {
		burst = max(1, mulDiv(weight, burst, active))
	}
	if l.Tokens <= maxUnits/weight && int64(l.Per) <= (1<<62)/active {
		exact := Limit{Tokens: l.Tokens * weight, Per: l.Per * time.Duration(active), Burst: burst}
		if exact.Validate() == nil {
			return exact
		}
	}
	return Limit{Tokens: max(1, l.Tokens/active*weight), Per: l.Per, Burst: burst}
}

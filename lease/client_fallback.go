package lease

import (
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
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
	if c.fallback == nil || !c.Degraded() || n > c.fallback.config.Capacity() || c.admitsNone() || c.sharesNone() {
		return Never, false
	}
	return now.Add(duration(c.fallback.wait(n, 0))), true
}

// admitsNone reports whether Blocked is in force, among whatever other limits.
func (c *Client) admitsNone() bool { return slices.ContainsFunc(c.limitsNow(), Blocked.Equal) }

// admitsAll reports whether nothing but Unlimited is in force.
func (c *Client) admitsAll() bool {
	return !slices.ContainsFunc(c.limitsNow(), func(l Limit) bool { return !Unlimited.Equal(l) })
}

// sharesNone reports whether a window has fewer tokens than processes, so that the share of this
// one is none.
func (c *Client) sharesNone() bool {
	weight, active := c.weight, c.active()
	return slices.ContainsFunc(c.limitsNow(), func(l Limit) bool {
		return l.Windowed() && scaled(l, weight, active).Tokens == 0
	})
}

// active is the sum of the weights of all processes that share the key, as far as was heard: of the
// key itself, or else of any on its node.
func (c *Client) active() int64 {
	active := c.heard.active
	if !c.heard.replied {
		active = c.host.Breaker().Active()
	}
	return max(active, c.weight)
}

// takeShare draws from a bucket of this process's own, which has its share of every limit (8.14):
// a Bucket with one holder, so that there is no second kind of token bucket to get wrong.
func (c *Client) takeShare(now clock.Instant, least, n int64) (took int64) {
	if c.sharesNone() {
		return 0
	}
	if c.fallback == nil {
		c.fallback = new(Bucket)
	}
	weight, active := c.weight, c.active()
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
// exactly, otherwise rounded down to whole tokens. Of a window it is a sliding window, as no
// process knows the server's clock by itself, and always rounded down: all shares together are at
// most l.
func scaled(l Limit, weight, active int64) Limit {
	g := int64(gcd(uint64(weight), uint64(active)))
	weight, active = weight/g, active/g
	if l.Windowed() {
		return Sliding(mulDiv(min(weight, active), l.Tokens, active), l.Per)
	}
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

package lease

import (
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
)

// breaker spaces the calls of one holder after failures. It backs off exponentially with full
// jitter, so that a fleet that lost its store at one moment does not come back at one moment.
// Between two probes there is at most longest, which is T, so a fleet is back at its rate two T
// after the store is.
type breaker struct {
	failures int
	at       clock.Instant
	longest  time.Duration
}

func (b *breaker) fail(now clock.Instant, base time.Duration, random uint64) {
	b.failures++
	span := b.longest
	if b.failures < 30 {
		span = min(base<<b.failures, span)
	}
	b.at = now.Add(time.Duration(random % uint64(max(span, 1))))
}

func (b *breaker) succeed() { b.failures = 0 }

// until is when the next probe may go out. open is false while calls succeed.
func (b *breaker) until() (at clock.Instant, open bool) { return b.at, b.failures > 0 }

// Degraded reports whether the last call failed. Nobody waits for the store then.
func (h *Holder) Degraded() bool {
	_, open := h.breaker.until()
	return open
}

// takeFallback decides on a request for n tokens without the store: by Policy.ColdStart while no
// reply has ever come, by Policy.Fallback while degraded. The next call that succeeds reports what
// it admitted as debt.
func (h *Holder) takeFallback(now clock.Instant, n int64) bool {
	if h.stage == closed {
		return false
	}
	ok := false
	switch {
	case !h.heard.replied:
		ok = h.policy.ColdStart == ColdStartAllow
	case !h.Degraded():
	case h.policy.Fallback == FallbackAllowAll:
		ok = true
	case h.policy.Fallback == FallbackLocalShare:
		ok = h.takeShare(now, n)
	}
	if ok {
		h.owe(n)
		h.servedLater += n
	}
	return ok
}

// fallbackAt is when the local share can serve n tokens, for a request that takeFallback refused at
// now. It is false where waiting does not help: with another fallback, before the first reply, or
// for more than the share ever holds.
func (h *Holder) fallbackAt(now clock.Instant, n int64) (clock.Instant, bool) {
	if h.fallback == nil || !h.heard.replied || !h.Degraded() || h.policy.Fallback != FallbackLocalShare {
		return Never, false
	}
	for _, l := range h.fallback.config.Limits {
		if n > l.Capacity() {
			return Never, false
		}
	}
	return now.Add(duration(h.fallback.wait(n))), true
}

// takeShare draws from a bucket of this process's own, which has its share of every limit. That is
// a Bucket with one holder, so there is no second kind of token bucket to get wrong.
func (h *Holder) takeShare(now clock.Instant, n int64) bool {
	if h.fallback == nil {
		h.fallback = new(Bucket)
	}
	// It stays after the outage: a store that fails now and then must not give a full local burst
	// each time. Where the share has changed, what was used stays used.
	c := h.share()
	c.Version = h.fallback.config.Version
	if !slices.Equal(c.Limits, h.fallback.config.Limits) {
		c.Version.Revision++
	}
	// Under a name of its own: as another holder, after a Rename, it would share with its former
	// self.
	r := Request{
		Holder: "local", Seq: h.fallback.state.counter + 1, Config: c, Want: n, Need: n, Waiting: n, Weight: 1,
	}
	var g Grant
	if err := h.fallback.Call(int64(now)/1000, &r, &g); err != nil {
		return false
	}
	return g.Waited == n
}

// share is the configuration in force, with each limit scaled by weight/active weight as last
// heard.
func (h *Holder) share() Config {
	c := h.config
	c.Overcommit = 0
	c.StartEmpty = false
	weight, active := h.policy.weight(), max(h.heard.active, h.policy.weight())
	c.Limits = make([]Limit, len(h.config.Limits))
	for k, l := range h.config.Limits {
		c.Limits[k] = scaled(l, weight, active)
	}
	return c
}

// scaled is l times weight/active, with a burst of at least 1: exact where a bucket can count that
// exactly, otherwise rounded down to whole tokens.
func scaled(l Limit, weight, active int64) Limit {
	g := int64(gcd(uint64(weight), uint64(active)))
	weight, active = weight/g, active/g
	burst := max(1, mulDiv(min(weight, active-1), l.Capacity(), active))
	if weight == active {
		burst = l.Capacity()
	}
	if l.Tokens <= maxUnits/weight && int64(l.Per) <= (1<<62)/active {
		exact := Limit{Tokens: l.Tokens * weight, Per: l.Per * time.Duration(active), Burst: burst}
		if exact.Validate() == nil {
			return exact
		}
	}
	return Limit{Tokens: max(1, l.Tokens/active*weight), Per: l.Per, Burst: burst}
}

package protocol

import (
	"cmp"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/internal/pool"
	"github.com/yuzhi-go/yuzhi/lease"
)

// forfeit burns what w has collected, because nothing was heard of the bucket for too long.
func (c *Client) forfeit(w *Waiter) {
	if w.got == 0 {
		return
	}
	c.burnTaken(w.got)
	c.queue.count(w, w.got, 0)
	w.got, w.pooled = 0, 0
	c.host.Forfeited(w)
}

// settle takes w off the queue and tells it d. Tokens that it does not need go back.
func (c *Client) settle(w *Waiter, d Decision) {
	if !d.OK() || d.Source == lease.SourceFallback {
		now := c.host.Now()
		if now >= w.until {
			c.forfeit(w)
		}
		c.sendBack(w.got-w.pooled, w.draw)
		c.putBack(now, w.pooled, w.draw)
		c.queue.count(w, w.got, 0)
		w.got, w.pooled = 0, 0
	} else {
		d.Draw, d.Pooled, d.Took = w.draw, w.pooled, w.got
	}
	c.queue.remove(w)
	c.host.Settled(w, d)
}

func (c *Client) settleAll(d Decision) {
	for c.queue.head != nil {
		c.settle(c.queue.head, d)
	}
}

// TimeOut ends the wait of a request that waits for one call, after CallTimeout, unless it has
// ended. Whether it is admitted is up to Policy.Fallback.
func (c *Client) TimeOut(now clock.Instant, w *Waiter) {
	if !w.waiting {
		return
	}
	if !c.serveUpTo(w, lease.SourceLocal) && !c.settleFallback(now, w) {
		c.settle(w, Decision{Verdict: VerdictDeny, Source: lease.SourceFallback})
	}
	c.host.Wake(false) // there may be something to give back now
}

// settleFallback admits w, if it may be admitted without the store.
func (c *Client) settleFallback(now clock.Instant, w *Waiter) bool {
	least := w.N
	if w.Patience == UpTo {
		least = 1
	}
	took := c.takeFallback(now, least, w.N)
	if took > 0 {
		c.settle(w, Decision{Verdict: VerdictAdmit, Source: lease.SourceFallback, Took: took})
	}
	return took > 0
}

// Cancel ends the wait of a request whose user does not wait any more, unless it has ended.
func (c *Client) Cancel(now clock.Instant, w *Waiter) {
	if !w.waiting {
		return
	}
	c.settle(w, Decision{Verdict: VerdictCancelled})
	c.serveFromPool()
	c.askAgain(now)
	c.host.Wake(false) // there may be something to give back now
}

// GiveBack gives back n tokens of draw d with which a request was admitted, as if it had never been
// asked: by now they are worth what was not refilled since, or nothing where the bucket is another
// one. Decision says d and pooled, the part that may go back to the pool; of tokens that the user
// took from Pool itself that is all of them, with the Draw that Pool.Drawn gave before. After Rest
// the next Client of the key takes them, with a pooled of 0.
//
// It is false for a Client that is closed, which counts them as admitted: they are burnt.
func (c *Client) GiveBack(now clock.Instant, n, pooled int64, d pool.Draw) bool {
	if c.stage == closed {
		return false
	}
	c.servedLater += n // nobody was denied
	c.sendBack(n-pooled, d)
	c.putBack(now, pooled, d)
	c.serveFromPool()
	c.askAgain(now)
	c.wake(false)
	return true
}

// attribute counts what was denied since it was last called to the limit that binds, by what is
// known now. Who waits has been counted as missed, and is not denied yet.
func (c *Client) attribute() {
	n := c.DeniedOf(c.Pool.Missed()) - c.queue.lacking - c.attributed
	if n <= 0 {
		return
	}
	c.attributed += n
	l := c.heard.limits[c.heard.binding()]
	for i := range c.denials {
		if c.denials[i].limit == l {
			c.denials[i].tokens += n
			return
		}
	}
	c.denials = append(c.denials, denials{l, n})
}

// tellDenied is how many tokens were denied since it was last called, for one call to report. Where
// that call is given up, or the key rests before the next one, they are not counted: no call is
// made for them, as they decide nothing.
func (c *Client) tellDenied() int64 {
	c.attribute()
	n := min(c.attributed-c.deniedTold, lease.WaitingMax)
	c.deniedTold += n
	return n
}

// denials are tokens that were denied because of one limit.
type denials struct {
	limit  lease.Limit
	tokens int64
}

// CollectDenials calls f with the tokens that were denied since it was last called, and the limit
// that was the reason, as far as was known when they were: that with the longest wait.
func (c *Client) CollectDenials(f func(l lease.Limit, tokens int64)) {
	c.attribute()
	for _, d := range c.denials {
		f(d.limit, d.tokens)
	}
	c.denials = c.denials[:0]
}

// Charge has the bucket take n tokens more than this process was granted, or as many as
// Policy.MaxOvershoot allows one request, now or when it has them: a request was admitted for fewer
// than it has then used. It returns how many that are. A Client that is closed before the next call
// has been answered forgets them.
func (c *Client) Charge(n int64) (charged int64) {
	burst := int64(exact.MaxUnits)
	for _, l := range c.limitsNow() {
		burst = min(burst, l.Capacity())
	}
	bursts := cmp.Or(c.policy.MaxOvershoot, defaultOvershoot)
	if burst <= lease.WaitingMax/bursts {
		n = min(n, burst*bursts)
	}
	c.holding.Charge(n)
	return n
}

// defaultOvershoot is the default of Policy.MaxOvershoot: far beyond an estimate that was meant, and paid
// for after ten times the burst's time.
const defaultOvershoot = 10

package hybrid

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Stats is what a Limiter did so far, in tokens unless a field says otherwise. Leased = Admitted -
// Fallback + Returned + Burnt + Held.
type Stats struct {
	Keys       int   // in the table now, in use or at rest
	InUse      int   // of Keys: asked for within a TTL or so, or holding tokens
	Leased     int64 // granted by the store
	Admitted   int64 // by tokens and by fallback; refunded ones included
	Denied     int64
	Crowded    int64 // of Denied: all of Config.KeysMax keys were in use
	Returned   int64 // given back unused
	Burnt      int64 // lost to expiry, a bucket that did not know the lease, or a call given up
	Held       int64 // in this process now
	Refunded   int64
	Fallback   int64 // of Admitted: without the store's tokens
	Calls      int64 // lease calls, each for one key
	RoundTrips int64 // exchanges with the store, whatever number of calls they carried
	Errors     int64 // calls that brought no grant
	Conflicts  int64 // keys whose bucket has other limits under the version that this process has
	Invalid    int64 // requests refused for their arguments, for what LimitsFor returned, or after Close
}

type counters struct {
	calls, roundTrips, errors, invalid, crowded, fallback, conflicts atomic.Int64

	one     sync.Mutex // Stats at a time
	mu      sync.Mutex
	retired tally  // of entries that have ended
	number  uint64 // of the latest Stats
	sum     tally  // of retired, and of the entries that the latest Stats has seen
}

// tally is a sum over entries.
type tally struct {
	lease.Account
	denied int64
}

func (t *tally) add(o tally) {
	t.Account = t.Account.Plus(o.Account)
	t.denied += o.denied
}

func (e *entry) tally() tally {
	return tally{e.client.Account(), e.client.DeniedOf(e.client.Pool.Missed())}
}

// retire keeps the account of an entry that ends, whose lock the caller holds.
func (c *counters) retire(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := e.tally() // once, because what is refused meanwhile is counted without the lock
	c.retired.add(t)
	if e.counted != c.number {
		c.sum.add(t)
	}
}

// Stats sums up all keys, also those that have left, each once: no count is ever lower than it was
// before. It looks at every key in use, so call it once a second and not once a request.
func (l *Limiter) Stats() Stats {
	c := &l.counters
	c.one.Lock()
	defer c.one.Unlock()
	c.mu.Lock()
	c.sum = c.retired
	c.number++
	c.mu.Unlock()
	inUse := 0
	l.keys.each(func(e *entry) {
		e.mu.Lock()
		defer e.mu.Unlock()
		c.mu.Lock()
		defer c.mu.Unlock()
		if !e.client.Closed() && e.counted != c.number {
			e.counted = c.number
			c.sum.add(e.tally())
			inUse++
		}
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	fallback, crowded := c.fallback.Load(), c.crowded.Load()
	return Stats{
		Keys:       int(l.keys.size.Load()),
		InUse:      inUse,
		Leased:     c.sum.Granted,
		Admitted:   c.sum.Admitted + fallback,
		Denied:     c.sum.denied + crowded,
		Crowded:    crowded,
		Returned:   c.sum.Returned,
		Burnt:      c.sum.Burnt,
		Held:       c.sum.Held,
		Refunded:   c.sum.Refunded,
		Fallback:   fallback,
		Calls:      c.calls.Load(),
		RoundTrips: c.roundTrips.Load(),
		Errors:     c.errors.Load(),
		Conflicts:  c.conflicts.Load(),
		Invalid:    c.invalid.Load(),
	}
}

// quietFor is how long the log does not repeat itself.
const quietFor = 10 * time.Second

// outage counts the keys of one node whose calls fail. The log has one line when that begins, and
// one when it ends.
type outage struct {
	mu     sync.Mutex
	keys   int64 // that fail now
	most   int64 // that failed at one time
	since  clock.Instant
	told   bool // the log has said so
	toldAt clock.Instant
	key    string // the last one that began to fail, and why
	err    error
}

// begin counts a key whose calls fail from now on. The line comes a CallTimeout after the first
// key, when it is known how many there are.
func (o *outage) begin(l *Limiter, now clock.Instant, key string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.keys == 0 {
		o.since, o.most, o.told = now, 0, false
		l.cfg.Clock.AfterFunc(l.cfg.CallTimeout, func() { o.tell(l) })
	}
	o.keys++
	o.most = max(o.most, o.keys)
	o.key, o.err = key, err
}

// tell logs an outage that is not over yet, later if another one was logged not long ago.
func (o *outage) tell(l *Limiter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := l.cfg.Clock.Now()
	switch quiet := o.toldAt.Add(quietFor).Sub(now); {
	case o.keys == 0 || o.told || l.ctx.Err() != nil:
	case o.toldAt > 0 && quiet > 0:
		l.cfg.Clock.AfterFunc(quiet, func() { o.tell(l) })
	default:
		o.told, o.toldAt = true, now
		l.cfg.Logger.Warn("hybrid: lease calls fail", "keys", o.keys, "key", brief(o.key), "error", o.err)
	}
}

// end no longer counts a key: its calls succeed again, or it has gone.
func (o *outage) end(l *Limiter, now clock.Instant, succeeded bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.keys--; o.keys == 0 && o.told && succeeded {
		l.cfg.Logger.Info("hybrid: lease calls succeed again", "keys", o.most, "after", now.Sub(o.since))
	}
}

// failingLocked counts e among the keys that fail, if its call has failed. What somebody must mend
// is kept apart from what is just away, so that neither hides the other.
func (e *entry) failingLocked(now clock.Instant, err error) {
	if e.outage != nil || !e.client.Degraded() {
		return
	}
	n := e.node.Load()
	e.outage = &n.away
	if errors.Is(err, lease.ErrPermanent) {
		e.outage = &n.permanent
	}
	e.outage.begin(e.l, now, e.slot.name, err)
}

// failsNoMoreLocked no longer counts e: its call has succeeded, or it ends.
func (e *entry) failsNoMoreLocked(now clock.Instant, succeeded bool) {
	if e.outage != nil {
		e.outage.end(e.l, now, succeeded)
		e.outage = nil
	}
}

// notice is a line of the log about one key that thousands may have at once: it comes once in a
// while, with how many there were.
type notice struct {
	mu   sync.Mutex
	at   clock.Instant // of the last line
	keys int64         // that had it since then
}

// warn counts e, and logs text if the last line is not too recent.
func (n *notice) warn(e *entry, now clock.Instant, text string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.keys++
	if n.at == 0 || now >= n.at.Add(quietFor) {
		e.l.cfg.Logger.Warn(text, append([]any{"keys", n.keys, "key", brief(e.slot.name)}, args...)...)
		n.keys, n.at = 0, now
	}
}

// brief is key as the log shows it: short, and without control characters.
func brief(key string) string {
	const most = 64
	quoted := strconv.Quote(key[:min(len(key), most)])
	quoted = quoted[1 : len(quoted)-1]
	if len(key) > most {
		quoted = fmt.Sprintf("%s... (%d bytes)", quoted, len(key))
	}
	return quoted
}

// warn logs, once, that limits make the Target shorter.
func (l *Limiter) warn(limits []Limit) {
	asked, target := l.cfg.Policy.TargetFor(nil), l.cfg.Policy.TargetFor(limits)
	if target < asked {
		l.warned.Do(func() {
			l.cfg.Logger.Info("hybrid: Target reduced to what uses a quarter of the burst at the full rate, "+
				"as a longer lease would lock the burst away", "target", target, "asked", asked, "limits", limits)
		})
	}
}

// warnSlow logs, once, that a burst is too small to lease ahead on a network of this delay.
func (l *Limiter) warnSlow(limits []Limit, rtt time.Duration) {
	for _, limit := range limits {
		need := int64(math.Ceil(4 * limit.Rate() * rtt.Seconds()))
		if limit.Capacity()+l.cfg.Policy.Overcommit < need {
			l.warnedSlow.Do(func() {
				l.cfg.Logger.Warn("hybrid: Burst+Overcommit is below 4*Rate*round trip, "+
					"so every request waits for a call; a larger Overcommit cures it",
					"limit", limit, "rtt_p99", rtt, "overcommit", need-limit.Capacity())
			})
		}
	}
}

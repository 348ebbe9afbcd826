package hybrid

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
)

// quietFor is how long the log says nothing new about what it has said: a network that loses a call
// now and then is not worth two lines for each.
const quietFor = 10 * time.Second

// outage counts the keys of one node whose calls fail for one kind of reason, so that the log says
// once when that begins and once when it ends, with how many keys, however many there are. It says
// so again where ten times as many fail.
type outage struct {
	mu     sync.Mutex
	keys   int64 // that fail now
	most   int64 // at one time
	since  clock.Instant
	told   int64 // keys, in the last line about this outage; 0 before the first
	toldAt clock.Instant
	key    string // the last that began to fail, and why
	err    error
}

// begin counts a key whose calls fail from now on. The line about an outage comes a CallTimeout
// after its begin, when it is known how many keys it concerns.
func (o *outage) begin(l *Limiter, now clock.Instant, key string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.keys == 0 {
		o.since, o.most, o.told = now, 0, 0
		l.cfg.Clock.AfterFunc(l.cfg.CallTimeout, func() { o.tell(l) })
	}
	o.keys++
	o.most = max(o.most, o.keys)
	o.key, o.err = key, err
	if o.told > 0 && o.keys >= 10*o.told {
		o.log(l, now)
	}
}

// tell logs an outage that is not over yet; later where one was logged not long ago.
func (o *outage) tell(l *Limiter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := l.cfg.Clock.Now()
	switch quiet := o.toldAt.Add(quietFor).Sub(now); {
	case o.keys == 0 || o.told > 0 || l.ctx.Err() != nil:
	case o.toldAt > 0 && quiet > 0:
		l.cfg.Clock.AfterFunc(quiet, func() { o.tell(l) })
	default:
		o.log(l, now)
	}
}

func (o *outage) log(l *Limiter, now clock.Instant) {
	o.told, o.toldAt = o.keys, now
	l.cfg.Logger.Warn("hybrid: lease calls fail", "keys", o.keys, "key", brief(o.key), "error", o.err)
}

// end is for a key whose calls succeed again, or that has gone.
func (o *outage) end(l *Limiter, now clock.Instant, succeeded bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.keys--; o.keys == 0 && o.told > 0 && succeeded {
		l.cfg.Logger.Info("hybrid: lease calls succeed again", "keys", o.most, "after", now.Sub(o.since))
	}
}

// outage is the one that a failure with err is part of: what somebody must mend hides nothing that
// is just away.
func (n *node) outage(err error) *outage {
	if errors.Is(err, lease.ErrPermanent) {
		return &n.permanent
	}
	return &n.away
}

// failingLocked keeps count of e among those that fail.
func (e *entry) failingLocked(now clock.Instant, err error) {
	if e.outage == nil && e.client.Degraded() {
		e.outage = e.l.nodes.of(int(e.node.Load())).outage(err)
		e.outage.begin(e.l, now, e.slot.name, err)
	}
}

// failsNoMoreLocked is for an entry whose call has succeeded, or that ends.
func (e *entry) failsNoMoreLocked(now clock.Instant, succeeded bool) {
	if e.outage != nil {
		e.outage.end(e.l, now, succeeded)
		e.outage = nil
	}
}

// notice is something that happens to one key and may happen to thousands at once: the log says it
// once in a while, with how many there were.
type notice struct {
	mu   sync.Mutex
	at   clock.Instant // of the last line
	keys int64         // since then
}

// due reports whether to log it now, for how many keys.
func (n *notice) due(now clock.Instant) (keys int64, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.keys++
	if n.at != 0 && now < n.at.Add(quietFor) {
		return 0, false
	}
	keys, n.keys, n.at = n.keys, 0, now
	return keys, true
}

// keyShown is how much of a key the log shows, in bytes.
const keyShown = 64

// brief is key as a log shows it: without control characters, and short.
func brief(key string) string {
	cut := key[:min(len(key), keyShown)]
	quoted := strconv.Quote(cut)
	quoted = quoted[1 : len(quoted)-1]
	if len(cut) < len(key) {
		quoted = fmt.Sprintf("%s... (%d bytes)", quoted, len(key))
	}
	return quoted
}

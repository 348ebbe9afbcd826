package hybrid

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/internal/safetext"
	"github.com/yuzhi-go/yuzhi/lease"
)

// logger is where l logs: also where the default logger was set after New.
func (l *Limiter) logger() *slog.Logger {
	logger := cmp.Or(l.cfg.Logger, slog.Default())
	if l.cfg.Name != "" {
		logger = logger.With("limiter", l.cfg.Name)
	}
	return logger
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
	over   bool // calls succeed again
	told   bool // the log has said so
	toldAt clock.Instant
	key    string // the last one that began to fail, and why
	err    error
	cold   bool // this process has never heard of the node, so ColdStart decides and no Fallback
}

// begin counts a key whose calls fail from now on. The line comes a CallTimeout after the first
// key, when it is known how many there are.
func (o *outage) begin(l *Limiter, now clock.Instant, key string, cold bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.keys == 0 {
		o.since, o.most, o.over, o.told = now, 0, false, false
		l.cfg.Clock.AfterFunc(l.cfg.CallTimeout, func() { o.tell(l) })
	}
	o.keys++
	o.most = max(o.most, o.keys)
	o.key, o.err, o.cold = key, err, cold
}

// tell logs an outage that is not over yet, later if another one was logged not long ago. Keys that
// nobody asks any more may be at rest by then, or gone, which is no sign of calls that succeed.
func (o *outage) tell(l *Limiter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := l.cfg.Clock.Now()
	switch quiet := o.toldAt.Add(quietFor).Sub(now); {
	case o.over || o.told || l.ctx.Err() != nil:
	case o.toldAt > 0 && quiet > 0:
		l.cfg.Clock.AfterFunc(quiet, func() { o.tell(l) })
	default:
		o.told, o.toldAt = true, now
		said := []any{"keys", o.most, "key", brief(o.key), "error", safetext.Error(o.err)}
		if o.cold {
			does := "denies"
			if l.cfg.Policy.ColdStart == ColdStartAllow {
				does = "admits"
			}
			said = append(said, "decides", "Policy.ColdStart "+does+" everything until this process has heard of its store")
		}
		l.logger().Warn("hybrid: lease calls fail", said...)
	}
}

// end no longer counts a key: its calls succeed again, or it has gone.
func (o *outage) end(l *Limiter, now clock.Instant, succeeded bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.keys--; succeeded {
		o.endLocked(l, now)
	}
}

// recovered says that the node has answered after an outage, which is over where no key is left
// whose next call would tell.
func (o *outage) recovered(l *Limiter, now clock.Instant) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.endLocked(l, now)
}

func (o *outage) endLocked(l *Limiter, now clock.Instant) {
	if o.keys > 0 || o.over {
		return
	}
	o.over = true
	if o.told {
		l.logger().Info("hybrid: lease calls succeed again", "keys", o.most, "after", now.Sub(o.since))
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
	e.failedAt = now
	e.outage.begin(e.l, now, e.slot.name, n.breaker.Active() == 0, err)
	e.announceDegraded(err)
}

// sufferLocked counts e among the keys that fail, if its node is away.
func (e *entry) sufferLocked(now clock.Instant) {
	if n := e.node.Load(); e.outage == nil && n.breaker.Away(now) {
		e.failingLocked(now, n.why())
	}
}

// failsNoMoreLocked no longer counts e: its call has succeeded, or it ends.
func (e *entry) failsNoMoreLocked(now clock.Instant, succeeded bool) {
	if e.outage != nil {
		e.outage.end(e.l, now, succeeded || !e.client.Suspect())
		e.outage = nil
		if succeeded {
			e.announceRecovered(now.Sub(e.failedAt))
		}
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
	n.warnOf(e.l, e.slot.name, now, text, args...)
}

// warnOf is warn for a key without an entry.
func (n *notice) warnOf(l *Limiter, key string, now clock.Instant, text string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.keys++
	if n.at == 0 || now >= n.at.Add(quietFor) {
		l.logger().Warn(text, append([]any{"keys", n.keys, "key", brief(key)}, args...)...)
		n.keys, n.at = 0, now
	}
}

// warnCrowd logs that the burst of a key does not allow leases as long as its fleet would need to
// keep Policy.CallsPerSecond, when that begins.
func (e *entry) warnCrowd(g *lease.Grant, weight int64, now clock.Instant) {
	wanted := protocol.BurstWanted(g, weight)
	if wanted > 0 && !e.crowded {
		e.l.crowds.warn(e, now, "hybrid: the burst is too small for as few lease calls as CallsPerSecond says; "+
			"a larger one, or more calls, cures it", "calls_per_second", g.Config.CallBudget(),
			"processes", g.ActiveWeight/weight, "burst", wanted)
	}
	e.crowded = wanted > 0
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
			l.logger().Info("hybrid: Target reduced to what uses a quarter of the burst at the full rate, "+
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
				l.logger().Warn("hybrid: Burst+Overcommit is below 4*Rate*round trip, "+
					"so every request waits for a call; a larger Overcommit cures it",
					"limit", limit, "rtt_p99", rtt, "overcommit", need-limit.Capacity())
			})
		}
	}
}

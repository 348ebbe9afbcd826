package hybrid

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/internal/safetext"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Stats counts a Limiter's work so far, in tokens unless a field says otherwise; see Conserved. It
// includes all classes of Config.Priorities.
type Stats struct {
	Name             string        // Config.Name
	Keys             int           // in the table now, in use or at rest; once for each class that it is used in
	InUse            int           // of Keys: asked for within a TTL or so, or holding tokens
	Degraded         int           // of InUse: their node is away, or their own last call failed
	Waiting          int           // requests that wait now, for a lease call or in line
	RTT              time.Duration // 99th percentile of the latest round trips, of the slowest node; 0 at first
	Leased           int64         // granted by the store
	Admitted         int64         // by tokens and by fallback; refunded ones included
	Denied           int64         // of requests that were not admitted
	Shadowed         int64         // denied, and all the same admitted by Policy.Shadow: in no other count
	TableFull        int64         // of Denied or Shadowed: all of Config.KeysMax keys were in use
	FallbackDenied   int64         // of Denied or Shadowed: the store did not answer; the others exceeded a limit
	Returned         int64         // given back unused
	Burnt            int64         // lost to expiry, a bucket that did not know the lease, or a call given up
	UnknownToBucket  int64         // of Burnt: the bucket did not know the lease; see LossVoid
	Held             int64         // in this process now, or on the way back to the store
	Refunded         int64         // of Admitted: not used after all, by Refund or by Settle of less
	Charged          int64         // used beyond what was reserved; see Reservation.Settle
	Fallback         int64         // of Admitted: without the store's tokens
	GrantedToWaiters int64         // admitted by a lease call that the request waited for
	Calls            int64         // lease calls, each for one key
	RoundTrips       int64         // exchanges with the store, whatever number of calls they carried
	Errors           int64         // calls that brought no grant
	Conflicts        int64         // keys whose bucket has other limits under the version that this process has
	Invalid          int64         // requests refused for their arguments, or after Close
	// Misconfigured counts requests for keys of which LimitsFor or KeyWithLimits gave no limits that can be
	// used. They are refused, or admitted by Policy.Shadow.
	Misconfigured int64
	// Limits has the counts by limit, those of Config.Limits first. Each keeps its place. Beyond 64
	// different limits the others come together at the end, under the zero Limit.
	Limits []LimitStats
	// Nodes are the nodes of the store that a Limiter of this process has called. Calls for keys of which it
	// does not know the node yet, and all calls of a Store that names no nodes, count for a node "unknown".
	Nodes []NodeStats
}

// NodeStats says whether one node of the store answers. The node is away from the first failed call to the
// first answer, of any Limiter on the Store. Without a request for one of its keys there is no call that could
// be answered.
type NodeStats struct {
	Node           string        // its address, if the Store knows it
	Away           time.Duration // so far; 0 while the node answers
	Err            error         // of the last failed call; nil while the node answers
	Fallback       int64         // of Stats.Fallback: for keys on this node
	FallbackDenied int64         // of Stats.FallbackDenied: likewise
}

// Conserved reports whether every token that the store granted is accounted for, once: Leased = Admitted -
// Fallback + Returned + Burnt + Held. A token counts as held until the store has answered the call that
// brings it back; a refunded one stays admitted. It is true at any time: false is a mistake in this package.
func (s Stats) Conserved() bool {
	return s.Leased == s.Admitted-s.Fallback+s.Returned+s.Burnt+s.Held &&
		min(s.Admitted-s.Fallback, s.Returned, s.Burnt, s.Held) >= 0
}

// limitsCounted is how many different limits Stats tells apart.
const limitsCounted = 64

// LimitStats has the counts of one limit, over all keys for which it is or was in force. Denied and
// Shadowed are tokens of requests that had to wait for this limit longest, as far as was known. Their
// sums over all limits are those of Stats, without TableFull and the requests that LimitsFor is to
// blame for.
type LimitStats struct {
	Limit    Limit // the zero Limit stands for all beyond 64
	Keys     int   // in use now for which it is in force
	Denied   int64
	Shadowed int64 // those above the burst included
}

// observer counts, logs and announces what a Limiter does. All members of the Limiter share it. Its
// methods take values, so it knows no entry.
type observer struct {
	cfg *Config         // with defaults
	ctx context.Context // ends with Close
	counters
	queue eventQueue

	capped, slowNet sync.Once // lines that come once
	seldom          [lines]seldomLine
	misconfig       misconfigured
	nearly          nearly
}

// announce announces the denial of a request for n tokens, and reports whether Policy.Shadow admits
// it all the same. A Limiter without Events.Denied and Policy.Shadow need not call it.
func (o *observer) announce(key string, n int64) (admitted bool) {
	if f := o.cfg.Events.Denied; f != nil {
		f(key, n)
	}
	return o.cfg.Policy.Shadow
}

// overrules reports whether Policy.Shadow admits a request that was denied with err: by a limit, for
// the lack of limits, or because the store is away. It is admitted without tokens and leaves no debt.
func (o *observer) overrules(err error) bool {
	return o.cfg.Policy.Shadow && (err == nil || errors.Is(err, ErrTableFull) ||
		errors.Is(err, ErrExceedsBurst) || errors.Is(err, ErrInvalidConfig) || errors.Is(err, errNoLimits))
}

// logger is looked up for each line, so a default logger that is set after New counts too.
func (o *observer) logger() *slog.Logger {
	logger := cmp.Or(o.cfg.Logger, slog.Default())
	if o.cfg.Name != "" {
		logger = logger.With("limiter", o.cfg.Name)
	}
	return logger
}

// quietFor is how long the log does not repeat itself.
const quietFor = 10 * time.Second

// The lines of the log about one key that thousands of keys may have at once.
const (
	lineVoid     = iota // a bucket did not know the lease
	lineConflict        // other limits under the same version
	lineCrowd           // the fleet is too large for a burst to keep its budget of calls
	lineMisconfigured
	lineNoLimits    // LimitsFor fails
	lineNotFollowed // ScopeProcess cannot ask for the limits that were set
	lineKeyFailed   // a call fails on a node that is well
	lineBucketLost  // the store has lost a bucket
	lines
)

// seldomLine is a line that comes once in quietFor, with the number of keys that had it.
type seldomLine struct {
	mu   sync.Mutex
	at   clock.Instant // of the last line; 0 before the first
	keys int64         // since then
}

// warnSeldom counts key, and logs the line if the last one is not too recent.
func (o *observer) warnSeldom(line int, key, text string, args ...any) {
	s, now := &o.seldom[line], o.cfg.Clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys++
	if s.at == 0 || now >= s.at.Add(quietFor) {
		o.logger().Warn(text, append([]any{"keys", s.keys, "key", brief(key)}, args...)...)
		s.keys, s.at = 0, now
	}
}

func (o *observer) voided(key string, n int64) {
	o.warnSeldom(lineVoid, key, "hybrid: lease unknown to its bucket; its tokens are lost", "tokens", n)
}

// crowded logs that the burst of key is too small for its fleet to keep Policy.CallsPerSecond.
func (o *observer) crowded(key string, callsPerSecond, processes, burst int64) {
	o.warnSeldom(lineCrowd, key, "hybrid: burst too small to keep within CallsPerSecond; raise one of them",
		"calls_per_second", callsPerSecond, "processes", processes, "burst_needed", burst)
}

// keysToldMax bounds how many keys with unusable limits have a line of the log each.
const keysToldMax = 1000

// misconfigured are the keys whose unusable limits the log has named.
type misconfigured struct {
	mu   sync.Mutex
	seed maphash.Seed
	told map[uint64]struct{} // by their hashes
}

func (m *misconfigured) add(key string) (added, full bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.told == nil {
		m.told, m.seed = make(map[uint64]struct{}), maphash.MakeSeed()
	}
	hash := maphash.String(m.seed, key)
	if _, told := m.told[hash]; told {
		return false, false
	}
	if len(m.told) >= keysToldMax {
		return false, true
	}
	m.told[hash] = struct{}{}
	return true, false
}

// refusedLimits tells the log once, and the listener each time, of limits that cannot be used.
func (o *observer) refusedLimits(key string, err error) {
	const text = "hybrid: invalid limits for a key; its requests fail"
	switch added, full := o.misconfig.add(key); {
	case added:
		o.logger().Warn(text, "key", brief(key), "error", safetext.Error(err))
	case full:
		o.warnSeldom(lineMisconfigured, key, text, "error", safetext.Error(err))
	}
	if f := o.cfg.Events.Misconfigured; f != nil {
		f(key, err)
	}
}

// failedLimits tells the log once in a while, and the listener each time, that LimitsFor has failed.
func (o *observer) failedLimits(key string, err error) {
	if o.ctx.Err() != nil {
		return
	}
	o.warnSeldom(lineNoLimits, key, "hybrid: LimitsFor failed; the limits in force stay", "error", safetext.Error(err))
	if f := o.cfg.Events.Misconfigured; f != nil {
		f(key, err)
	}
}

// proposed logs, once, that limits make the Target shorter.
func (o *observer) proposed(limits []Limit) {
	asked, target := o.cfg.Policy.Target, o.cfg.Policy.TargetFor(limits)
	if target < asked { // the default is meant to be capped
		o.capped.Do(func() {
			o.logger().Info("hybrid: Target capped: a lease may use at most a quarter of the burst",
				"target", target, "configured", asked, "limits", limits)
		})
	}
}

// heard logs, once, that a burst is too small to lease ahead where round trips take rtt at least.
func (o *observer) heard(limits []Limit, rtt time.Duration) {
	for _, limit := range limits {
		need := int64(math.Ceil(4 * limit.Rate() * rtt.Seconds()))
		if limit.Capacity()+o.cfg.Policy.Overcommit < need {
			o.slowNet.Do(func() {
				o.logger().Warn("hybrid: burst too small for the round trip; requests wait for lease calls",
					"limit", limit, "rtt", rtt, "overcommit_needed", need-limit.Capacity())
			})
		}
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

// limitCounts counts by limit. The counters' lock guards it.
type limitCounts struct {
	all   []LimitStats
	index map[Limit]int
	rest  LimitStats // of all limits beyond limitsCounted
}

// of is where l is counted. A limit keeps its place, so that no count is ever lower than before.
func (c *limitCounts) of(l Limit) *LimitStats {
	if i, ok := c.index[l]; ok {
		return &c.all[i]
	}
	if len(c.all) == limitsCounted {
		return &c.rest
	}
	if c.index == nil {
		c.index = make(map[Limit]int)
	}
	c.index[l] = len(c.all)
	c.all = append(c.all, LimitStats{Limit: l})
	return &c.all[len(c.all)-1]
}

// list is a copy of all counts. In shadow mode denied requests were admitted.
func (c *limitCounts) list(shadow bool) []LimitStats {
	all := append([]LimitStats(nil), c.all...)
	if c.rest != (LimitStats{}) {
		all = append(all, c.rest)
	}
	for i := range all {
		if shadow {
			all[i].Denied, all[i].Shadowed = 0, all[i].Denied
		}
	}
	return all
}

type counters struct {
	calls, roundTrips, errors, invalid, full, conflicts, charged atomic.Int64

	awaited, misconfigured atomic.Int64

	shadowed atomic.Int64 // tokens of requests that no entry has counted as denied, with Policy.Shadow
	ended    atomic.Int64 // tokens of requests whose context ended, with Policy.Shadow

	one     sync.Mutex // Stats at a time
	mu      sync.Mutex
	retired tally // of entries that have ended
	limits  limitCounts
	number  uint64 // of the latest Stats
	sum     tally  // of retired, and of the entries that the latest Stats has seen
}

type tally struct {
	protocol.Account
	denied, voided int64
}

func (t *tally) add(o tally) {
	t.Account = t.Account.Plus(o.Account)
	t.denied += o.denied
	t.voided += o.voided
}

// denials calls f with the tokens of each limit that were denied since the last time.
type denials func(f func(l Limit, n int64))

// retire keeps the tally of an entry that ends, which the Stats of that number has seen last. tally
// is called once, because requests that are refused meanwhile are counted without the entry's lock.
func (c *counters) retire(tally func() tally, seen uint64, by denials) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bookLocked(tally(), seen)
	by(c.denyLocked)
}

func (c *counters) bookLocked(t tally, seen uint64) {
	c.retired.add(t)
	if seen != c.number {
		c.sum.add(t)
	}
}

// see adds an entry with these limits to the sum of the Stats under way, unless that has seen it.
func (c *counters) see(tally func() tally, seen *uint64, by denials, limits []Limit) (added bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if *seen == c.number {
		return false
	}
	*seen = c.number
	c.sum.add(tally())
	by(c.denyLocked)
	c.keysLocked(limits)
	return true
}

func (c *counters) keysLocked(limits []Limit) {
	for _, l := range limits {
		c.limits.of(l).Keys++
	}
}

func (c *counters) denyLocked(l Limit, n int64) { c.limits.of(l).Denied += n }

// never stands for a Stats that has seen a key without an entry: there is none.
const never = ^uint64(0)

// burn counts n tokens as lost that were counted as admitted by an entry that has ended. A Stats
// that has seen the entry itself tells what was before.
func (c *counters) burn(n int64, seen uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bookLocked(tally{Account: protocol.Account{Admitted: -n, Burnt: n}}, seen)
}

func (c *counters) drew(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bookLocked(tally{Account: protocol.Account{Granted: n, Admitted: n}}, never)
}

// countDenied counts n tokens as denied because of one limit, for a key that has no entry to count them.
func (c *counters) countDenied(l Limit, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bookLocked(tally{denied: n}, never)
	c.denyLocked(l, n)
}

func (c *counters) blame(l Limit, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.denyLocked(l, n)
}

// eventQueue runs callbacks one after the other, in the order of add. They are added under an
// entry's lock and run when it is free again.
type eventQueue struct {
	mu      sync.Mutex
	queued  []func()
	running bool
	any     atomic.Bool // queued is not empty, so that run costs no lock where it is
}

func (q *eventQueue) add(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queued = append(q.queued, f)
	q.any.Store(true)
}

// run runs the queued callbacks. A run on another goroutine picks them up if it is not done yet.
func (q *eventQueue) run() {
	if !q.any.Load() {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.running {
		return
	}
	q.running = true
	for len(q.queued) > 0 {
		f := q.queued[0]
		q.queued = q.queued[1:]
		q.mu.Unlock()
		f()
		q.mu.Lock()
	}
	q.queued, q.running = nil, false
	q.any.Store(false)
}

// The events that are queued. Callers hold the entry's lock, and call queue.run once it is free.

// nodeAway and nodeBack announce an outage after what was queued before, on another goroutine: a hook may be slow,
// and requests wait for the caller.
func (o *observer) nodeAway(node string, err error) {
	if f := o.cfg.Events.NodeAway; f != nil {
		o.queue.add(func() { f(node, err) })
		go o.queue.run()
	}
}

func (o *observer) nodeBack(node string, after time.Duration) {
	if f := o.cfg.Events.NodeBack; f != nil {
		o.queue.add(func() { f(node, after) })
		go o.queue.run()
	}
}

// keyFailed logs and announces that a call for key has failed though its node is well.
func (o *observer) keyFailed(key string, err error) {
	err = safetext.Error(err)
	if f := o.cfg.Events.KeyFailed; f != nil {
		o.queue.add(func() { f(key, err) })
	}
	o.warnSeldom(lineKeyFailed, key, "hybrid: lease call of a key fails; its node is well", "error", err)
}

// lostBucket logs that the answer to c comes from another bucket of key than the one that c knew, which had not
// expired, or that the bucket waits out a loss. known says that the last answer said so already.
func (o *observer) lostBucket(key string, c *lease.Call, known bool) {
	if c.Request.Epoch > 0 && c.Grant.Epoch != c.Request.Epoch || c.Grant.Frozen > 0 && !known {
		o.warnSeldom(lineBucketLost, key, "hybrid: bucket lost by the store; limits set for it may be lost too",
			"grants_nothing_for", c.Grant.Frozen)
	}
}

func (o *observer) lost(key string, n int64, reason LossReason) {
	if f := o.cfg.Events.Lost; f != nil && n > 0 {
		o.queue.add(func() { f(key, n, reason) })
	}
}

func (o *observer) limitsChanged(key string, before, now []Limit) {
	if f := o.cfg.Events.LimitsChanged; f != nil && !slices.Equal(now, before) {
		now = slices.Clone(now)
		o.queue.add(func() { f(key, now) })
	}
}

// conflict counts, logs and announces that the bucket of key has the limits stored, under the same
// version as those that this process proposes.
func (o *observer) conflict(key string, stored []Limit, version int64) {
	stored = slices.Clone(stored)
	if f := o.cfg.Events.Conflict; f != nil {
		o.queue.add(func() { f(key, stored) })
	}
	o.conflicts.Add(1)
	o.warnSeldom(lineConflict, key,
		"hybrid: another process or handle has other limits under the same version; keeping the stored ones; "+
			"a quota that is added without a higher version starts used up",
		"limits", stored, "version", version)
}

// nearlyMost bounds the limits of keys that are remembered. Beyond it, Events.NearlyUsed may repeat itself.
const nearlyMost = 10_000

// nearly remembers of which limits Events.NearlyUsed has run, and until when it is not to run again.
type nearly struct {
	mu    sync.Mutex
	until map[limitOf]clock.Instant
}

type limitOf struct {
	key   string
	limit Limit
}

// isNew reports whether the event is to run for a limit, and remembers that it has.
func (n *nearly) isNew(of limitOf, now clock.Instant) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if now < n.until[of] {
		return false
	}
	if len(n.until) >= nearlyMost {
		maps.DeleteFunc(n.until, func(_ limitOf, until clock.Instant) bool { return until <= now })
	}
	if len(n.until) >= nearlyMost || n.until == nil {
		n.until = make(map[limitOf]clock.Instant)
	}
	n.until[of] = now.Add(of.limit.TimeToFull())
	return true
}

// nearlyUsed announces the limits of key which the call that brought g has nearly used up: its tokens are
// those with which nearlyUsedAt was reached, so of all processes one announces it.
func (o *observer) nearlyUsed(key string, g *lease.Grant, now clock.Instant) {
	f := o.cfg.Events.NearlyUsed
	if f == nil {
		return
	}
	for k, l := range g.Config.Limits {
		mark := int64(math.Ceil(float64(l.Capacity()) * nearlyUsedAt))
		used := l.Capacity() - g.Levels[k]
		if used >= mark && used-g.Granted < mark && o.nearly.isNew(limitOf{key, l}, now) {
			share := float64(used) / float64(l.Capacity())
			o.queue.add(func() { f(key, l, share) })
		}
	}
}

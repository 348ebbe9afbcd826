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
	"github.com/yuzhi-go/yuzhi/hybrid/internal/events"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/internal/safetext"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Stats counts the work of a Limiter so far, over all classes of Config.Priorities. See Conserved.
type Stats struct {
	Name             string        // Config.Name
	Keys             int           // keys in the table now; a key counts once for each class that uses it
	InUse            int           // keys in the table with a request in the last TTL or with tokens
	Degraded         int           // keys in use decided by Policy.Fallback; see NodeStats.Away
	Waiting          int           // requests that now wait for a lease call or in line
	RTT              time.Duration // 99th percentile of the last round trips to the slowest node
	Leased           int64         // tokens granted by the store
	Admitted         int64         // tokens admitted, including Fallback and Refunded
	Denied           int64         // tokens of denied requests
	Shadowed         int64         // tokens admitted only by Policy.Shadow; not in Admitted or Denied
	TableFull        int64         // tokens in Denied or Shadowed because Config.KeysMax keys were in use
	FallbackDenied   int64         // tokens in Denied or Shadowed because the store did not answer
	Returned         int64         // tokens given back unused
	Burnt            int64         // leased tokens that are lost; see LossReason
	UnknownToBucket  int64         // tokens in Burnt because the bucket did not know the lease; see LossVoid
	Held             int64         // tokens in this process now, or on the way back to the store
	Refunded         int64         // tokens in Admitted that Refund or Settle gave back
	Charged          int64         // tokens used beyond an estimate; see Reservation.Settle
	Fallback         int64         // tokens in Admitted that were admitted without the store
	GrantedToWaiters int64         // tokens granted to requests that waited for a lease call
	Calls            int64         // lease calls, one key each
	RoundTrips       int64         // round trips to the store; each carries any number of lease calls
	Errors           int64         // failed lease calls
	Conflicts        int64         // times that a bucket had other limits under the same Version
	Invalid          int64         // requests with invalid arguments, or after Close
	// Misconfigured counts requests without valid limits from LimitsFor or KeyWithLimits.
	Misconfigured int64
	// Limits has the counts of each limit, in a fixed order, beginning with Config.Limits. An element with
	// the zero Limit counts all limits after the first 64.
	Limits []LimitStats
	// Nodes has an element for each node of the store that a Limiter of this process has called. The node
	// "unknown" counts calls for keys whose node is not known yet, and all calls of a Store without nodes.
	Nodes []NodeStats
}

// NodeStats reports whether one node of the store answers. When a call of any Limiter on the Store fails, the
// node is away until a call is answered.
type NodeStats struct {
	Node           string        // address, if the Store knows it
	Away           time.Duration // length of the outage so far; 0 while the node answers
	Err            error         // error of the last failed call; nil while the node answers
	Fallback       int64         // tokens in Stats.Fallback of keys on this node
	FallbackDenied int64         // tokens in Stats.FallbackDenied of keys on this node
}

// fallbacks counts the tokens that Policy.Fallback or ColdStart decided for keys of one node.
type fallbacks struct{ admitted, denied atomic.Int64 }

// count counts a decision about n requested tokens.
func (f *fallbacks) count(n, admitted int64) {
	f.admitted.Add(admitted)
	f.denied.Add(n - admitted)
}

// Conserved reports whether every token that the store granted is counted once: Leased = Admitted - Fallback
// + Returned + Burnt + Held. A refunded token stays in Admitted. Conserved is false only if this package has
// a bug.
func (s Stats) Conserved() bool {
	return s.Leased == s.Admitted-s.Fallback+s.Returned+s.Burnt+s.Held &&
		min(s.Admitted-s.Fallback, s.Returned, s.Burnt, s.Held) >= 0
}

// limitsCounted is the largest number of limits with counts of their own in Stats.
const limitsCounted = 64

// LimitStats has the counts of one limit over all its keys. Denied and Shadowed count tokens of requests for
// which this limit had the longest wait. No limit counts requests in Stats.TableFull or after a failed
// LimitsFor.
type LimitStats struct {
	Limit    Limit // limit of the counts; zero for all limits after the first 64
	Keys     int   // keys in use now with this limit
	Denied   int64
	Shadowed int64 // includes tokens of requests above the burst
}

// observer counts, logs and announces the work of a Limiter. All members of a Limiter share one observer.
type observer struct {
	cfg *Config         // configuration with all defaults filled in
	ctx context.Context // canceled by Close
	counters
	queue events.Queue

	capped, slowNet sync.Once // log lines that appear once
	seldom          [lines]seldomLine
	misconfig       misconfigured
	nearly          nearly
}

// announce runs Events.Denied for a request for n tokens, and reports whether Policy.Shadow admits the
// request.
func (o *observer) announce(key string, n int64) (admitted bool) {
	if f := o.cfg.Events.Denied; f != nil {
		f(key, n)
	}
	return o.cfg.Policy.Shadow
}

// overrules reports whether Policy.Shadow admits, without tokens or debt, a request that was denied with err.
func (o *observer) overrules(err error) bool {
	return o.cfg.Policy.Shadow && (err == nil || errors.Is(err, ErrTableFull) ||
		errors.Is(err, ErrExceedsBurst) || errors.Is(err, ErrInvalidConfig) || errors.Is(err, errNoLimits))
}

// logger returns the Logger for the next log line: slog.Default() may change between lines.
func (o *observer) logger() *slog.Logger {
	logger := cmp.Or(o.cfg.Logger, slog.Default())
	if o.cfg.Name != "" {
		logger = logger.With("limiter", o.cfg.Name)
	}
	return logger
}

// quietFor is the shortest time between two log lines of one kind.
const quietFor = 10 * time.Second

// lineVoid and the constants below number the log lines that thousands of keys may cause at once.
const (
	lineVoid     = iota // a bucket did not know a lease
	lineConflict        // a bucket has other limits under the same version
	lineCrowd           // a burst is too small for Policy.CallsPerSecond
	lineMisconfigured
	lineNoLimits    // LimitsFor fails
	lineNotFollowed // a Limiter with ScopeProcess cannot read set limits
	lineKeyFailed   // a call fails although the key's node answers
	lineBucketLost  // the store lost a bucket
	lines
)

// seldomLine is the state of one kind of log line, which is written at most once in quietFor.
type seldomLine struct {
	mu   sync.Mutex
	at   clock.Instant // time of the last line; 0 before the first line
	keys int64         // keys since the last line
}

// warnSeldom counts key, and logs a line with the count unless the last line of this kind is too recent.
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
	o.warnSeldom(lineVoid, key, "hybrid: bucket does not know a lease; the lease's tokens are lost", "tokens", n)
}

// crowded logs that the burst of key is too small to keep within Policy.CallsPerSecond.
func (o *observer) crowded(key string, callsPerSecond, processes, burst int64) {
	o.warnSeldom(lineCrowd, key, "hybrid: burst too small to keep within CallsPerSecond; raise either",
		"calls_per_second", callsPerSecond, "processes", processes, "burst_needed", burst)
}

// keysLoggedMax bounds the keys with invalid limits that get a log line each.
const keysLoggedMax = 1000

type misconfigured struct {
	mu     sync.Mutex
	seed   maphash.Seed
	logged map[uint64]struct{} // hashes of keys that the log has named
}

func (m *misconfigured) add(key string) (added, full bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.logged == nil {
		m.logged, m.seed = make(map[uint64]struct{}), maphash.MakeSeed()
	}
	hash := maphash.String(m.seed, key)
	if _, logged := m.logged[hash]; logged {
		return false, false
	}
	if len(m.logged) >= keysLoggedMax {
		return false, true
	}
	m.logged[hash] = struct{}{}
	return true, false
}

// refusedLimits logs the invalid limits of a key once, and runs Events.Misconfigured at each call.
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

// failedLimits logs a failed LimitsFor at most once in quietFor, and runs Events.Misconfigured at each call.
func (o *observer) failedLimits(key string, err error) {
	if o.ctx.Err() != nil {
		return
	}
	o.warnSeldom(lineNoLimits, key, "hybrid: LimitsFor failed; the limits in force stay", "error", safetext.Error(err))
	if f := o.cfg.Events.Misconfigured; f != nil {
		f(key, err)
	}
}

func (o *observer) targetCapped(limits []Limit) {
	asked, target := o.cfg.Policy.Target, o.cfg.Policy.TargetFor(limits)
	if target < asked { // a default Target needs no log line
		o.capped.Do(func() {
			o.logger().Info("hybrid: Target capped: a lease may use at most a quarter of the burst",
				"target", target, "configured", asked, "limits", limits)
		})
	}
}

// slowNetwork logs once that a burst is too small to lease ahead with a round trip of rtt.
func (o *observer) slowNetwork(limits []Limit, rtt time.Duration) {
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

// brief returns key for a log line: short and without control characters.
func brief(key string) string {
	const most = 64
	quoted := strconv.Quote(key[:min(len(key), most)])
	quoted = quoted[1 : len(quoted)-1]
	if len(key) > most {
		quoted = fmt.Sprintf("%s... (%d bytes)", quoted, len(key))
	}
	return quoted
}

// limitCounts has the counts of each limit, guarded by the counters' lock.
type limitCounts struct {
	all   []LimitStats
	index map[Limit]int
	rest  LimitStats // counts of all limits after limitsCounted
}

// counts returns the counts of l, and adds l if needed.
func (c *limitCounts) counts(l Limit) *LimitStats {
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

// list returns a copy of all counts, with Denied moved to Shadowed if shadow is set.
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

	shadowed atomic.Int64 // tokens admitted by Policy.Shadow that are not in sum
	ended    atomic.Int64 // with Policy.Shadow, tokens of requests whose context ended

	statsMu     sync.Mutex // held by Stats, so that Stats calls run one at a time
	mu          sync.Mutex
	retired     tally // sum of ended entries
	limits      limitCounts
	statsNumber uint64 // number of the last Stats call
	sum         tally  // retired, plus the entries that the last Stats call has counted
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

// denials calls f for each limit of an entry with the tokens denied since the last call.
type denials func(f func(l Limit, n int64))

// retire adds the counts of an ending entry. seen is the number of the last Stats call that counted the
// entry. tally runs under the counters' lock, because takes are counted without the entry's lock.
func (c *counters) retire(tally func() tally, seen uint64, collect denials) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bookLocked(tally(), seen)
	collect(c.denyLocked)
}

func (c *counters) bookLocked(t tally, seen uint64) {
	c.retired.add(t)
	if seen != c.statsNumber {
		c.sum.add(t)
	}
}

// addToSum adds an entry with these limits to the sum, unless the Stats call under way has counted the entry.
func (c *counters) addToSum(tally func() tally, seen *uint64, collect denials, limits []Limit) (added bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if *seen == c.statsNumber {
		return false
	}
	*seen = c.statsNumber
	c.sum.add(tally())
	collect(c.denyLocked)
	c.keysLocked(limits)
	return true
}

func (c *counters) keysLocked(limits []Limit) {
	for _, l := range limits {
		c.limits.counts(l).Keys++
	}
}

func (c *counters) denyLocked(l Limit, n int64) { c.limits.counts(l).Denied += n }

// never is a number that no Stats call has.
const never = ^uint64(0)

// burn counts n admitted tokens of an ended entry as burnt. seen is the number of the last Stats call that
// counted the entry, or never.
func (c *counters) burn(n int64, seen uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bookLocked(tally{Account: protocol.Account{Admitted: -n, Burnt: n}}, seen)
}

func (c *counters) countDraw(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bookLocked(tally{Account: protocol.Account{Granted: n, Admitted: n}}, never)
}

// countDenied counts n tokens of a key without an entry as denied by limit l.
func (c *counters) countDenied(l Limit, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bookLocked(tally{denied: n}, never)
	c.denyLocked(l, n)
}

func (c *counters) countShadowed(l Limit, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.denyLocked(l, n)
}

// nodeAway queues Events.NodeAway. The queue runs on another goroutine, because a hook may be slow and
// requests wait for the caller of nodeAway.
func (o *observer) nodeAway(node string, err error) {
	if f := o.cfg.Events.NodeAway; f != nil {
		o.queue.Add(func() { f(node, err) })
		go o.queue.Run()
	}
}

func (o *observer) nodeBack(node string, after time.Duration) {
	if f := o.cfg.Events.NodeBack; f != nil {
		o.queue.Add(func() { f(node, after) })
		go o.queue.Run()
	}
}

// keyFailed logs and announces that a call for key failed although the key's node answers. Callers of
// keyFailed and the methods below call queue.Run after releasing their locks.
func (o *observer) keyFailed(key string, err error) {
	err = safetext.Error(err)
	if f := o.cfg.Events.KeyFailed; f != nil {
		o.queue.Add(func() { f(key, err) })
	}
	o.warnSeldom(lineKeyFailed, key, "hybrid: lease call fails although the key's node answers", "error", err)
}

// lostBucket logs a reply to c from a new bucket, although key's old bucket had not expired, or from a frozen
// bucket. reported means that the log has named the frozen bucket already.
func (o *observer) lostBucket(key string, c *lease.Call, reported bool) {
	if c.Request.Epoch > 0 && c.Grant.Epoch != c.Request.Epoch || c.Grant.Frozen > 0 && !reported {
		o.warnSeldom(lineBucketLost, key, "hybrid: bucket lost by the store; limits of SetLimits may be lost too",
			"grants_nothing_for", c.Grant.Frozen)
	}
}

func (o *observer) lost(key string, n int64, reason LossReason) {
	if f := o.cfg.Events.Lost; f != nil && n > 0 {
		o.queue.Add(func() { f(key, n, reason) })
	}
}

func (o *observer) limitsChanged(key string, old, limits []Limit) {
	if f := o.cfg.Events.LimitsChanged; f != nil && !slices.Equal(limits, old) {
		limits = slices.Clone(limits)
		o.queue.Add(func() { f(key, limits) })
	}
}

// conflict counts, logs and announces that key's bucket has stored other limits under the same version.
func (o *observer) conflict(key string, stored []Limit, version int64) {
	stored = slices.Clone(stored)
	if f := o.cfg.Events.Conflict; f != nil {
		o.queue.Add(func() { f(key, stored) })
	}
	o.conflicts.Add(1)
	o.warnSeldom(lineConflict, key,
		"hybrid: another process or handle proposes other limits under the same version; the stored limits stay",
		"limits", stored, "version", version)
}

// nearlyMax bounds the limits in nearly. With more limits, Events.NearlyUsed may run again too early.
const nearlyMax = 10_000

// nearly records until when Events.NearlyUsed must not run again for a limit.
type nearly struct {
	mu    sync.Mutex
	until map[keyLimit]clock.Instant
}

type keyLimit struct {
	key   string
	limit Limit
}

// record reports whether Events.NearlyUsed is to run for l now, and records that it runs.
func (n *nearly) record(l keyLimit, now clock.Instant) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if now < n.until[l] {
		return false
	}
	if len(n.until) >= nearlyMax {
		maps.DeleteFunc(n.until, func(_ keyLimit, until clock.Instant) bool { return until <= now })
	}
	if len(n.until) >= nearlyMax || n.until == nil {
		n.until = make(map[keyLimit]clock.Instant)
	}
	n.until[l] = now.Add(l.limit.TimeToFull())
	return true
}

// nearlyUsed announces the limits whose use the call with reply g has raised above nearlyUsedAt.
func (o *observer) nearlyUsed(key string, g *lease.Grant, now clock.Instant) {
	f := o.cfg.Events.NearlyUsed
	if f == nil {
		return
	}
	for k, l := range g.Config.Limits {
		mark := int64(math.Ceil(float64(l.Capacity()) * nearlyUsedAt))
		used := l.Capacity() - g.Levels[k]
		if used >= mark && used-g.Granted < mark && o.nearly.record(keyLimit{key, l}, now) {
			share := float64(used) / float64(l.Capacity())
			o.queue.Add(func() { f(key, l, share) })
		}
	}
}

// nodeUnknown is the node number of keys for which no node has answered yet, unknownNode the node's name.
const nodeUnknown, unknownNode = -1, "unknown"

func nodeName(store Store, number int) string {
	if number == nodeUnknown {
		return unknownNode
	}
	if r, ok := store.(lease.Router); ok {
		if name := r.NodeName(number); name != "" {
			return name
		}
	}
	return fmt.Sprint(number)
}

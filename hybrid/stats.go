package hybrid

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/protocol"
)

// Stats is what a Limiter did so far, in tokens unless a field says otherwise; see Conserved. The
// classes of Config.Priorities are in it.
type Stats struct {
	Name       string        // Config.Name
	Keys       int           // in the table now, in use or at rest; once for each class that it is used in
	InUse      int           // of Keys: asked for within a TTL or so, or holding tokens
	Degraded   int           // of InUse: nobody waits for their node, which is away, or their last call failed
	Waiting    int           // requests that wait now, for a lease call or in line
	RTT        time.Duration // 99th percentile of the latest round trips, of the slowest node; 0 for none yet
	Leased     int64         // granted by the store
	Admitted   int64         // by tokens and by fallback; refunded ones included
	Denied     int64         // of requests that were not admitted
	Shadowed   int64         // would have been denied, and were admitted by Policy.Shadow: in no other count
	Crowded    int64         // of Denied or Shadowed: all of Config.KeysMax keys were in use
	Returned   int64         // given back unused
	Burnt      int64         // lost to expiry, a bucket that did not know the lease, or a call given up
	Voided     int64         // of Burnt: the bucket did not know the lease; see LossVoid
	Held       int64         // in this process now, or on the way back to the store
	Refunded   int64         // of Admitted: not used after all, by Refund or by Settle of less
	Charged    int64         // used beyond what was reserved; see Reservation.Settle
	Fallback   int64         // of Admitted: without the store's tokens
	Awaited    int64         // admitted by a lease call that the request waited for; given back ones included
	Calls      int64         // lease calls, each for one key
	RoundTrips int64         // exchanges with the store, whatever number of calls they carried
	Errors     int64         // calls that brought no grant
	Conflicts  int64         // keys whose bucket has other limits under the version that this process has
	Invalid    int64         // requests refused for their arguments, or after Close
	// Misconfigured counts requests for keys of which LimitsFor or KeyWith gave limits that cannot be
	// used. They are refused, or admitted by Policy.Shadow.
	Misconfigured int64
	// Limits are what was counted for each limit, those of Config.Limits first. Each keeps its place.
	// Beyond 64 different ones the others come together at the end, under the zero Limit.
	Limits []LimitStats
}

// Conserved reports whether every token that the store granted is accounted for, once: Leased =
// Admitted - Fallback + Returned + Burnt + Held. A token counts as held until the store has
// answered the call that brings it back; a refunded one stays admitted. It is true at any time:
// false is a mistake in this package.
func (s Stats) Conserved() bool {
	return s.Leased == s.Admitted-s.Fallback+s.Returned+s.Burnt+s.Held &&
		min(s.Admitted-s.Fallback, s.Returned, s.Burnt, s.Held) >= 0
}

type counters struct {
	calls, roundTrips, errors, invalid, crowded, fallback, conflicts, charged atomic.Int64

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

// tally is a sum over entries.
type tally struct {
	protocol.Account
	denied, voided int64
}

func (t *tally) add(o tally) {
	t.Account = t.Account.Plus(o.Account)
	t.denied += o.denied
	t.voided += o.voided
}

func (e *entry) tally() tally {
	return tally{e.client.Account(), e.client.DeniedOf(e.client.Pool.Missed()), e.voided}
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
	c.collect(e)
}

// collect counts by limit what e has denied since it was last asked.
func (c *counters) collect(e *entry) {
	e.client.CollectDenials(func(l Limit, n int64) { c.limits.of(l).Denied += n })
}

// Stats sums up all keys, also those that have left, each once. No count is ever lower than it was
// before, but that what is given back (by Reservation.Cancel, or where a Join is denied) leaves
// Admitted, and a denial that another key of a Join has decided leaves Denied or Shadowed. It looks
// at every key in use, so call it once a second and not once a request.
func (l *Limiter) Stats() Stats {
	c := l.counters
	c.one.Lock()
	defer c.one.Unlock()
	c.mu.Lock()
	c.sum = c.retired
	c.number++
	c.limits.noKeys()
	c.mu.Unlock()
	st := Stats{Name: l.cfg.Name}
	l.eachSibling(func(l *Limiter) {
		st.Keys += int(l.keys.size.Load())
		st.RTT = max(st.RTT, l.nodes.worst())
		l.keys.each(func(e *entry) { c.look(e, &st) })
		l.keys.atRest(func(s *slot) { c.lookAtRest(s, l, &st) })
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	st.Leased, st.Returned, st.Burnt = c.sum.Granted, c.sum.Returned, c.sum.Burnt
	st.Held, st.Refunded, st.Voided = c.sum.Held, c.sum.Refunded, c.sum.voided
	st.Fallback, st.Crowded, st.Charged = c.fallback.Load(), c.crowded.Load(), c.charged.Load()
	st.Admitted = c.sum.Admitted + st.Fallback
	st.Denied = c.sum.denied + st.Crowded
	if l.cfg.Policy.Shadow {
		st.Shadowed, st.Denied = st.Denied+c.shadowed.Load(), c.ended.Load()
	}
	st.Calls, st.RoundTrips, st.Errors = c.calls.Load(), c.roundTrips.Load(), c.errors.Load()
	st.Conflicts, st.Invalid = c.conflicts.Load(), c.invalid.Load()
	st.Awaited, st.Misconfigured = c.awaited.Load(), c.misconfigured.Load()
	st.Limits = c.limits.list(l.cfg.Policy.Shadow)
	return st
}

// look counts one entry, unless it has been counted.
func (c *counters) look(e *entry, st *Stats) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.client.Closed() || e.counted == c.number {
		return
	}
	e.counted = c.number
	c.sum.add(e.tally())
	c.collect(e)
	for _, limit := range e.client.Limits() {
		c.limits.of(limit).Keys++
	}
	st.InUse++
	if e.outage != nil {
		st.Degraded++
	}
	e.client.Waiters(func(w *protocol.Waiter) {
		st.Waiting++
		c.sum.denied -= w.N - w.Got() // the pool has counted it as missed
	})
}

// lookAtRest counts a key at rest that is in use all the same: it draws. The idle list's lock is
// held.
func (c *counters) lookAtRest(s *slot, l *Limiter, st *Stats) {
	recent := s.draw != nil || s.memory.Recent(l.cfg.Clock.Now())
	if s.own == nil || !recent || l.state.Load() == stateClosed {
		return
	}
	st.InUse++
	if s.draw != nil {
		st.Waiting++
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, limit := range s.memory.Limits(s.own) {
		c.limits.of(limit).Keys++
	}
}

// worst is the longest round trip of all nodes.
func (n *nodes) worst() (rtt time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, one := range n.all {
		rtt = max(rtt, one.rtt())
	}
	return rtt
}

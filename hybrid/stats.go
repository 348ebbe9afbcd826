package hybrid

import (
	"sync"
	"sync/atomic"

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
	retired tally  // of entries that left the table
	number  uint64 // of the latest Stats
	missed  tally  // of retired: entries that the latest Stats did not see before they left
}

// tally is a sum over entries.
type tally struct {
	lease.Account
	denied int64
}

func (t tally) plus(e *entry, missed int64) tally {
	return tally{t.Account.Plus(e.client.Account()), t.denied + e.client.DeniedOf(missed)}
}

// retire keeps the account of an entry that ends, whose lock the caller holds.
func (c *counters) retire(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.retired = c.retired.plus(e, e.missed)
	if e.counted != c.number {
		c.missed = c.missed.plus(e, e.missed)
	}
}

// sum adds up all entries, also those that have ended, each once: no count is ever lower than it
// was before.
func (l *Limiter) sum() (t tally, inUse int) {
	c := &l.counters
	c.one.Lock()
	defer c.one.Unlock()
	c.mu.Lock()
	t = c.retired
	c.missed = tally{}
	c.number++
	number := c.number
	c.mu.Unlock()
	l.keys.each(func(e *entry) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if !e.gone && e.counted != number {
			e.counted = number
			inUse++
			t = t.plus(e, e.client.Pool.Missed())
		}
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	return tally{t.Account.Plus(c.missed.Account), t.denied + c.missed.denied}, inUse
}

// Stats sums up all keys. It looks at every key in use, so call it once a second and not once a
// request.
func (l *Limiter) Stats() Stats {
	sum, inUse := l.sum()
	fallback, crowded := l.counters.fallback.Load(), l.counters.crowded.Load()
	return Stats{
		Keys:       int(l.keys.size.Load()),
		InUse:      inUse,
		Leased:     sum.Granted,
		Admitted:   sum.Admitted + fallback,
		Denied:     sum.denied + crowded,
		Crowded:    crowded,
		Returned:   sum.Returned,
		Burnt:      sum.Burnt,
		Held:       sum.Held,
		Refunded:   sum.Refunded,
		Fallback:   fallback,
		Calls:      l.counters.calls.Load(),
		RoundTrips: l.counters.roundTrips.Load(),
		Errors:     l.counters.errors.Load(),
		Conflicts:  l.counters.conflicts.Load(),
		Invalid:    l.counters.invalid.Load(),
	}
}

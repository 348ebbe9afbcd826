package hybrid

import (
	"sync"
	"sync/atomic"

	"github.com/yuzhi-go/yuzhi/lease"
)

// Stats is what a Limiter did so far, in tokens where nothing else is said. Leased = Admitted - Fallback +
// Returned + Burnt + Held.
type Stats struct {
	Keys       int   // in the table now
	Leased     int64 // granted by the store
	Admitted   int64 // by tokens and by fallback; refunded ones included
	Denied     int64
	Returned   int64 // given back unused
	Burnt      int64 // lost to expiry, a bucket that did not know the lease, or a call given up
	Held       int64 // in this process now
	Refunded   int64
	Fallback   int64 // of Admitted: without the store's tokens
	Calls      int64 // lease calls, each for one key
	RoundTrips int64 // exchanges with the store, whatever number of calls they carried
	Errors     int64 // calls that brought no grant
	Invalid    int64 // requests refused for their arguments, or after Close
}

type counters struct {
	calls, roundTrips, errors, invalid, fallback atomic.Int64

	mu      sync.Mutex
	retired lease.Account // of entries that left the table
	denied  int64
}

// retire keeps the account of an entry that leaves the table. The caller holds its lock.
func (c *counters) retire(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.retired = c.retired.Plus(e.holder.Account())
	c.denied += e.holder.Denied()
}

// Stats sums up all keys; it looks at every one, so call it once a second and not once a request.
func (l *Limiter) Stats() Stats {
	l.counters.mu.Lock()
	sum, denied := l.counters.retired, l.counters.denied
	l.counters.mu.Unlock()
	keys := 0
	l.keys.Range(func(_ string, e *entry) bool {
		e.mu.Lock()
		if !e.gone {
			keys++
			sum = sum.Plus(e.holder.Account())
			denied += e.holder.Denied()
		}
		e.mu.Unlock()
		return true
	})
	fallback := l.counters.fallback.Load()
	return Stats{
		Keys:       keys,
		Leased:     sum.Granted,
		Admitted:   sum.Admitted + fallback,
		Denied:     denied,
		Returned:   sum.Returned,
		Burnt:      sum.Burnt,
		Held:       sum.Held,
		Refunded:   sum.Refunded,
		Fallback:   fallback,
		Calls:      l.counters.calls.Load(),
		RoundTrips: l.counters.roundTrips.Load(),
		Errors:     l.counters.errors.Load(),
		Invalid:    l.counters.invalid.Load(),
	}
}

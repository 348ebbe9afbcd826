package rival

import (
	"math"
	"math/bits"

	"github.com/yuzhi-go/yuzhi/lease"
)

// Central is one exact token bucket per limit, from all of which a request takes: the ideal that
// the promise is about. It starts full, and holds every refill exactly, so that it never drifts.
//
// A Central is a value, and a copy is a bucket of its own: a caller with many keys makes one
// Central and copies it. The zero Central is no bucket, and Take panics on it. One goroutine at a
// time.
type Central struct {
	rates []rate
	debt  debt
}

// NewCentral returns a full bucket for 1 to 4 limits that lease accepts. The error says every
// reason why it cannot.
func NewCentral(limits []lease.Limit) (Central, error) {
	rates, err := ratesOf(limits)
	return Central{rates: rates}, err
}

// Take takes n tokens at a time in microseconds if every limit has room for all of them, and
// reports whether it did. A refusal takes nothing. n of 0 is always admitted, and a negative n or
// one above the burst never. A time before an earlier one, or before 0, counts as that one, so that
// a clock that was set back creates no token.
func (c *Central) Take(now, n int64) bool {
	if len(c.rates) == 1 {
		return c.takeOfOne(now, n)
	}
	if len(c.rates) == 0 {
		panic("rival: Take on a Central that NewCentral did not make")
	}
	c.debt.settle(c.rates, now)
	if !c.debt.hasRoom(c.rates, n) {
		return false
	}
	c.debt.take(c.rates, n)
	return true
}

// takeOfOne is Take for one limit. Every simulated request passes here, and the loops over the
// limits would take twice as long.
func (c *Central) takeOfOne(now, n int64) bool {
	r, d := &c.rates[0], &c.debt
	used := d.used[0]
	if now > d.at {
		back := product(r.step, uint64(now)-uint64(d.at))
		d.at = now
		if back.less(used) {
			used = used.minus(back)
		} else {
			used = uint128{}
		}
	}
	want := used.plus(product(r.unit, uint64(n)))
	ok := !r.full.less(want)
	if ok {
		used = want
	}
	d.used[0] = used
	return ok
}

// draw takes want tokens, or what there is, but nothing if that is less than need.
func (c *Central) draw(now, need, want int64) int64 {
	c.debt.settle(c.rates, now)
	n := max(need, want)
	for i, r := range c.rates {
		left := r.full.minus(c.debt.used[i])
		whole, _ := bits.Div64(left.hi, left.lo, r.unit) // at most the burst
		n = min(n, int64(whole))
	}
	if n < need {
		return 0
	}
	c.debt.take(c.rates, n)
	return n
}

// burst is what no request may exceed, in tokens.
func (c *Central) burst() int64 {
	least := int64(math.MaxInt64)
	for _, r := range c.rates {
		least = min(least, r.burst)
	}
	return least
}

// central asks one Central per key for every request.
type central struct {
	calls
	local   clock
	window  int64 // microseconds for which an unused key is kept: the longest time to full
	buckets []expiring
}

// expiring is a bucket whose key in the store lives for a window after the last call.
type expiring struct {
	Central
	until int64 // true time; whoever comes then finds no key, and makes one at its own time
}

func newCentral(f Fleet, _ string, local clock) (Algorithm, error) {
	fresh, err := NewCentral(f.Limits)
	if err != nil {
		return nil, err
	}
	c := &central{local: local, buckets: make([]expiring, f.Keys)}
	for _, r := range fresh.rates {
		c.window = max(c.window, r.window)
	}
	for k := range c.buckets {
		c.buckets[k].Central = fresh
	}
	return c, nil
}

func (c *central) Decide(now int64, p, key int, n int64) bool {
	c.made++
	b := &c.buckets[key]
	local := c.local(p, now)
	if now >= b.until {
		b.debt = debt{at: local}
	}
	b.until = now + c.window
	return b.Take(local, n)
}

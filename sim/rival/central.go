package rival

import (
	"math"
	"math/bits"

	"github.com/yuzhi-go/yuzhi/lease"
)

// debt is what was taken from a token bucket and has not flowed back: the level is the burst less the debt. So the zero
// debt is a full bucket, whatever the limits are, and needs no refill.
type debt struct {
	used [maxLimits]uint128 // units of each rate
	at   int64              // microseconds: when used was right
}

// settle lets flow back what the time until now is worth. A time before the last one counts as no time.
func (d *debt) settle(rates []rate, now int64) {
	if now <= d.at {
		return
	}
	// The difference of two times in order is right in two's complement, and times a step it fits 128 bits: there is
	// no need to clamp it to the time to full.
	elapsed := uint64(now) - uint64(d.at)
	d.at = now
	for i := range rates {
		if back := product(rates[i].step, elapsed); back.less(d.used[i]) {
			d.used[i] = d.used[i].minus(back)
		} else {
			d.used[i] = uint128{}
		}
	}
}

// hasRoom says whether every bucket holds n tokens.
func (d *debt) hasRoom(rates []rate, n int64) bool {
	for i := range rates {
		if rates[i].full.less(d.used[i].plus(product(rates[i].unit, uint64(n)))) {
			return false
		}
	}
	return true
}

// take makes a debt of n tokens, which the caller may do beyond what is there.
func (d *debt) take(rates []rate, n int64) {
	for i := range rates {
		d.used[i] = d.used[i].plus(product(rates[i].unit, uint64(n)))
	}
}

// level is how many whole tokens every bucket holds. Nothing may have been taken beyond what was there.
func (d *debt) level(rates []rate) int64 {
	least := int64(math.MaxInt64)
	for i, r := range rates {
		left := r.full.minus(d.used[i])
		whole, _ := bits.Div64(left.hi, left.lo, r.unit) // at most the burst
		least = min(least, int64(whole))
	}
	return least
}

// Central is one exact token bucket per limit, from all of which a request takes: the ideal that promise (1) is about.
// It starts full. Its arithmetic is in whole numbers that hold every refill exactly, so it never drifts.
//
// A Central is a value, and a copy of one is a bucket of its own: a caller with many keys makes one Central and copies
// it, which shares nothing but the limits. The zero Central is no bucket, and Take panics on it. One goroutine at a time.
type Central struct {
	rates []rate
	debt  debt
}

// NewCentral returns a full bucket for 1 to 4 limits that lease accepts. The error says every reason why it cannot.
func NewCentral(limits []lease.Limit) (Central, error) {
	rates, err := ratesOf(limits)
	return Central{rates: rates}, err
}

// Take takes n tokens at a time in microseconds, if every limit has room for all of them, and reports whether it did.
// A refusal takes nothing. n of 0 is always admitted, and a negative n or one above the burst never. A time before an
// earlier one, or before 0, counts as that one, so that a clock that was set back creates no token.
func (c *Central) Take(now, n int64) bool {
	if len(c.rates) != 1 {
		return c.takeOfAll(now, n)
	}
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
	// A negative n reads as 2^63 or more, which is above every burst.
	want := used.plus(product(r.unit, uint64(n)))
	ok := !r.full.less(want)
	if ok {
		used = want
	}
	d.used[0] = used
	return ok
}

// takeOfAll is Take for several limits.
func (c *Central) takeOfAll(now, n int64) bool {
	if len(c.rates) == 0 {
		panic("rival: Take on a Central that NewCentral did not make")
	}
	c.debt.settle(c.rates, now)
	ok := c.debt.hasRoom(c.rates, n)
	if ok {
		c.debt.take(c.rates, n)
	}
	return ok
}

// central asks one Central per key for every request.
type central struct {
	calls
	local   clock
	window  int64 // microseconds
	buckets []expiring
}

// expiring is a bucket whose key in the store lives as long as the last caller asked for.
type expiring struct {
	Central
	until int64 // true time; whoever comes then finds no key, and makes one at its own time
}

func newCentral(f Fleet, _ string, local clock) (Algorithm, error) {
	fresh, err := NewCentral(f.Limits)
	if err != nil {
		return nil, err
	}
	c := &central{local: local, window: timeToFull(fresh.rates), buckets: make([]expiring, f.Keys)}
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

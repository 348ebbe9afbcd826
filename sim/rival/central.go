package rival

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"slices"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/internal/violation"
	"github.com/yuzhi-go/yuzhi/lease"
)

// rate is a limit in units. The refill of a microsecond is a whole number of units, and is never rounded. A
// token has less than 2^63 units and the burst less than 2^115, so that no sum or product of the algorithms
// overflows 128 bits.
type rate struct {
	unit   uint64        // units of a token
	step   uint64        // units that the refill of a microsecond adds
	full   exact.Uint128 // units of the burst
	burst  int64         // tokens of the burst, rounded down, or of a window
	window int64         // microseconds of a window, or from empty to full, rounded up; at most 100 years
	kind   lease.Kind
	origin int64 // for a calendar: microseconds from time 0 to the start of a period
}

// ratesOf returns the rates for the fraction share/of of each limit.
func ratesOf(limits []lease.Limit, share, of int64) (rates []rate, err error) {
	if err := validLimits(limits); err != nil {
		return nil, err
	}
	for _, l := range limits {
		r, err := newRate(l, share, of)
		if err != nil {
			return nil, err
		}
		rates = append(rates, r)
	}
	return rates, nil
}

func validLimits(limits []lease.Limit) error {
	v := violation.List{Kind: ErrLimit}
	if len(limits) < 1 || len(limits) > lease.LimitsMax {
		v.Add("Limits", limits, "must have 1 to %d", lease.LimitsMax)
	}
	for i, l := range limits {
		v.Adopt(l.Validate(), violation.Under(fmt.Sprintf("Limits[%d]", i)))
	}
	return v.Err()
}

// newRate returns the rate for the fraction share/of of l. The burst is divided exactly, not in whole tokens.
// The burst stays at least one token, because a smaller burst would never admit a request.
func newRate(l lease.Limit, share, of int64) (rate, error) {
	flow := times(times(big.NewRat(l.Tokens, int64(l.Per)), big.NewRat(1000, 1)), big.NewRat(share, of))
	burst := times(big.NewRat(l.Capacity(), 1), big.NewRat(share, of))
	if one := big.NewRat(1, 1); burst.Cmp(one) < 0 {
		burst = one
	}
	unit, step := flow.Denom(), flow.Num()
	// Requests and refills are whole units, so a fraction of a unit in the burst does not matter.
	full := new(big.Int).Mul(burst.Num(), unit)
	full.Div(full, burst.Denom())
	if unit.BitLen() > 63 || step.BitLen() > 63 || full.BitLen() > 115 {
		return rate{}, violation.New(ErrLimit, "", l, "cannot be divided exactly: for a fraction of %d/%d, "+
			"a token has %v units, and a microsecond adds %v, must be below 2^63", share, of, unit, step)
	}
	r := rate{
		unit:   unit.Uint64(),
		step:   step.Uint64(),
		full:   exact.Uint128{Hi: new(big.Int).Rsh(full, 64).Uint64(), Lo: full.Uint64()},
		burst:  new(big.Int).Div(full, unit).Int64(),
		window: ceiling(new(big.Rat).SetFrac(full, step)),
		kind:   l.Kind,
		origin: l.Offset.Microseconds(),
	}
	if l.Windowed() {
		r.window = l.Per.Microseconds()
	}
	return r, nil
}

// after returns the number of used units that remain after a refill of elapsed microseconds.
func (r *rate) after(used exact.Uint128, elapsed uint64) exact.Uint128 {
	return used.Minus(exact.Product(r.step, elapsed))
}

// hasRoom reports whether the limit has room for n more tokens. A negative n is 2^63 tokens or more.
func (r *rate) hasRoom(used exact.Uint128, n int64) bool {
	return !r.full.Less(used.Plus(exact.Product(r.unit, uint64(n))))
}

func times(a, b *big.Rat) *big.Rat { return new(big.Rat).Mul(a, b) }

func ceiling(r *big.Rat) int64 {
	down := new(big.Int).Neg(r.Num())
	return -down.Div(down, r.Denom()).Int64() // Div rounds down
}

// Central is an exact limiter for all limits of one key. A request takes tokens from every limit. A Central
// starts full. The promise of the protocol (section 1) compares leases with a Central.
//
// A copy of an unused Central is an independent limiter. Take panics on the zero Central. Only one goroutine
// may use a Central at a time.
type Central struct {
	rates    []rate
	windowed bool                           // at least one limit is not a token bucket
	used     [lease.LimitsMax]exact.Uint128 // units of each limit that were taken and have not been refilled
	quotas   []quota                        // one for each limit if windowed; nil before the first request
	at       int64                          // time in microseconds for which used holds
}

// NewCentral returns a full limiter for 1 to 4 valid limits. The error lists every violation. A calendar's
// Offset counts from time 0.
func NewCentral(limits []lease.Limit) (Central, error) {
	rates, err := ratesOf(limits, 1, 1)
	return centralOf(rates), err
}

func centralOf(rates []rate) Central {
	inWindow := func(r rate) bool { return r.kind != lease.KindBucket }
	return Central{rates: rates, windowed: slices.ContainsFunc(rates, inWindow)}
}

// Take takes n tokens at the time now in microseconds if every limit has room for all n, and reports whether
// it took the tokens. Take admits an n of 0 and refuses a negative n. A now below 0 or below that of an
// earlier call counts as the latest now so far: a clock that is set back creates no token.
func (c *Central) Take(now, n int64) bool {
	switch {
	case len(c.rates) == 0:
		panic("rival: Take on a Central that NewCentral did not make")
	case len(c.rates) == 1 && !c.windowed:
		return c.takeOfOne(now, n)
	case !c.hasRoom(now, n):
		return false
	}
	c.spend(n)
	return true
}

// hasRoom advances the limiter to now and reports whether every limit has room for n tokens.
func (c *Central) hasRoom(now, n int64) bool {
	c.refill(now)
	for i := range c.rates {
		switch r := &c.rates[i]; {
		case r.kind != lease.KindBucket && n > r.burst-c.quotas[i].sum && n > 0,
			r.kind == lease.KindBucket && !r.hasRoom(c.used[i], n):
			return false
		}
	}
	return n >= 0
}

// takeOfOne is Take for one token bucket at twice the speed, as every simulated request calls takeOfOne.
func (c *Central) takeOfOne(now, n int64) bool {
	r := &c.rates[0]
	used := r.after(c.used[0], c.pass(now))
	ok := r.hasRoom(used, n)
	if ok {
		used = used.Plus(exact.Product(r.unit, uint64(n)))
	}
	c.used[0] = used
	return ok
}

// TakeWithin is Take for a request that waits in line for up to within microseconds. TakeWithin takes n
// tokens if every limit has room for n within that time. Later requests, including those of Take, queue
// behind the request. A token bucket counts the tokens as used at once, beyond its level. A windowed limit
// counts the tokens at the time at which the limit has room.
func (c *Central) TakeWithin(now, n, within int64) bool {
	if within <= 0 || n <= 0 {
		return c.Take(now, n)
	}
	c.refill(now)
	at := c.at
	for i := range c.rates {
		at = max(at, c.roomAt(i, n))
	}
	if at-now > within {
		return false
	}
	if c.windowed {
		c.refill(at)
	}
	c.spend(n)
	return true
}

// Waiting returns the number of tokens for which requests are waiting in line at the time now.
func (c *Central) Waiting(now int64) (n int64) {
	if c.windowed && c.quotas == nil {
		return 0 // before the first request
	}
	n = math.MaxInt64
	for i := range c.rates {
		r := &c.rates[i]
		if r.kind != lease.KindBucket {
			n = min(n, c.quotas[i].after(r, now))
		} else if !c.windowed {
			due := r.after(c.used[i], uint64(max(0, now-c.at))).Minus(r.full)
			whole, part := bits.Div64(min(due.Hi, r.unit-1), due.Lo, r.unit)
			n = min(n, int64(whole)+int64(min(part, 1)))
		}
	}
	return n
}

// never is the time at which a limit has room for a request above the burst.
const never = math.MaxInt64

// roomAt returns the first time since c.at at which limit i has room for n tokens.
func (c *Central) roomAt(i int, n int64) int64 {
	r := &c.rates[i]
	switch {
	case n > r.burst:
		return never
	case r.kind != lease.KindBucket:
		return c.quotas[i].roomAt(r, c.at, n)
	}
	lacking := c.used[i].Plus(exact.Product(r.unit, uint64(n))).Minus(r.full) // 0 if the limit has room
	if lacking.Hi >= r.step {
		return never
	}
	us, rest := bits.Div64(lacking.Hi, lacking.Lo, r.step)
	if rest > 0 {
		us++
	}
	if us > math.MaxInt64/2 || c.at > math.MaxInt64/2 {
		return never
	}
	return c.at + int64(us)
}

// pass advances c.at to now and returns the microseconds in between. A now before c.at counts as c.at.
func (c *Central) pass(now int64) (elapsed uint64) {
	if now > c.at {
		elapsed = uint64(now) - uint64(c.at) // correct even if now - c.at overflows an int64
		c.at = now
	}
	return elapsed
}

func (c *Central) refill(now int64) {
	elapsed := c.pass(now)
	if c.windowed && c.quotas == nil {
		c.quotas = make([]quota, len(c.rates))
		for i := range c.quotas {
			c.quotas[i].period = math.MinInt64
		}
	}
	for i := range c.rates {
		if r := &c.rates[i]; r.kind == lease.KindBucket {
			c.used[i] = r.after(c.used[i], elapsed)
		} else {
			c.quotas[i].pass(r, c.at)
		}
	}
}

// spend takes n tokens of every limit, as Settle does.
func (c *Central) spend(n int64) {
	for i := range c.rates {
		switch r := &c.rates[i]; {
		case r.kind != lease.KindBucket:
			c.quotas[i].add(r, c.at, n)
		case n < 0:
			c.used[i] = c.used[i].Minus(exact.Product(r.unit, uint64(-n)))
		default:
			c.used[i] = c.used[i].Plus(exact.Product(r.unit, uint64(n)))
		}
	}
}

// Settle corrects the tokens of an admitted request whose cost has become known. Settle takes n more tokens,
// even if fewer are left. If n is negative, Settle returns -n tokens, up to the burst, and of a window the
// oldest ones first.
func (c *Central) Settle(now, n int64) {
	c.refill(now)
	c.spend(n)
}

// draw takes max(need, want) tokens, or all tokens if fewer are left, or none if fewer than need are left.
func (c *Central) draw(now, need, want int64) int64 {
	c.refill(now)
	n := max(need, want)
	for i := range c.rates {
		n = min(n, c.left(i))
	}
	if n < need {
		return 0
	}
	c.spend(n)
	return n
}

// expiring is a central limiter whose key in the store expires one window after the last call. The next call
// makes a full limiter.
type expiring struct {
	Central
	window int64 // microseconds for which the store keeps the key: the longest window of all limits
	until  int64 // true time at which the key expires
}

func newCentral(f Fleet) (Algorithm, error) {
	fresh, err := NewCentral(f.Limits)
	if err != nil {
		return nil, err
	}
	longest := int64(0)
	for _, r := range fresh.rates {
		longest = max(longest, r.window)
	}
	return newWindows(f, 1, func(int) window { return &expiring{Central: fresh, window: longest} }), nil
}

func (b *expiring) expire(now, local int64) {
	if now >= b.until {
		b.Central = centralOf(b.rates)
		b.at = local
	}
	b.until = now + b.window
}

func (b *expiring) add(_, _, n int64) { b.spend(n) }

func (b *expiring) clone() window {
	o := *b
	o.quotas = slices.Clone(b.quotas)
	for k := range o.quotas {
		o.quotas[k].log = slices.Clone(o.quotas[k].log)
	}
	return &o
}

// quota counts the tokens used in a window, sliding or of a calendar.
type quota struct {
	sum    int64
	log    []admission // for a sliding window: the admissions in sum, by time
	period int64       // for a calendar: the number of the period
}

// pass drops the tokens that are not in the window or period at now.
func (q *quota) pass(r *rate, now int64) {
	if r.kind == lease.KindCalendar {
		if p := exact.FloorDiv(now-r.origin, r.window); p > q.period {
			q.sum, q.period = 0, p
		}
		return
	}
	for len(q.log) > 0 && q.log[0].at <= now-r.window {
		q.sum -= q.log[0].n
		q.log = q.log[1:]
	}
}

// roomAt returns the first time, at or after now, at which the quota has room for n tokens.
func (q *quota) roomAt(r *rate, now, n int64) int64 {
	left := r.burst - q.sum
	switch {
	case left >= n:
		return now
	case r.kind == lease.KindCalendar:
		return r.origin + (q.period+1)*r.window
	}
	for _, a := range q.log {
		if left += a.n; left >= n {
			return a.at + r.window
		}
	}
	return now + r.window // unreachable for an n of at most the burst
}

// after returns the tokens of admissions after now.
func (q *quota) after(r *rate, now int64) (n int64) {
	if r.kind == lease.KindCalendar {
		if r.origin+q.period*r.window > now {
			n = q.sum
		}
		return n
	}
	for i := len(q.log) - 1; i >= 0 && q.log[i].at > now; i-- {
		n += q.log[i].n
	}
	return n
}

// add counts n more tokens at now, even beyond the burst. If n is negative, add returns the oldest tokens.
func (q *quota) add(r *rate, now, n int64) {
	if n < 0 {
		q.back(-n)
		return
	}
	q.sum += n
	if r.kind == lease.KindCalendar {
		return
	}
	if last := len(q.log) - 1; last >= 0 && q.log[last].at == now {
		q.log[last].n += n
	} else {
		q.log = append(q.log, admission{now, n})
	}
}

func (q *quota) back(n int64) {
	n = min(n, q.sum)
	q.sum -= n
	for len(q.log) > 0 && n > 0 {
		took := min(n, q.log[0].n)
		q.log[0].n, n = q.log[0].n-took, n-took
		if q.log[0].n == 0 {
			q.log = q.log[1:]
		}
	}
}

// left returns the number of whole tokens that limit i has left.
func (c *Central) left(i int) int64 {
	r := &c.rates[i]
	if r.kind != lease.KindBucket {
		return max(0, r.burst-c.quotas[i].sum)
	}
	units := r.full.Minus(c.used[i])
	whole, _ := bits.Div64(units.Hi, units.Lo, r.unit) // the quotient is at most the burst
	return int64(whole)
}

package rival

import (
	"fmt"
	"math/big"
	"math/bits"

	"github.com/yuzhi-go/yuzhi/lease"
)

type uint128 struct{ hi, lo uint64 }

func (a uint128) less(b uint128) bool { return a.hi < b.hi || a.hi == b.hi && a.lo < b.lo }

func (a uint128) plus(b uint128) uint128 {
	lo, carry := bits.Add64(a.lo, b.lo, 0)
	hi, _ := bits.Add64(a.hi, b.hi, carry)
	return uint128{hi, lo}
}

func (a uint128) minus(b uint128) uint128 {
	lo, borrow := bits.Sub64(a.lo, b.lo, 0)
	hi, _ := bits.Sub64(a.hi, b.hi, borrow)
	return uint128{hi, lo}
}

func product(a, b uint64) uint128 {
	hi, lo := bits.Mul64(a, b)
	return uint128{hi, lo}
}

// rate is a limit in whole numbers, so that no refill is ever rounded: a token is unit units, and a
// microsecond adds step units. A token fits 63 bits and the whole burst 115, so that no sum or
// product of the algorithms overflows 128 bits.
type rate struct {
	unit, step uint64
	full       uint128 // units: the burst
	burst      int64   // tokens: the burst, rounded down
	window     int64   // microseconds from empty to full, rounded up; at most 100 years
}

// newRate is the part share/of of l. The burst is divided exactly too, not in whole tokens, but
// stays at least one: less would never admit anything.
func newRate(l lease.Limit, share, of int64) (rate, error) {
	flow := part(new(big.Int).Mul(big.NewInt(l.Tokens), big.NewInt(1000)), big.NewInt(int64(l.Per)), share, of)
	burst := part(big.NewInt(l.Capacity()), big.NewInt(1), share, of)
	if one := big.NewRat(1, 1); burst.Cmp(one) < 0 {
		burst = one
	}
	unit, step := flow.Denom(), flow.Num()
	// A burst's fraction of a unit never matters: requests and refills are whole units.
	full := new(big.Int).Mul(burst.Num(), unit)
	full.Div(full, burst.Denom())
	if unit.BitLen() > 63 || step.BitLen() > 63 || full.BitLen() > 115 {
		return rate{}, fmt.Errorf("%w: %d/%d of the limit %v cannot be held exactly: "+
			"a token is %v units and a microsecond adds %v, must be below 2^63", ErrLimit, share, of, l, unit, step)
	}
	return rate{
		unit:   unit.Uint64(),
		step:   step.Uint64(),
		full:   uint128{new(big.Int).Rsh(full, 64).Uint64(), full.Uint64()},
		burst:  new(big.Int).Div(full, unit).Int64(),
		window: quotientUp(full, step),
	}, nil
}

// part is num/den * share/of.
func part(num, den *big.Int, share, of int64) *big.Rat {
	return new(big.Rat).SetFrac(
		new(big.Int).Mul(num, big.NewInt(share)), new(big.Int).Mul(den, big.NewInt(of)))
}

// quotientUp is a/b, rounded up.
func quotientUp(a, b *big.Int) int64 {
	up := new(big.Int).Add(a, b)
	return up.Sub(up, big.NewInt(1)).Div(up, b).Int64()
}

// ratesOf are the limits' rates, undivided.
func ratesOf(limits []lease.Limit) ([]rate, error) {
	if err := validLimits(limits); err != nil {
		return nil, err
	}
	return partsOf(limits, 1, 1)
}

// partsOf are the rates of the part share/of of every limit.
func partsOf(limits []lease.Limit, share, of int64) (rates []rate, err error) {
	for _, l := range limits {
		r, err := newRate(l, share, of)
		if err != nil {
			return nil, err
		}
		rates = append(rates, r)
	}
	return rates, nil
}

// debt is what was taken from a token bucket and has not flowed back: the level is the burst less
// the debt. So the zero debt is a full bucket, whatever the limits are.
type debt struct {
	used [maxLimits]uint128 // units of each rate
	at   int64              // microseconds: when used was right
}

// settle lets flow back what the time until now is worth. An earlier time counts as no time.
func (d *debt) settle(rates []rate, now int64) {
	if now <= d.at {
		return
	}
	elapsed := uint64(now) - uint64(d.at) // right in two's complement, however far they are apart
	d.at = now
	for i := range rates {
		if back := product(rates[i].step, elapsed); back.less(d.used[i]) {
			d.used[i] = d.used[i].minus(back)
		} else {
			d.used[i] = uint128{}
		}
	}
}

// hasRoom says whether every bucket holds n tokens. A negative n reads as 2^63 or more, which is
// above every burst.
func (d *debt) hasRoom(rates []rate, n int64) bool {
	for i := range rates {
		if rates[i].full.less(d.used[i].plus(product(rates[i].unit, uint64(n)))) {
			return false
		}
	}
	return true
}

// take adds n tokens to the debt, even beyond what there is.
func (d *debt) take(rates []rate, n int64) {
	for i := range rates {
		d.used[i] = d.used[i].plus(product(rates[i].unit, uint64(n)))
	}
}

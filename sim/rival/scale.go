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

// rate is a limit in whole numbers, so that no refill is ever rounded: a token is unit units, and a microsecond adds
// step units. A token fits 63 bits and the whole burst 115, so that no sum or product of the algorithms overflows
// 128 bits.
type rate struct {
	unit, step uint64
	full       uint128 // units: the burst
	burst      int64   // tokens: the burst, rounded down
}

// newRate is l where share = of. Otherwise it is the part share/of of l, with the burst divided just as exactly, not in
// whole tokens, but at least one, for less would never admit anything.
func newRate(l lease.Limit, share, of int64) (rate, error) {
	flow := part(new(big.Int).Mul(big.NewInt(l.Tokens), big.NewInt(1000)), big.NewInt(int64(l.Per)), share, of)
	burst := part(big.NewInt(l.Capacity()), big.NewInt(1), share, of)
	if one := big.NewRat(1, 1); burst.Cmp(one) < 0 {
		burst = one
	}
	unit, step := flow.Denom(), flow.Num()
	// What the burst has beyond a whole unit is dropped. It never mattered: requests and refills are whole units.
	full := new(big.Int).Mul(burst.Num(), unit)
	full.Div(full, burst.Denom())
	if unit.BitLen() > 63 || step.BitLen() > 63 || full.BitLen() > 115 {
		return rate{}, fmt.Errorf("%w: %d/%d of the limit %v cannot be held exactly: a token is %v units and a microsecond adds %v, must be below 2^63",
			ErrFleet, share, of, l, unit, step)
	}
	return rate{
		unit:  unit.Uint64(),
		step:  step.Uint64(),
		full:  uint128{new(big.Int).Rsh(full, 64).Uint64(), full.Uint64()},
		burst: new(big.Int).Div(full, unit).Int64(),
	}, nil
}

// part is num/den * share/of.
func part(num, den *big.Int, share, of int64) *big.Rat {
	return new(big.Rat).SetFrac(new(big.Int).Mul(num, big.NewInt(share)), new(big.Int).Mul(den, big.NewInt(of)))
}

// ratesOf are the limits' rates, undivided.
func ratesOf(limits []lease.Limit) ([]rate, error) {
	if err := validLimits(limits); err != nil {
		return nil, err
	}
	rates := make([]rate, len(limits))
	for i, l := range limits {
		r, err := newRate(l, 1, 1)
		if err != nil {
			return nil, err
		}
		rates[i] = r
	}
	return rates, nil
}

// smallestBurst is what no request may exceed, in tokens.
func smallestBurst(rates []rate) int64 {
	least := rates[0].burst
	for _, r := range rates[1:] {
		least = min(least, r.burst)
	}
	return least
}

// timeToFull is how long the slowest of the rates takes from empty to full, in microseconds, rounded up.
func timeToFull(rates []rate) (longest int64) {
	for _, r := range rates {
		longest = max(longest, r.window())
	}
	return longest
}

// window is the rate's own time from empty to full in microseconds, rounded up. A valid limit's is at most 100 years.
func (r rate) window() int64 { return r.time(r.full).up() }

// time is how long units take to flow in.
func (r rate) time(units uint128) moment {
	q, rest := bits.Div64(units.hi, units.lo, r.step)
	return moment{int64(q), rest}
}

// moment is a point in time, or a length of it, in whole microseconds and a fraction part/step of one, step being that
// of the rate it is used with.
type moment struct {
	us   int64
	part uint64
}

func (m moment) after(o moment) bool { return m.us > o.us || m.us == o.us && m.part > o.part }

// plus is exact: part and d.part are below step, which fits 63 bits.
func (m moment) plus(d moment, step uint64) moment {
	m.us += d.us
	m.part += d.part
	if m.part >= step {
		m.part -= step
		m.us++
	}
	return m
}

// up is the first whole microsecond that is not before m.
func (m moment) up() int64 {
	if m.part > 0 {
		return m.us + 1
	}
	return m.us
}

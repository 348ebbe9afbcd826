package exact

import "math/bits"

// Uint128 is an integer of 128 bits.
type Uint128 struct{ Hi, Lo uint64 }

// Product returns a*b.
func Product(a, b uint64) Uint128 {
	hi, lo := bits.Mul64(a, b)
	return Uint128{hi, lo}
}

// Less reports whether a < b.
func (a Uint128) Less(b Uint128) bool { return a.Hi < b.Hi || a.Hi == b.Hi && a.Lo < b.Lo }

// Plus returns a + b and drops the carry.
func (a Uint128) Plus(b Uint128) Uint128 {
	lo, carry := bits.Add64(a.Lo, b.Lo, 0)
	hi, _ := bits.Add64(a.Hi, b.Hi, carry)
	return Uint128{hi, lo}
}

// Minus returns a - b, at least 0.
func (a Uint128) Minus(b Uint128) Uint128 {
	lo, borrow := bits.Sub64(a.Lo, b.Lo, 0)
	hi, borrow := bits.Sub64(a.Hi, b.Hi, borrow)
	if borrow != 0 {
		return Uint128{}
	}
	return Uint128{hi, lo}
}

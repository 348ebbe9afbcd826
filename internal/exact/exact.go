// Package exact provides integer arithmetic that does not overflow and agrees with the Lua scripts.
package exact

import (
	"math/bits"
	"time"
)

const (
	// MaxUnits bounds every integer of the protocol, so that the sum of two integers is exact in Lua.
	MaxUnits = 1 << 52
	// MaxTime bounds how long a bucket is remembered. 100 years fit a Duration and a Redis expiry.
	MaxTime = 100 * 365 * 24 * time.Hour
	// MaxTTL is the longest T, so that a TTL in a wrong unit does not keep tokens leased for weeks.
	MaxTTL = time.Hour
	// TTLPerTarget is the default T in Targets: a lease outlives three missed renewals.
	TTLPerTarget = 4
)

// Micros returns d in microseconds, rounded towards zero.
func Micros(d time.Duration) int64 { return int64(d / time.Microsecond) }

// Duration returns us microseconds as a Duration.
func Duration(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// FloorDiv returns a/b rounded down, for a negative a too.
func FloorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// GCD returns the greatest common divisor of a and b.
func GCD(a, b uint64) uint64 {
	for a != 0 {
		a, b = b%a, a
	}
	return b
}

// MulDiv returns floor(a*b/c), which must be below 2^63. No argument may be negative.
func MulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(q)
}

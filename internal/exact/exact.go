// Package exact provides integer arithmetic that does not overflow and agrees with the Lua scripts.
package exact

import (
	"math/bits"
	"time"
)

const (
	// MaxUnits bounds every integer of the protocol. Below 2^52 the sum of two integers is exact in the
	// doubles of Redis's Lua.
	MaxUnits = 1 << 52
	// MaxTime bounds how long a bucket is remembered: 100 years fit a Duration, a Redis expiry and MaxUnits
	// microseconds.
	MaxTime = 100 * 365 * 24 * time.Hour
	// MaxTTL is the longest T, so that a TTL in a wrong unit does not lock tokens away for weeks.
	MaxTTL = time.Hour
	// TTLPerTarget is the default T in Targets: a lease outlives three missed renewals.
	TTLPerTarget = 4
)

// Micros returns d in microseconds, rounded towards zero.
func Micros(d time.Duration) int64 { return int64(d / time.Microsecond) }

// Duration returns us microseconds as a Duration.
func Duration(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// FloorDiv returns a/b rounded down, also for a negative a.
func FloorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// GCD returns the greatest common divisor of a and b. GCD(0, b) is b.
func GCD(a, b uint64) uint64 {
	for a != 0 {
		a, b = b%a, a
	}
	return b
}

// MulDiv returns floor(a*b/c), which must be below 2^63; no argument is negative. Lua has no exact product
// above 2^53, so the scripts multiply bit by bit and divide as they go.
func MulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(q)
}

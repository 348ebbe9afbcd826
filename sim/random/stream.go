// Package random is the simulator's randomness: streams of random numbers that are the same, to the
// bit, on every machine.
//
// A stream belongs to a seed and to one entity of the simulated world ("the network of process 7"), and
// depends on nothing else: another entity more, or a draw more by another entity, changes no other stream. So
// two runs that differ in one setting meet the same requests, and their difference is that of the setting.
//
// The functions Log, Exp, Pow and Sin of package math are not used: they are written in assembly on
// some architectures, and round differently there. A compiler may fuse a product with a sum, which
// rounds once instead of twice: every product that is added to something is rounded explicitly, as in
// float64(x*y) + z, which forbids that. Of math come only operations that are exact, or rounded
// correctly everywhere, such as Sqrt.
package random

import (
	"fmt"
	"math/bits"
)

// SeedMax is the largest seed that SeedOf returns: JSON readers that know only doubles keep it.
const SeedMax = 1<<53 - 1

// SeedOf returns the seed of a replication: seed itself for replication 0, otherwise one in [1, SeedMax]
// that is unrelated to those of other seeds and replications. Running once with SeedOf(s, r)
// repeats replication r of seed s.
func SeedOf(seed uint64, replication int) uint64 {
	if replication == 0 {
		return seed
	}
	return 1 + absorb(absorb(mix(seed), saltReplication), uint64(replication))%SeedMax
}

// Stream is a source of random numbers: xoshiro256++ of Blackman and Vigna (2019), of period
// 2^256-1. It is a plain value: a copy goes on as the original would have. The zero Stream gives
// nothing but zeros; New makes a good one. It may be used by one goroutine at a time.
type Stream struct{ a, b, c, d uint64 }

// New returns the stream of an entity, which is named by any number of words, for example (kind, group,
// process). Entities with other words, another number of words or another seed have streams of their own: the
// words are hashed to 64 bits, and two of n entities share a stream by accident with probability n^2/2^65.
func New(seed uint64, entity ...uint64) Stream {
	h := absorb(mix(seed), saltEntity+uint64(len(entity)))
	for _, word := range entity {
		h = absorb(h, word)
	}
	// SplitMix64 makes the four words from h, as the authors of xoshiro advise. They differ, so not
	// all are zero.
	var words [4]uint64
	for i := range words {
		h += gamma
		words[i] = mix(h)
	}
	return Stream{words[0], words[1], words[2], words[3]}
}

const (
	gamma = 0x9e3779b97f4a7c15 // of SplitMix64: 2^64 over the golden ratio

	saltReplication = 0x7265706c69636174 // "replicat"
	saltEntity      = 0x656e746974790000 // "entity", and room for a number
)

// absorb takes a word into a hash. With the same hash, different words never collide: it is a
// bijection of the word.
func absorb(h, word uint64) uint64 { return mix(h ^ mix(word+gamma)) }

// mix is the finaliser of SplitMix64 (variant 13 of Stafford), a bijection.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Uint64 is uniform in [0, 2^64).
func (r *Stream) Uint64() uint64 {
	a, b, c, d := r.a, r.b, r.c^r.a, r.d^r.b
	r.a, r.b, r.c, r.d = a^d, b^c, c^b<<17, bits.RotateLeft64(d, 45)
	return bits.RotateLeft64(a+(d^b), 23) + a
}

// Float64 is uniform in [0, 1), a multiple of 2^-53.
func (r *Stream) Float64() float64 { return float64(float64(int64(r.Uint64()>>11)) * 0x1p-53) }

// Int64N is uniform in [0, n), without bias (Lemire, 2019). It panics if n is not positive.
func (r *Stream) Int64N(n int64) int64 {
	if n <= 0 {
		panic(fmt.Sprintf("random: n is %d, must be positive", n))
	}
	most := uint64(n)
	high, low := bits.Mul64(r.Uint64(), most)
	if low < most {
		for least := -most % most; low < least; {
			high, low = bits.Mul64(r.Uint64(), most)
		}
	}
	return int64(high)
}

// Bernoulli is true with probability p: never for p at or below 0, always for 1 and more. It draws
// one number whatever p is, so that the stream goes on the same way.
func (r *Stream) Bernoulli(p float64) bool { return r.Float64() < p }

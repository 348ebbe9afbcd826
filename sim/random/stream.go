// Package random makes the simulator's random numbers, in streams that are equal to the bit on all machines.
//
// A stream depends only on a seed and on one entity of the simulated world ("the network of process 7"), and
// not on other entities. Two runs that differ in one setting therefore get the same requests.
//
// Package random has its own Log, Exp, Pow and Sin, because those of package math are in assembly on some
// architectures, and round differently. A compiler may also fuse a product with a sum, which rounds once
// instead of twice. An explicit conversion, as in float64(x*y) + z, forbids the fusion.
package random

import "math/bits"

// SeedMax is the largest seed that SeedOf returns. A double can represent SeedMax, as JSON readers require.
const SeedMax = 1<<53 - 1

// SeedOf returns the seed of a replication: seed itself for replication 0, otherwise a number in [1, SeedMax]
// that is unrelated to the seeds of other replications and of other values of seed. A single run with
// SeedOf(s, r) repeats replication r of seed s.
func SeedOf(seed uint64, replication int) uint64 {
	if replication == 0 {
		return seed
	}
	return 1 + absorb(absorb(mix(seed), saltReplication), uint64(replication))%SeedMax
}

// Stream is a source of random numbers: xoshiro256++ of Blackman and Vigna (2019), with period 2^256-1. A
// copy of a Stream continues as the original would. New makes a Stream; the zero Stream returns only zeros.
type Stream struct{ a, b, c, d uint64 }

// New returns the stream of an entity. Any number of words identify the entity, for example (kind, group,
// process). New hashes the seed and the words to 64 bits: some two of n entities share a stream with a
// probability of n^2/2^65.
func New(seed uint64, entity ...uint64) Stream {
	h := absorb(mix(seed), saltEntity+uint64(len(entity)))
	for _, word := range entity {
		h = absorb(h, word)
	}
	// SplitMix64 makes the stream's four words from h, as the authors of xoshiro advise. The four words
	// differ, so not all are zero.
	var words [4]uint64
	for i := range words {
		h += gamma
		words[i] = mix(h)
	}
	return Stream{words[0], words[1], words[2], words[3]}
}

const (
	gamma = 0x9e3779b97f4a7c15 // increment of SplitMix64: 2^64 over the golden ratio

	saltReplication = 0x7265706c69636174 // "replicat"
	saltEntity      = 0x656e746974790000 // "entity", with room for the number of words
)

// absorb adds a word to a hash. For a given hash, absorb is a bijection, so different words never collide.
func absorb(h, word uint64) uint64 { return mix(h ^ mix(word+gamma)) }

// mix is the finaliser of SplitMix64 (variant 13 of Stafford), a bijection.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Uint64 returns a uniform number in [0, 2^64).
func (r *Stream) Uint64() uint64 {
	a, b, c, d := r.a, r.b, r.c^r.a, r.d^r.b
	r.a, r.b, r.c, r.d = a^d, b^c, c^b<<17, bits.RotateLeft64(d, 45)
	return bits.RotateLeft64(a+(d^b), 23) + a
}

// Float64 returns a uniform number in [0, 1), a multiple of 2^-53.
func (r *Stream) Float64() float64 { return float64(float64(int64(r.Uint64()>>11)) * 0x1p-53) }

// Int64N returns a uniform number in [0, n), without bias (Lemire, 2019). n must be positive.
func (r *Stream) Int64N(n int64) int64 {
	most := uint64(n)
	high, low := bits.Mul64(r.Uint64(), most)
	if low < most {
		for least := -most % most; low < least; {
			high, low = bits.Mul64(r.Uint64(), most)
		}
	}
	return int64(high)
}

// Bernoulli returns true with probability p. Bernoulli draws one number for any p.
func (r *Stream) Bernoulli(p float64) bool { return r.Float64() < p }

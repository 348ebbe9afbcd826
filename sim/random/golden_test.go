package random

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"testing"
)

// These values are a promise: a scenario and a seed that somebody wrote down give the same report
// in the next version, on any machine. A change of them is a change of the report's schema, and
// belongs into the release notes.
func TestStreamsStayAsTheyAre(t *testing.T) {
	same := func(name string, got, want any) {
		t.Helper()
		if got != want {
			t.Errorf("%s is %#v, was %#v", name, got, want)
		}
	}
	r := New(1)
	same("the first number of seed 1", r.Uint64(), uint64(0x272a08a48695af69))
	r = New(1, 2, 3)
	same("the first number of entity (2, 3)", r.Uint64(), uint64(0xee11c8525e0e94e0))
	same("the next, as a float", r.Float64(), 0.12253325353120448)
	same("the next, below 1000", r.Int64N(1000), int64(19))
	same("the next, exponential", r.Exp(), 0.15554194034635002)
	same("the next, normal", r.Normal(), 0.29375307011475454)
	same("the next, Pareto", r.Pareto(1.5), 14.540572507404626)
	w := NewWeights([]float64{5, 1, 1, 1, 1, 1})
	same("the next, weighted", [4]int{w.Draw(&r), w.Draw(&r), w.Draw(&r), w.Draw(&r)}, [4]int{1, 0, 1, 0})
	same("replication 1 of seed 1", SeedOf(1, 1), uint64(0xfa4c82c4dd452))
	same("replication 7 of seed 12345", SeedOf(12345, 7), uint64(0x1894eb1da4c99a))
}

// A machine that rounds anything else in 10^5 draws of everything, or in the functions below them,
// fails here.
func TestEveryMachineDrawsTheSameBits(t *testing.T) {
	const draws = 100_000
	sum := sha256.New()
	put := func(xs ...float64) {
		for _, x := range xs {
			_ = binary.Write(sum, binary.LittleEndian, math.Float64bits(x)) // a hash takes everything
		}
	}
	zipf := make([]float64, 1000)
	for i := range zipf {
		zipf[i] = Pow(float64(i+1), -0.9)
	}
	for _, l := range layers {
		put(float64(l.inside), l.scale, l.low, l.height)
	}
	w, r := NewWeights(zipf), New(SeedOf(1, 1), 7, 8, 9)
	for range draws {
		put(r.Float64(), r.Exp(), r.Normal(), r.Pareto(1.2), float64(r.Int64N(1e15)), float64(w.Draw(&r)))
		put(float64(r.Uint64()>>11), float64(r.Int64N(10)))
		if r.Bernoulli(0.3) {
			put(1)
		}
		x := Exp(40 * (r.Float64() - 0.5))
		put(x, Log(x), Pow(x, r.Float64()), Sin(x), Exp(-x))
	}
	const want = "cb45a6906380d0f7af75b6e212a15809e7f7862539127530acee4a84ac1b957a"
	if got := hex.EncodeToString(sum.Sum(nil)); got != want {
		t.Errorf("the hash of %d draws is %s, want %s", draws, got, want)
	}
}

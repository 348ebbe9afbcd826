package random

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// The generator and the hash are those of the literature: their published test vectors.
func TestTheGeneratorIsXoshiro256PlusPlus(t *testing.T) {
	r := Stream{1, 2, 3, 4}
	for i, want := range []uint64{
		41943041, 58720359, 3588806011781223, 3591011842654386, 9228616714210784205,
		9973669472204895162, 14011001112246962877, 12406186145184390807, 15849039046786891736, 10450023813501588000,
	} {
		got := r.Uint64()
		testkit.Check(t, got == want, "number %d is %d, want %d", i, got, want)
	}
	if got := mix(1234567 + gamma); got != 6457827717110365317 {
		t.Errorf("SplitMix64 of 1234567 begins with %d", got)
	}
}

func TestEveryEntityHasAStreamOfItsOwn(t *testing.T) {
	owner := map[Stream]string{}
	own := func(seed uint64, entity ...uint64) {
		r, name := New(seed, entity...), fmt.Sprint(seed, entity)
		other, taken := owner[r]
		testkit.Check(t, !taken, "the stream of %s is that of %s", name, other)
		owner[r] = name
	}
	for seed := range uint64(10) {
		own(seed)
		for a := range uint64(10) {
			own(seed, a)
			for b := range uint64(10) {
				own(seed, a, b)
				own(seed, a, b, 0)
			}
		}
	}
}

// Streams of entities that are numbered one after the other must not resemble each other: not
// number by number, nor shifted by one, as they do first with poor seeding.
func TestStreamsOfNeighboursAreUncorrelated(t *testing.T) {
	const n = 100_000
	draws := func(seed uint64, entity ...uint64) []float64 {
		r, xs := New(seed, entity...), make([]float64, n+1)
		for i := range xs {
			xs[i] = r.Float64() - 0.5
		}
		return xs
	}
	correlation := func(xs, ys []float64) float64 {
		sum := 0.0
		for i := range n {
			sum += xs[i] * ys[i]
		}
		return sum * 12 / n // the variance of each is 1/12
	}
	first := draws(1, 5, 0)
	for name, other := range map[string][]float64{
		"next entity":       draws(1, 5, 1),
		"other kind":        draws(1, 4, 0),
		"words swapped":     draws(1, 0, 5),
		"next seed":         draws(2, 5, 0),
		"next replication":  draws(SeedOf(1, 1), 5, 0),
		"itself, shifted":   first[1:],
		"neighbour shifted": draws(1, 5, 1)[1:],
	} {
		// Of independent streams it is normal with standard deviation 1/sqrt(n).
		if c := correlation(first, append(other, 0)); math.Abs(c) > 6/math.Sqrt(n) {
			t.Errorf("%s: the correlation is %.4f, within %.4f of 0 is chance", name, c, 6/math.Sqrt(n))
		}
	}
	if c := correlation(first, first); math.Abs(c-1) > 0.02 {
		t.Errorf("the correlation with itself is %.4f", c)
	}
}

func TestSeedOfAReplication(t *testing.T) {
	seen := map[uint64]string{}
	for _, seed := range []uint64{0, 1, 2, 12345, SeedMax} {
		got := SeedOf(seed, 0)
		testkit.Check(t, got == seed, "replication 0 of seed %d has seed %d", seed, got)
		for rep := range 1000 {
			s, name := SeedOf(seed, rep), fmt.Sprintf("replication %d of seed %d", rep, seed)
			testkit.Check(t, s <= SeedMax && (rep <= 0 || s != 0),
				"%s has seed %d, must be 1 to 2^53-1", name, s)
			other, taken := seen[s]
			testkit.Check(t, !taken, "%s is %s", name, other)
			seen[s] = name
		}
	}
}

func TestIntegersAreUnbiased(t *testing.T) {
	r := New(1)
	const draws = 300_000
	// 2^64 numbers over 3*2^61 values: three for two of three neighbours, two for the third, if
	// none is refused.
	for _, n := range []int64{3, 10, 3 << 61, math.MaxInt64} {
		cells := min(n, 3)
		counts := make([]float64, cells)
		for range draws {
			v := r.Int64N(n)
			testkit.Must(t, v >= 0 && v < n, "Int64N(%d) is %d", n, v)
			if n > 10 || v < 9 {
				counts[v%cells]++
			}
		}
		total := counts[0] + counts[1] + counts[2]
		for i, c := range counts {
			if sigma := math.Sqrt(total * 2 / 9); math.Abs(c-total/3) > 6*sigma {
				t.Errorf("Int64N(%d): %v of %v have remainder %d, want a third within %.0f", n, c, total, i, 6*sigma)
			}
		}
	}
	for range 1000 {
		v := r.Int64N(1)
		testkit.Must(t, v == 0, "Int64N(1) is %d", v)
	}
}

func TestBernoulli(t *testing.T) {
	r := New(2)
	const n = 100_000
	for _, p := range []float64{-1, 0, 0.001, 0.3, 1, 2} {
		hits := 0.0
		for range n {
			if r.Bernoulli(p) {
				hits++
			}
		}
		q := min(max(p, 0), 1)
		if sigma := math.Sqrt(n * q * (1 - q)); math.Abs(hits-n*q) > 6*sigma {
			t.Errorf("p %g: %v hits of %d, want %g within %.0f", p, hits, n, n*q, 6*sigma)
		}
	}
	// Every call takes one number, whatever p is: what comes after does not depend on it.
	a, b := r, r
	a.Bernoulli(0)
	b.Bernoulli(0.5)
	testkit.Check(t, a == b, "p decides how many numbers are drawn")
}

// These values are a promise: a scenario and a seed give the same report in the next version, on any
// machine. A change of them is a change of the report's schema, and belongs into the release notes.
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
		put(r.Float64(), r.Exp(), r.Normal(), Exp(r.Exp()/1.2), float64(r.Int64N(1e15)), float64(w.Draw(&r)))
		put(float64(r.Uint64()>>11), float64(r.Int64N(10)))
		if r.Bernoulli(0.3) {
			put(1)
		}
		x := Exp(40 * (r.Float64() - 0.5))
		put(x, Log(x), Pow(x, r.Float64()), Sin(x), Exp(-x))
	}
	const want = "cb45a6906380d0f7af75b6e212a15809e7f7862539127530acee4a84ac1b957a"
	got := hex.EncodeToString(sum.Sum(nil))
	testkit.Check(t, got == want, "the hash of %d draws is %s, want %s", draws, got, want)
}

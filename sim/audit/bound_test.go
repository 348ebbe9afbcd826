package audit

import (
	"math"
	"math/big"
	"math/bits"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// Random pairs rarely meet the edges, so these numbers are drawn as often as random ones.
var edges = []uint64{0, 1, 2, 3, 1 << 31, 1 << 32, 1e9, math.MaxInt64 / 2, math.MaxInt64 - 1, math.MaxInt64}

func TestRateArithmeticIsThatOfUnboundedIntegers(t *testing.T) {
	rng := testkit.Rand(t)
	number := func() uint64 {
		if rng.IntN(2) == 0 {
			return edges[rng.IntN(len(edges))]
		}
		return rng.Uint64() >> (1 + rng.IntN(62))
	}
	signed := func() int64 {
		if rng.IntN(2) == 0 {
			return int64(number())
		}
		return -int64(number())
	}
	of := func(x uint64) *big.Int { return new(big.Int).SetUint64(x) }
	for range 200_000 {
		b := Bound{Tokens: int64(number()), Per: time.Duration(max(number(), 1))}
		r := b.rate()
		tokens, per := big.NewInt(b.Tokens), big.NewInt(int64(b.Per))

		// Lowest terms are the same rate.
		if h1, l1 := bits.Mul64(r.tokens, uint64(b.Per)); r != (Bound{Tokens: int64(r.tokens), Per: time.Duration(r.nanos)}).rate() {
			t.Fatalf("%+v in lowest terms is %+v, which is not lowest", b, r)
		} else if h2, l2 := bits.Mul64(uint64(b.Tokens), r.nanos); h1 != h2 || l1 != l2 {
			t.Fatalf("%+v in lowest terms is %+v, which is another rate", b, r)
		}
		w := number()
		flow := new(big.Int).Mul(tokens, of(w))
		flow.Div(flow, per)
		if flow.IsInt64() && flow.Int64() != r.wholeTokens(w) || !flow.IsInt64() && r.wholeTokens(w) != math.MaxInt64 {
			t.Fatalf("%+v: in %d ns flow %v, got %d", b, w, flow, r.wholeTokens(w))
		}
		x, y := signed(), signed()
		gain := new(big.Int).Mul(big.NewInt(x), per)
		cost := new(big.Int).Mul(big.NewInt(y), tokens)
		if want := gain.Cmp(cost) >= 0; r.covers(x, y) != want {
			t.Fatalf("%+v: %d tokens cover %d ns: got %v, want %v", b, x, y, !want, want)
		}
	}
}

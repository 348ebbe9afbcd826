package audit

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"time"
)

// bruteExcess is the definition, word by word, in unbounded integers: over all pairs (s, e) of moments that
// occur, the most that count(s, e) exceeds the bound by, in tokens rounded up, at least 0.
func bruteExcess(spans []Span, b Bound) *big.Int {
	worst := new(big.Int)
	for _, first := range spans {
		for _, last := range spans {
			for _, s := range []int64{first.Before, first.After} {
				for _, e := range []int64{last.Before, last.After} {
					if s > e {
						continue
					}
					if over := excess(s, e, count(spans, s, e), b); over.Cmp(worst) > 0 {
						worst = over
					}
				}
			}
		}
	}
	return worst
}

// count may add in int64, because all N together fit one in every world.
func count(spans []Span, s, e int64) int64 {
	var n int64
	for _, sp := range spans {
		if sp.Before >= s && sp.After <= e {
			n += sp.N
		}
	}
	return n
}

// excess is ceil(n - (burst + overcommit) - tokens*(e-s)/per), possibly negative.
func excess(s, e, n int64, b Bound) *big.Int {
	per := big.NewInt(int64(b.Per))
	w := new(big.Int).Sub(big.NewInt(e), big.NewInt(s))
	scaled := new(big.Int).Sub(big.NewInt(n), big.NewInt(b.Burst))
	scaled.Sub(scaled, big.NewInt(b.Overcommit))
	scaled.Mul(scaled, per)
	scaled.Sub(scaled, w.Mul(w, big.NewInt(b.Tokens)))
	// ceil(x/per) = floor((x+per-1)/per), and Div rounds towards minus infinity for a positive divisor.
	scaled.Add(scaled, per).Sub(scaled, big.NewInt(1))
	return scaled.Div(scaled, per)
}

// verify checks a verdict against the definition, and that its window is one that bears the verdict out.
func verify(spans []Span, b Bound, got Window) error {
	want := bruteExcess(spans, b)
	if want.Cmp(big.NewInt(got.ExceededBy)) != 0 {
		return fmt.Errorf("bound %+v\nspans %+v\nverdict %+v\nbrute force says exceeded by %v", b, spans, got, want)
	}
	held := count(spans, got.From, got.To)
	if held != got.Admitted {
		return fmt.Errorf("bound %+v\nspans %+v\nverdict %+v\nbut that window holds %v", b, spans, got, held)
	}
	if over := excess(got.From, got.To, held, b); got.ExceededBy > 0 && over.Cmp(want) != 0 {
		return fmt.Errorf("bound %+v\nspans %+v\nverdict %+v\nbut that window exceeds by %v", b, spans, got, over)
	}
	return nil
}

// A world is a way of drawing cases: crowded times make ties and excesses likely, huge ones reach
// the edges of the integers.
type world struct {
	name         string
	spans        int
	times, width int64
	n            int64
	tokens, per  int64
	burst        int64
}

var worlds = []world{
	{"crowded", 8, 6, 3, 3, 3, 4, 4},
	{"sparse", 14, 60, 10, 5, 7, 12, 9},
	{"two blocks", 40, 30, 6, 4, 9, 5, 12},
	{"coprime per second", 12, 1e9, 1e6, 9, 1_000_003, 1e9, 20},
	{"slow", 12, 1e12, 1e9, 3, 5, int64(time.Hour), 6},
	{"no rate", 8, 6, 3, 3, 0, 4, 12},
	{"huge numbers", 6, math.MaxInt64, math.MaxInt64, math.MaxInt64 / 6, math.MaxInt64, math.MaxInt64,
		math.MaxInt64 / 2},
	{"huge rate", 6, 9, 3, math.MaxInt64 / 6, math.MaxInt64, 3, math.MaxInt64 / 2},
	{"huge times", 6, math.MaxInt64, 9, 5, 3, math.MaxInt64, 6},
}

// upTo draws from 0 to most inclusive, most being MaxInt64 in the largest worlds.
func upTo(rng *rand.Rand, most int64) int64 { return int64(rng.Uint64N(uint64(most) + 1)) }

func (w world) draw(rng *rand.Rand) ([]Span, Bound) {
	b := Bound{
		Tokens:     upTo(rng, w.tokens),
		Per:        time.Duration(1 + rng.Int64N(w.per)),
		Burst:      upTo(rng, w.burst),
		Overcommit: upTo(rng, w.burst/2),
	}
	// An origin below zero: times need not be positive, only the distance must fit.
	origin := -upTo(rng, w.times/2)
	spans := make([]Span, rng.IntN(w.spans+1))
	for i := range spans {
		offset := rng.Int64N(w.times)
		width := rng.Int64N(min(w.width, w.times-offset))
		spans[i] = Span{origin + offset, origin + offset + width, upTo(rng, w.n)}
	}
	return spans, b
}

// instants draws a case whose moments are exact and in order, as a Meter needs them.
func (w world) instants(rng *rand.Rand) ([]Span, Bound) {
	spans, b := w.draw(rng)
	for i := range spans {
		spans[i].After = spans[i].Before
	}
	sortByBefore(spans)
	return spans, b
}

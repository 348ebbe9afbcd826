package audit

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

func TestMeterAgreesWithTheDefinitionAndWithWorst(t *testing.T) {
	rng := testkit.Rand(t)
	rounds := testkit.ShortOrLong(t, 100, 700, "rounds for each kind of limit")
	for _, w := range worlds {
		for range rounds {
			spans, b := w.instants(rng)
			m := NewMeter(b)
			for i, s := range spans {
				m.Admit(s.Before, s.N)
				// The verdict is about all windows so far, so it is compared after every admission.
				online, offline := m.ExceededBy(), worst(t, b, spans[:i+1]...).ExceededBy
				if online != offline {
					t.Fatalf("%s: the meter says exceeded by %d, Worst %d\nbound %+v\nspans %+v", w.name, online, offline,
						b, spans[:i+1])
				}
			}
			if want := bruteExcess(spans, b); want.Cmp(big.NewInt(m.ExceededBy())) != 0 {
				t.Fatalf("%s: the meter says exceeded by %d, brute force %v\nbound %+v\nspans %+v", w.name,
					m.ExceededBy(), want, b, spans)
			}
		}
	}
}

// TestMeterCountsRefundsAndCharges: what is admitted and charged in a window, less what is refunded in
// it, is within the bound and what is still owed at its end. Owed are charges, less refunds and inflow
// since.
func TestMeterCountsRefundsAndCharges(t *testing.T) {
	rng := testkit.Rand(t)
	type event struct{ at, admitted, charged, refunded int64 }
	for range 3000 {
		// Given admissions, refunds and charges in order,
		spans, b := worlds[1].instants(rng)
		m := NewMeter(b)
		var all []event
		worst := new(big.Rat)
		for _, s := range spans {
			e := event{at: s.Before}
			switch rng.IntN(4) {
			case 0:
				e.charged = s.N
				m.Charge(e.at, s.N)
			case 1:
				e.refunded = s.N
				m.Refund(e.at, s.N)
			default:
				e.admitted = s.N
				m.Admit(e.at, s.N)
			}
			all = append(all, e)
			if e.admitted == 0 {
				continue
			}
			// when all windows that end with an admission are looked at,
			used, owed := new(big.Rat), new(big.Rat)
			net, debt := int64(0), int64(0)
			for i := len(all) - 1; i >= 0; i-- {
				net += all[i].admitted + all[i].charged - all[i].refunded
				debt += all[i].charged - all[i].refunded
				flow := new(big.Rat).Mul(big.NewRat(b.Tokens, int64(b.Per)), big.NewRat(e.at-all[i].at, 1))
				for most, n := range map[*big.Rat]int64{used: net, owed: debt} {
					if x := new(big.Rat).Sub(big.NewRat(n, 1), flow); x.Cmp(most) > 0 {
						most.Set(x)
					}
				}
			}
			over := used.Sub(used, owed)
			if over.Sub(over, big.NewRat(b.ceiling(), 1)); over.Cmp(worst) > 0 {
				worst = over
			}
			// then the meter knows the worst of them.
			want := new(big.Int).Add(worst.Num(), new(big.Int).Sub(worst.Denom(), big.NewInt(1)))
			want.Div(want, worst.Denom())
			if want.Cmp(big.NewInt(m.ExceededBy())) != 0 {
				t.Fatalf("exceeded by %d, brute force says %v\nbound %+v\n%+v", m.ExceededBy(), want, b, all)
			}
		}
	}
}

func TestMeterPeakIsTheCeilingThatWouldHaveSufficed(t *testing.T) {
	rng := testkit.Rand(t)
	for range 2000 {
		spans, b := worlds[1].instants(rng)
		peakOf := func(ceiling int64) (peak, over int64) {
			m := NewMeter(Bound{Tokens: b.Tokens, Per: b.Per, Burst: ceiling})
			for _, s := range spans {
				m.Admit(s.Before, s.N)
			}
			return m.peakTokens(), m.ExceededBy()
		}
		peak, _ := peakOf(0)

		if _, over := peakOf(peak); over != 0 {
			t.Fatalf("a ceiling at the peak %d is exceeded by %d: %+v %+v", peak, over, b, spans)
		}
		if peak == 0 {
			continue
		}
		if _, over := peakOf(peak - 1); over != 1 {
			t.Fatalf("a ceiling one below the peak %d is exceeded by %d: %+v %+v", peak, over, b, spans)
		}
	}
}

func TestMeterStandsTheLargestNumbers(t *testing.T) {
	const most = math.MaxInt64
	// Given the slowest rate there is, and admissions that overflow any 64-bit product
	m := NewMeter(Bound{Tokens: 1, Per: time.Duration(most), Burst: most})

	m.Admit(math.MinInt64, most)
	testkit.Check(t, m.peakTokens() == most && m.ExceededBy() == 0,
		"exactly the burst: peak %d, exceeded by %d", m.peakTokens(), m.ExceededBy())
	// When more time passes than an int64 holds, then 2 tokens and a fraction have flowed in.
	m.Admit(most, 2)
	testkit.Check(t, m.ExceededBy() == 0,
		"refilled across the whole range of time: exceeded by %d", m.ExceededBy())
	// And when the count passes every integer, then the verdict stays at its clamp.
	for range 8 {
		m.Admit(most, most)
	}
	testkit.Check(t, m.peakTokens() == most, "far beyond: peak %d, want the clamp", m.peakTokens())
}

func TestMisuseIsRefused(t *testing.T) {
	closes := func(of func(b *backlog, d draw)) func() {
		return func() {
			var b backlog
			of(&b, b.Open(1, 1, 3))
		}
	}
	for _, c := range []struct {
		given string
		do    func()
		says  string
	}{
		{"the zero Meter", func() { new(Meter).Admit(1, 1) }, "NewMeter"},
		{"an invalid bound", func() { NewMeter(Bound{Per: -1}) }, "Per is -1ns"},
		{"a negative n", func() { NewMeter(tenPerSecond).Admit(1, -1) }, "Admit(1, -1)"},
		{"a negative refund", func() { NewMeter(tenPerSecond).Refund(1, -1) }, "(1, -1)"},
		{"a negative charge", func() { NewMeter(tenPerSecond).Charge(1, -1) }, "(1, -1)"},
		{"time that runs back", func() {
			m := NewMeter(tenPerSecond)
			m.Admit(5, 1)
			m.Admit(4, 1)
		}, "Admit(4, 1) after Admit(5"},
		{"more than was drawn", closes(func(b *backlog, d draw) { b.Close(d, 4, true) }), "not open"},
		{"less than nothing", closes(func(b *backlog, d draw) { b.Close(d, -1, true) }), "not open"},
		{"a draw that has passed", closes(func(b *backlog,
			d draw) {
			b.Close(d, 3, true)
			b.Next()
			b.Close(d, 0, true)
		}), "not open"},
		{"a draw that never was", closes(func(b *backlog, d draw) { b.Close(d+1, 1, true) }), "not open"},
		{"the draw that is no one", closes(func(b *backlog, d draw) { b.Close(0, 1, true) }), "not open"},
	} {
		t.Run(c.given, func(t *testing.T) {
			defer func() {
				if said := fmt.Sprint(recover()); !strings.Contains(said, c.says) {
					t.Errorf("panic %q, want one that says %q", said, c.says)
				}
			}()
			c.do()
		})
	}
}

func TestMeterAllocatesNothing(t *testing.T) {
	m := NewMeter(tenPerSecond)
	at := int64(0)
	n := testing.AllocsPerRun(100, func() { at += ms; m.Admit(at, 1) })
	testkit.Check(t, n == 0, "Admit allocates %v times", n)
}

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

		w := number()
		flow := new(big.Int).Mul(tokens, of(w))
		flow.Div(flow, per)
		if flow.IsInt64() && flow.Int64() != r.wholeTokens(w) || !flow.IsInt64() &&
			r.wholeTokens(w) != math.MaxInt64 {
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

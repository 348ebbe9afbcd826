package audit

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
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

type event struct{ at, admitted, charged, refunded int64 }

// naiveExcess scans every window that ends with the last of all, from each beginning that there is: what
// is used in it and what is owed, less what has flowed in since that beginning.
func naiveExcess(b Bound, all []event) int64 {
	var used, owed, net, debt int64 // in 1/Per tokens
	per, last := int64(b.Per), all[len(all)-1].at
	for i := len(all) - 1; i >= 0 && b.together(all[i].at, last); i-- {
		net += (all[i].admitted - all[i].refunded) * per
		if !b.windowed() { // a window does not count what is owed
			net += all[i].charged * per
			debt += (all[i].charged - all[i].refunded) * per
		}
		flow := int64(b.rate().tokens) * (last - all[i].at)
		used, owed = max(used, net-flow), max(owed, debt-flow)
	}
	return (max(0, used-owed-b.ceiling()*per) + per - 1) / per
}

// TestMeterCountsRefundsAndCharges: what is admitted and charged in a window, less what is refunded in
// it, is within the bound and what is still owed at its end.
func TestMeterCountsRefundsAndCharges(t *testing.T) {
	rng := testkit.Rand(t)
	exceeded, held := 0, 0
	for round := range 6000 {
		// Given a token bucket, a window or a calendar, and events in order of time, from before time 0 on,
		_, b := worlds[1].draw(rng)
		if round%2 == 0 {
			b = windowBound(rng)
		}
		m, at, worst, plain := NewMeter(b), rng.Int64N(200)-100, int64(0), rng.IntN(2) == 0
		var all []event
		for range 60 {
			at += rng.Int64N(1+int64(b.Per)) / (1 + rng.Int64N(8))
			e, n := event{at: at}, 1+rng.Int64N(4)
			switch kind := rng.IntN(8); {
			case kind == 0 && !plain:
				e.charged = n
				m.Net(at, 0, n, 0)
			case kind <= 2 && !plain:
				e.refunded = n
				m.Net(at, 0, 0, n)
			default:
				e.admitted = n
				m.Admit(at, n)
			}
			// when every window is scanned that ends with one of them,
			all = append(all, e)
			if e.charged == 0 {
				worst = max(worst, naiveExcess(b, all))
			}
			// then the meter knows the worst.
			testkit.Must(t, m.ExceededBy() == worst, "the meter says exceeded by %d, the scan %d\nbound %+v\n%+v",
				m.ExceededBy(), worst, b, all)
		}
		if worst > 0 {
			exceeded++
		} else {
			held++
		}
	}
	testkit.Check(t, exceeded > 500 && held > 500, "%d exceeded, %d held: the draw is lopsided", exceeded, held)
}

// TestARefundBesideAnEarlierCharge is a new permit: the bucket charged the period before, in which the tokens
// were used.
func TestARefundBesideAnEarlierCharge(t *testing.T) {
	// Given a calendar of one token a second, whose token is admitted,
	m := NewMeter(Bound{Kind: lease.KindCalendar, Tokens: 1, Per: time.Second, Burst: 1})
	m.Net(10, 1, 0, 0)
	// when tokens of an earlier second are reported, and the one is refunded and admitted again,
	m.Net(20, 0, 45, 0)
	m.Net(30, 0, 0, 1)
	m.Net(40, 1, 0, 0)
	// then the bound holds, and one more exceeds it.
	testkit.Check(t, m.ExceededBy() == 0, "exceeded by %d", m.ExceededBy())
	m.Net(50, 1, 0, 0)
	testkit.Check(t, m.ExceededBy() == 1, "exceeded by %d", m.ExceededBy())
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
			of(&b, b.open(1, 3))
		}
	}
	for _, c := range []struct {
		given string
		do    func()
		says  string
	}{
		{"the zero Meter", func() { new(Meter).Admit(1, 1) }, "NewMeter"},
		{"an invalid bound", func() { NewMeter(Bound{Per: -1}) }, "Per:-1ns"},
		{"a negative n", func() { NewMeter(tenPerSecond).Admit(1, -1) }, "Admit(1, -1)"},
		{"a negative refund", func() { NewMeter(tenPerSecond).Net(1, 0, 0, -1) }, "(1, -1)"},
		{"a negative charge", func() { NewMeter(tenPerSecond).Net(1, 0, -1, 0) }, "(1, -1)"},
		{"time that runs back", func() {
			m := NewMeter(tenPerSecond)
			m.Admit(5, 1)
			m.Admit(4, 1)
		}, "Admit(4, 1) after Admit(5"},
		{"more than was drawn", closes(func(b *backlog, d draw) { b.close(d, 4, true) }), "not open"},
		{"less than nothing", closes(func(b *backlog, d draw) { b.close(d, -1, true) }), "not open"},
		{"a draw that has passed", closes(func(b *backlog, d draw) {
			b.close(d, 3, true)
			b.next()
			b.close(d, 0, true)
		}), "not open"},
		{"a draw that never was", closes(func(b *backlog, d draw) { b.close(d+1, 1, true) }), "not open"},
		{"the draw that is no one", closes(func(b *backlog, d draw) { b.close(0, 1, true) }), "not open"},
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
	for range 200_000 {
		b := Bound{Tokens: int64(number()), Per: time.Duration(max(number(), 1))}
		r := b.rate()
		tokens, per := big.NewInt(b.Tokens), big.NewInt(int64(b.Per))

		w := number()
		flow, got := new(big.Int).Mul(tokens, new(big.Int).SetUint64(w)), r.wholeTokens(exact.Product(r.tokens, w))
		flow.Div(flow, per)
		testkit.Must(t, flow.IsInt64() && flow.Int64() == got || !flow.IsInt64() && got == math.MaxInt64,
			"%+v: in %d ns flow %v, got %d", b, w, flow, got)
		x, y := signed(), signed()
		gain := new(big.Int).Mul(big.NewInt(x), per)
		cost := new(big.Int).Mul(big.NewInt(y), tokens)
		want := gain.Cmp(cost) >= 0
		testkit.Must(t, r.covers(x, y) == want, "%+v: %d tokens cover %d ns: want %v", b, x, y, want)
	}
}

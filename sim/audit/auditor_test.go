package audit

import (
	"math/big"
	"slices"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// TestTheAuditFollowsDrawsToTheirEnd: a token counts at the moment at which it was drawn for a
// request that waited, if that was admitted, and not at all otherwise.
func TestTheAuditFollowsDrawsToTheirEnd(t *testing.T) {
	// Given an auditor of 10 tokens a second and a burst of 5,
	const second = 1000 * ms
	a := NewAuditor([]Bound{tenPerSecond}, 1)
	expect := func(when string, admitted, exceeded int64) {
		t.Helper()
		if a.Admitted() != admitted || a.ExceededBy() != exceeded {
			t.Errorf("%s: %d admitted, exceeded by %d, want %d and %d", when, a.Admitted(), a.ExceededBy(),
				admitted, exceeded)
		}
	}
	// when five tokens are drawn for two requests, and five are taken from a pool at once,
	d := a.Open(second, 0, 5)
	a.Admit(second, 0, 5)
	expect("with an open draw", 0, 0)
	// then nothing is exceeded if the first request gives up,
	a.Close(0, false, d.Part(4))
	a.Admit(second+second/10, 0, 1)
	expect("with one token open", 0, 0)
	// and a late admission of the other counts at the moment of the draw.
	a.Close(0, true, d.Part(1))
	expect("when all is known", 7, 1)
	// Open tokens count at the end.
	a.Open(2*second, 0, 6)
	open := a.End()
	testkit.Check(t, open == 6, "%d are open", open)
	expect("at the end", 13, 1)
}

// TestTheAuditKeepsRefundsAndChargesInOrder: what is refunded or charged while a draw is open waits
// behind it, as admissions do.
func TestTheAuditKeepsRefundsAndChargesInOrder(t *testing.T) {
	const second = 1000 * ms
	for _, open := range []bool{false, true} {
		// Given an auditor of 10 tokens a second and a burst of 5, and perhaps a draw that is open,
		a := NewAuditor([]Bound{tenPerSecond}, 1)
		var d Drawn
		if open {
			d = a.Open(0, 0, 1)
		}
		// when the burst is admitted, 3 come back and go out again, and 4 more were used than reserved,
		a.Admit(second, 0, 5)
		a.Refund(second+ms, 0, 3)
		a.Admit(second+2*ms, 0, 3)
		a.Charge(second+3*ms, 0, 4)
		// and one is admitted when the 4 have been paid and one more has flowed in,
		a.Admit(second+500*ms, 0, 1)
		a.Close(0, false, d)
		testkit.Check(t, a.ExceededBy() == 0, "open %v: exceeded by %d", open, a.ExceededBy())
		// then that is all right; one more is not.
		a.Admit(second+500*ms, 0, 1)
		testkit.Check(t, a.ExceededBy() == 1, "open %v: one more exceeds by %d", open, a.ExceededBy())
	}
}

func TestBacklogJudgesDrawsByTheirFate(t *testing.T) {
	rng := testkit.Rand(t)
	for range testkit.ShortOrLong(t, 300, 2000, "rounds") {
		// Given admissions, some of which are draws that wait for their fate,
		spans, bound := worlds[1].instants(rng)
		type waiting struct {
			draw draw
			span int
			n    int64
		}
		var (
			b       backlog
			m       = NewMeter(bound)
			open    []waiting
			counted = slices.Clone(spans)
		)
		pass := func() {
			for passed, ok := b.next(); ok; passed, ok = b.next() {
				m.Admit(passed.at, passed.admitted)
			}
		}
		// when parts of them turn out, in any order and at any time, to have been admitted or not,
		settle := func() {
			i := rng.IntN(len(open))
			w := &open[i]
			n, admitted := rng.Int64N(w.n+1), rng.IntN(2) == 0
			b.close(w.draw, n, admitted)
			if w.n -= n; !admitted {
				counted[w.span].N -= n
			}
			if w.n == 0 {
				open = slices.Delete(open, i, i+1)
			}
			pass()
		}
		for i, s := range spans {
			if rng.IntN(2) == 0 {
				b.last(s.Before).admitted += s.N
			} else if s.N > 0 {
				open = append(open, waiting{b.open(s.Before, s.N), i, s.N})
			}
			pass()
			for len(open) > 0 && rng.IntN(3) > 0 {
				settle()
			}
		}
		// and what is left is taken for admitted,
		want := int64(0)
		for _, w := range open {
			want += w.n
		}
		got := b.admitOpen()
		testkit.Must(t, got == want, "%d were open, want %d", got, want)
		pass()
		// then the meter has seen what was admitted, at the moment of each draw.
		if want := bruteExcess(counted, bound); want.Cmp(big.NewInt(m.ExceededBy())) != 0 {
			t.Fatalf("exceeded by %d, brute force says %v\nbound %+v\nspans %+v", m.ExceededBy(), want, bound, counted)
		}
		testkit.Must(t, b.empty(), "something is left in line")
	}
}

func TestBacklogReusesItsMemory(t *testing.T) {
	var b backlog
	at := int64(0)
	cycle := func() { // one draw is always open
		d := b.open(at, 2)
		for range 10 {
			at++
			b.last(at).admitted++
		}
		next := b.open(at, 1)
		b.close(d, 2, false)
		for _, ok := b.next(); ok; _, ok = b.next() {
		}
		b.close(next, 1, true)
	}
	for range 100 {
		cycle()
	}
	n := testing.AllocsPerRun(1000, cycle)
	testkit.Check(t, n == 0, "a draw and ten admissions allocate %v times", n)
}

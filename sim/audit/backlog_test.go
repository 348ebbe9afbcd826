package audit

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

func TestBacklogJudgesDrawsByTheirFate(t *testing.T) {
	rng := testkit.Rand(t)
	rounds := 2000
	if testing.Short() {
		rounds = 300
	}
	for range rounds {
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
			for at, n, ok := b.Next(); ok; at, n, ok = b.Next() {
				m.Admit(at, n)
			}
		}
		// when parts of them turn out, in any order and at any time, to have been admitted or not,
		settle := func() {
			i := rng.IntN(len(open))
			w := &open[i]
			n, admitted := rng.Int64N(w.n+1), rng.IntN(2) == 0
			b.Close(w.draw, n, admitted)
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
				b.Admit(s.Before, s.N)
			} else if s.N > 0 {
				open = append(open, waiting{b.Open(s.Before, s.N), i, s.N})
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
		if got := b.AdmitOpen(); got != want {
			t.Fatalf("%d were open, want %d", got, want)
		}
		pass()
		// then the meter has seen what was admitted, at the moment of each draw.
		if err := verify(counted, bound, m.Worst()); err != nil {
			t.Fatal(err)
		}
		if !b.Empty() {
			t.Fatal("something is left in line")
		}
	}
}

func TestBacklogRefusesMisuse(t *testing.T) {
	for given, do := range map[string]func(*backlog, draw){
		"more than was drawn":     func(b *backlog, d draw) { b.Close(d, 4, true) },
		"less than nothing":       func(b *backlog, d draw) { b.Close(d, -1, true) },
		"a draw that has passed":  func(b *backlog, d draw) { b.Close(d, 3, true); b.Next(); b.Close(d, 0, true) },
		"a draw that never was":   func(b *backlog, d draw) { b.Close(d+1, 1, true) },
		"the draw that is no one": func(b *backlog, d draw) { b.Close(0, 1, true) },
	} {
		t.Run(given, func(t *testing.T) {
			defer func() {
				if said := fmt.Sprint(recover()); !strings.Contains(said, "not open") {
					t.Errorf("panic %q", said)
				}
			}()
			var b backlog
			do(&b, b.Open(1, 3))
		})
	}
}

func TestBacklogReusesItsMemory(t *testing.T) {
	var b backlog
	at := int64(0)
	cycle := func() { // one draw is always open
		d := b.Open(at, 2)
		for range 10 {
			at++
			b.Admit(at, 1)
		}
		next := b.Open(at, 1)
		b.Close(d, 2, false)
		for _, _, ok := b.Next(); ok; _, _, ok = b.Next() {
		}
		b.Close(next, 1, true)
	}
	for range 100 {
		cycle()
	}
	if n := testing.AllocsPerRun(1000, cycle); n != 0 {
		t.Errorf("a draw and ten admissions allocate %v times", n)
	}
}

package report

import (
	"slices"
	"testing"
)

// verdict is one request and what was decided about it.
type verdict struct {
	key         int32
	n           int64
	central, ok bool
}

func TestFalseRejectsAndSwapsOfKnownDecisions(t *testing.T) {
	const yes, no = true, false
	for _, c := range []struct {
		what                        string
		verdicts                    []verdict
		admitted, rejected, swapped int64
	}{
		{"as one central bucket", []verdict{{0, 1, yes, yes}, {0, 5, no, no}}, 1, 0, 0},
		{"denied without need", []verdict{{0, 3, yes, no}}, 0, 3, 0},
		{"another was admitted in its place before", []verdict{{0, 3, no, yes}, {0, 2, yes, no}}, 3, 0, 2},
		{"a part of it in its place", []verdict{{0, 3, no, yes}, {0, 5, yes, no}}, 3, 2, 3},
		{"one place is taken once", []verdict{{0, 3, no, yes}, {0, 3, yes, no}, {0, 1, yes, no}}, 3, 1, 3},
		{"what comes later is no place", []verdict{{0, 3, yes, no}, {0, 3, no, yes}}, 3, 3, 0},
		{"nor is another key's", []verdict{{1, 3, no, yes}, {0, 3, yes, no}}, 3, 3, 0},
		{"of each key", []verdict{{1, 3, no, yes}, {0, 2, no, yes}, {1, 4, yes, no}, {0, 2, yes, no}}, 5, 1, 5},
	} {
		// Given requests that are decided in this order,
		got := NewTally(1, 2)
		for _, v := range c.verdicts {
			got.Decided(0, v.key, v.n, v.central, v.ok)
		}
		// then the tokens are counted as it says.
		if got.Admitted != c.admitted || got.FalseRejects != c.rejected || got.Swapped != c.swapped {
			t.Errorf("%s: %d admitted, %d rejected falsely, %d swapped, want %d, %d and %d", c.what, got.Admitted,
				got.FalseRejects, got.Swapped, c.admitted, c.rejected, c.swapped)
		}
		// And after the warm-up nothing of it counts.
		got.Reset()
		got.Decided(0, 0, 1, true, false)
		if got.Admitted != 0 || got.FalseRejects != 1 || got.Swapped != 0 || !slices.Equal(got.ByProcess, []int64{0}) {
			t.Errorf("%s: after the warm-up there are %+v", c.what, got)
		}
	}
}

package audit

import "testing"

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
	// What is open at the end counts.
	a.Open(2*second, 0, 6)
	if open := a.End(); open != 6 {
		t.Errorf("%d are open", open)
	}
	expect("at the end", 13, 1)
}

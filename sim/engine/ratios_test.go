package engine

import (
	"testing"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

func TestRatiosAreOfWhatTheCentralBucketAdmits(t *testing.T) {
	w := newRun(t, scenario.Scenario{Limits: []lease.Limit{lease.PerSecond(1)}})
	if got := figure(w, "false_reject_ratio") + figure(w, "swapped_ratio"); got != 0 {
		t.Errorf("of nothing %v is rejected", got)
	}
	w.books.centralAdmitted, w.books.tally.FalseRejects, w.books.tally.Swapped, w.books.tally.Admitted = 200, 3, 5, 198
	if a, b, c := figure(w, "false_reject_ratio"), figure(w, "swapped_ratio"), figure(w, "admitted_vs_central"); a != 0.015 || b != 0.025 || c != 0.99 {
		t.Errorf("the ratios are %v, %v and %v, want 0.015, 0.025 and 0.99", a, b, c)
	}
}

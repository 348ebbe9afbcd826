package report

import (
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

func TestAFleetThatRejectsMoreThanItCanHoldHasNotSettled(t *testing.T) {
	for _, c := range []struct {
		stockable                   int64
		admitted, rejected, atStart float64
		settled                     bool
	}{
		{70_000, 0.99, 0.01, 61_650, true}, // what its start rejected beyond what goes on
		{61_650, 0.99, 0.01, 61_650, true}, // exactly what it can hold
		{61_649, (200_000. + 792_000) / 1_065_000, (64_300. + 8_000) / 1_065_000, 0, false},
	} {
		// given a fleet that rejects a quarter at its start, and later a hundredth
		a := Accuracy{}
		a.Turn(Settled, Decided{Central: 265_000, Admitted: 200_000, FalseRejects: 64_300})
		a.Turn(Settled, Decided{Central: 265_000 + 800_000, Admitted: 200_000 + 792_000,
			FalseRejects: 64_300 + 8_000})
		// when its buckets and leases can hold so much
		admitted, rejected, atStart, _, settled := a.Ratios(0, c.stockable)
		// then the start counts once, or as if it went on.
		testkit.Check(t, admitted == c.admitted && rejected == c.rejected && atStart == c.atStart &&
			settled == c.settled,
			"%d: %v, %v, %v, %v, want %+v", c.stockable, admitted, rejected, atStart, settled, c)
	}
}

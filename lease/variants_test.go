package lease

import (
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// mutation is one rule of the protocol switched off. Every one must be caught.
type mutation struct {
	name    string
	bucket  variant
	holding holdingVariant
}

var mutations = []mutation{
	{"returned credited without a known record", variantCreditUnknown, 0},
	{"absence taken for nothing held", variantAbsentMeansEmpty, 0},
	{"deadline counted from a retry", 0, variantDeadlineFromRetry},
	{"expiry moved earlier when T shrinks", variantShrinkMovesExpiry, 0},
	{"a reply to the previous seq accepted", 0, variantAcceptPrevious},
	{"refill after forgetting", variantRefillAfterForget, 0},
	{"refill after the report", variantRefillAfterReport, 0},
	{"refund into the local pool after a report", 0, variantRefundIntoPool},
	{"no clip", variantNoClip, 0},
	{"a retry draws again", variantNoSeqCheck, 0},
	{"void taken as known", variantVoidAsKnown, 0},
	{"what was not used is credited in full", variantUnusedAtFaceValue, 0},
	{"a refund leaves draws what they were worth", variantRefundLeavesDraws, 0},
	{"a void call's record counts at once", variantVoidRecordCounts, 0},
	{"limits inherited by position", variantLimitsByPosition, 0},
	{"a new limit starts full after a loss", variantNewLimitFullAfterLoss, 0},
	{"T grows at once", variantTTLJumps, 0},
	{"a loss forgets its age", variantLossForgetsAge, 0},
	{"an expiry moves earlier", variantExpiryShrinks, 0},
}

// TestRandomSchedulesCatchMutations measures how sharp the random schedules are: the number of seeds that pass
// before one shows the missing rule.
func TestRandomSchedulesCatchMutations(t *testing.T) {
	if testkit.RaceEnabled {
		t.Skip("one goroutine, and ten times slower under the race detector")
	}
	for _, m := range mutations {
		t.Run(m.name, func(t *testing.T) {
			for seed := uint64(1); seed <= 20_000; seed++ {
				if err := playVariant(seed, m.bucket, m.holding, nil); err != nil {
					t.Logf("caught by seed %d: %v", seed, err)
					return
				}
			}
			t.Error("20000 random schedules did not notice")
		})
	}
}

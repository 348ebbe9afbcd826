package lease

import (
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// brokenModels are small instances, each with one rule switched off and just the events that show why the rule is there.
// Two rules need longer stories than a small instance reaches: scenario_variants_test.go tells them.
var brokenModels = []model{
	{name: "returned credited without a known record", bucket: variantCreditUnknown,
		holders: 1, limit: perMicro(1, 70, 1), ttl: 7, want: 1, inflight: 2, waiting: true, back: true, giveUp: true, evict: true, twice: true, lossless: true},
	{name: "absence taken for nothing held", bucket: variantAbsentMeansEmpty,
		holders: 1, limit: perMicro(1, 70, 1), ttl: 7, want: 1, inflight: 2, waiting: true, back: true, giveUp: true, evict: true, twice: true, lossless: true},
	{name: "deadline counted from a retry", holding: variantDeadlineFromRetry,
		holders: 2, limit: perMicro(1, 1, 1), ttl: 7, tick: 3, want: 1, inflight: 2, waiting: true, retry: true, lossless: true},
	{name: "expiry moved earlier when T shrinks", bucket: variantShrinkMovesExpiry,
		holders: 2, limit: perMicro(1, 1, 1), ttl: 7, ttl2: 14, tick: 9, want: 1, inflight: 1, waiting: true, lossless: true},
	{name: "a reply to the previous seq accepted", holding: variantAcceptPrevious,
		holders: 1, limit: perMicro(1, 1, 1), ttl: 7, tick: 4, want: 1, inflight: 2, waiting: true, giveUp: true, lossless: true},
	{name: "refill after forgetting", bucket: variantRefillAfterForget,
		holders: 1, limit: perMicro(1, 7, 1), ttl: 7, tick: 2, want: 1, inflight: 1, waiting: true},
	{name: "refill after the report", bucket: variantRefillAfterReport,
		holders: 1, limit: perMicro(1, 1, 2), ttl: 7, want: 2, inflight: 1},
	{name: "refund into the local pool after a report", holding: variantRefundIntoPool,
		holders: 1, limit: perMicro(1, 2, 1), ttl: 7, want: 1, inflight: 1, refund: true},
	{name: "what was not used is credited in full", bucket: variantUnusedAtFaceValue,
		holders: 2, limit: perMicro(1, 2, 1), ttl: 7, tick: 2, want: 1, inflight: 1, waiting: true, gone: true, lossless: true},
	{name: "a void call's record counts at once", bucket: variantVoidRecordCounts,
		holders: 1, limit: perMicro(1, 58, 2), ttl: 7, tick: 9, want: 1, inflight: 3, waiting: true, refund: true, twice: true, lossless: true},
	{name: "limits inherited by position", bucket: variantLimitsByPosition,
		holders: 1, limit: perMicro(1, 58, 1), ttl: 7, want: 1, inflight: 1, waiting: true, lossless: true,
		alternative: []Limit{perMicro(1, 1, 1), perMicro(1, 58, 1)}},
	{name: "a loss forgets how long ago the lease was heard of", bucket: variantTTLJumps,
		holders: 2, limit: perMicro(1, 1, 1), ttl: 7, ttl2: 42, tick: 8, want: 1, inflight: 1, waiting: true, lossless: true, flush: true, once: true,
		// One holder has heard of the bucket, while T was short.
		before: []event{{eventOpen, 0, askWaiting}, {eventDeliver, 0, 0}, {eventDeliver, 0, 0}, {kind: eventTick}, {kind: eventSetTTL}}},
	{name: "an expiry moves earlier", bucket: variantExpiryShrinks,
		holders: 2, limit: perMicro(1, 58, 1), ttl: 7, tick: 7, want: 1, inflight: 1, waiting: true, lossless: true,
		alternative: []Limit{perMicro(1, 1, 1)}, versions: true},
	{name: "a retry draws again", bucket: variantNoSeqCheck,
		holders: 1, limit: perMicro(1, 3, 2), ttl: 7, tick: 3, want: 1, inflight: 2, waiting: true, twice: true, lossless: true},
}

// TestModelCatchesEveryMissingRule: every rule of docs/protocol.md section 11 is needed, and the checker sees it.
func TestModelCatchesEveryMissingRule(t *testing.T) {
	if testkit.RaceEnabled {
		t.Skip("one goroutine, and ten times slower under the race detector")
	}
	for _, m := range brokenModels {
		t.Run(m.name, func(t *testing.T) {
			r := m.explore(1_500_000)
			t.Logf("%s: %s\n%s", r.summary(), r.violation, r.trace)
			if r.violation == "" {
				t.Error("not caught")
			}
		})
		t.Run(m.name+", as designed", func(t *testing.T) {
			m.bucket, m.holding = asDesigned, holdingAsDesigned
			if r := m.explore(5_000); r.violation != "" {
				t.Errorf("%s\n%s", r.violation, r.trace)
			}
		})
	}
}

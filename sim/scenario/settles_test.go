package scenario_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// TestTheTargetInForceIsWhatTheBucketTells: of a fleet of which each process has called once.
func TestTheTargetInForceIsWhatTheBucketTells(t *testing.T) {
	const ms = time.Millisecond
	for _, x := range []struct {
		processes     int
		burst         int64
		target        time.Duration
		overcommit    int64
		calls         int64
		ttl, wantedIn time.Duration
	}{
		{20, 1000, 100 * ms, 0, 0, 0, 100 * ms},          // as it is given
		{20, 1000, 0, 0, 0, 0, 125 * ms},                 // the default: an eighth of the burst
		{60, 10_000, 0, 0, 0, 0, 250 * ms},               // and of many with a large burst
		{20, 200, 200 * ms, 0, 0, 0, 50 * ms},            // a quarter of the burst
		{20, 200, 200 * ms, 200, 0, 0, 100 * ms},         // and of the overcommit
		{20, 1000, 5 * ms, 0, 200, 0, 100 * ms},          // 20 processes, 200 calls a second
		{20, 1000, 5 * ms, 0, 20, 0, 250 * ms},           // a quarter of the burst
		{20, 1000, 5 * ms, 0, 200, 120 * ms, 60 * ms},    // half of the TTL
		{20, 1000, 100 * ms, 0, 200, 400 * ms, 100 * ms}, // exactly what it wants
	} {
		s := scenario.Scenario{
			Limits: []lease.Limit{lease.PerSecond(1000).WithBurst(x.burst)},
			Groups: []scenario.Group{{Name: "web", Count: x.processes}},
			Policy: lease.Policy{Target: x.target, TTL: x.ttl, Overcommit: x.overcommit, CallsPerSecond: x.calls},
		}.Defaults()
		got := s.TargetInForce()
		testkit.Check(t, got == x.wantedIn, "%+v: %v is in force", x, got)

		// The bucket tells the last of them as much; a TTL that is set is the holder's own affair.
		bucket, grant := new(protocol.Bucket), lease.Grant{}
		for i := range x.processes {
			config := s.Policy.ConfigFor(s.Limits, 1, s.CallTimeout)
			r := lease.Request{Holder: fmt.Sprint(i), Seq: 1, Want: 1, Weight: 1, Config: config}
			testkit.NoErr(t, bucket.Call(1_700_000_000_000_000+int64(i), &r, &grant))
		}
		told := grant.Target
		if x.ttl > 0 {
			told = max(s.Policy.TargetFor(s.Limits), min(told, x.ttl/2))
		}
		testkit.Check(t, got == told, "%+v: %v is in force, and the bucket tells %v", x, got, told)
	}
}

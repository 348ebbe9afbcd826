package engine

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// askers runs a scene with a one-token request every millisecond for ten seconds. The rivals are
// central, central_client and local_batches, in this order.
func askers(t *testing.T, text string) []*contender {
	t.Helper()
	s := scene(t, "duration: 11s, rivals: [central, central_client, local_batches], %s", text)
	if s.Network.RoundTrip == (scenario.DurationDist{}) {
		s.Network.RoundTrip = scenario.Constantly(2 * time.Millisecond)
	}
	s.Workload = regularly(time.Millisecond, 10*time.Second)
	return simulate(t, s).books.rivals
}

// TestARivalThatAsksRedisPaysForItsFaults: it is denied each request that falls into a fault, and
// the other rivals none.
func TestARivalThatAsksRedisPaysForItsFaults(t *testing.T) {
	for _, c := range []struct {
		what      string
		low, high int64 // tokens that are denied
	}{
		{"", 0, 0},
		{"redis: {faults: [{kind: outage, at: 4s, for: 2s}]}", 2000, 2003},
		{"redis: {faults: [{kind: hang, at: 4s, for: 2s}]}", 2000, 2003},
		{"redis: {faults: [{kind: restart_empty, at: 4s, for: 2s}]}", 2000, 2003},
		{"redis: {faults: [{kind: failover, at: 4s, for: 2s, lost: 1s}]}", 2000, 2003},
		// the only key is in the first
		{"redis: {faults: [{kind: outage, at: 4s, for: 2s, shard: 2}], shards: 2}", 0, 0},
		{"redis: {faults: [{kind: outage, at: 4s, for: 2s, shard: 1}], shards: 2}", 2000, 2003},
		{"network: {partitions: [{at: 4s, for: 2s}]}", 2000, 2003},
		{"network: {partitions: [{at: 4s, for: 500us}]}", 3, 3}, // there, at Redis and back
		{"network: {loss: 10%}", 800, 1200},
		{"network: {lost_replies: 10%}", 800, 1200},
		{"network: {round_trip: 400ms}", 10000, 10000},
		// those under way
		{"groups: [{count: 1, scale: [{at: 4s, count: 0, kill: true}, {at: 6s, count: 1}]}]", 1, 3},
		{"network: {round_trip: 20ms}, groups: [{count: 1, " +
			"scale: [{at: 4s, count: 0, kill: true}, {at: 4001ms, count: 1}]}]", 9, 10},
	} {
		// Given a limit with room for all,
		rivals := askers(t, "limits: [100000/s]"+map[bool]string{true: ", "}[c.what != ""]+c.what)
		// then the rivals that ask Redis are denied the requests in the fault,
		for _, r := range rivals[:2] {
			testkit.Check(t, r.tally.FalseRejects >= c.low && r.tally.FalseRejects <= c.high,
				"%s: %d are denied, want %d to %d", c.what, r.tally.FalseRejects, c.low, c.high)
		}
		// and the other one admits as if there were no fault.
		testkit.Check(t, rivals[2].tally.FalseRejects == 0, "%s: what is spared denies %d", c.what,
			rivals[2].tally.FalseRejects)
	}
}

// TestForgottenTokensAreAdmittedTwice uses a limit with a burst of 3000 and next to no rate.
func TestForgottenTokensAreAdmittedTwice(t *testing.T) {
	for _, c := range []struct {
		what            string
		central, client int64 // tokens beyond the bound
	}{
		{"faults: [{kind: outage, at: 2s, for: 10ms}]", 0, 0},
		{"faults: [{kind: restart_empty, at: 4s, for: 10ms}]", 3000, 3000},
		{"faults: [{kind: failover, at: 4s, for: 10ms, lost: 500ms}]", 0, 0}, // the replica knows all
		// and here only the earlier requests
		{"faults: [{kind: failover, at: 2s, for: 10ms, lost: 500ms}]", 500, 500},
	} {
		rivals := askers(t, "limits: [1/1h burst 3000], redis: {"+c.what+"}")
		for i, want := range []int64{c.central, c.client} {
			got := rivals[i].audit.ExceededBy()
			testkit.Check(t, got >= want-3 && got <= want+3, "%s: %s exceeds its bound by %d, want %d", c.what,
				[]string{"central", "central_client"}[i], got, want)
		}
	}
}

func TestTheCallersTimeIsThatOfAsking(t *testing.T) {
	// Given that Redis decides half a second later, in the next period for half of all requests,
	s := scene(t, `duration: 3s, limits: [100 each 1s], call_timeout: 2s, network: {round_trip: 1s},
		rivals: [fixed_window, fixed_window_client]`)
	s.Workload = regularly(time.Millisecond, time.Second)
	rivals := simulate(t, s).books.rivals
	// then two periods count them by Redis's time, and one by the caller's.
	testkit.Check(t, rivals[0].tally.Admitted == 200 && rivals[1].tally.Admitted == 100,
		"%d and %d are admitted",
		rivals[0].tally.Admitted, rivals[1].tally.Admitted)
}

func TestARivalWaitsForTheNetworkAndInLine(t *testing.T) {
	for _, c := range []struct {
		what     string
		p50, p99 float64 // ms
		busy     float64 // part of a core
		admitted int64   // of 10,000
	}{
		{"network: {round_trip: 20ms}", 20.047, 20.047, 0.047, 10000},
		{"groups: [{round_trip: 20ms}]", 20.047, 20.047, 0.047, 10000},
		{"redis: {service_time: 2691us}", 2.9, 2.9, 0.9, 10000}, // of a lease call: three times as long
		// Requests come twice as fast as they are served: after 200 ms no answer is in time.
		{"redis: {service_time: 6ms}, call_timeout: 100ms", 52, 99, 1, 96},
	} {
		r := askers(t, "limits: [100000/s], "+c.what)[0]
		p50, p99 := r.remote.waits.Quantile(50), r.remote.waits.Quantile(99)
		near := func(got, want float64) bool { return got > 0.97*want && got < 1.03*want }
		testkit.Check(t, near(p50, c.p50) && near(p99, c.p99), "%s: waits %v and %v ms, want %v and %v", c.what,
			p50, p99, c.p50, c.p99)
		busy := float64(r.remote.cpu()) / float64(10*time.Second)
		testkit.Check(t, busy > 0.97*c.busy && busy < 1.11*c.busy, "%s: Redis is busy for %v, want %v", c.what,
			busy, c.busy)
		testkit.Check(t, near(float64(r.tally.Admitted), float64(c.admitted)), "%s: %d are admitted, want %d",
			c.what, r.tally.Admitted, c.admitted)
	}
}

func TestALineThatIsGoneCostsRedisNothing(t *testing.T) {
	// Given requests that come faster than Redis executes them, and an outage after 4 s,
	r := askers(t, "limits: [100000/s], redis: {service_time: 60ms, faults: [{kind: outage, at: 4s, for: 7s}]}")[0]
	busy := time.Duration(r.remote.cpu()).Seconds()
	testkit.Check(t, busy > 3.98 && busy <= 4, "Redis was busy for %v s, want 4", busy)
}

package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// executions holds the times at which buckets answered calls.
type executions []time.Duration

func (x *executions) see(run *replication, _ *call) { *x = append(*x, time.Duration(run.time.now)) }

// first returns the first execution after a moment.
func (x executions) first(after time.Duration) time.Duration {
	return x[slices.IndexFunc(x, func(at time.Duration) bool { return at > after })]
}

const far = 50 * time.Millisecond

func TestTheFirstCallOfAProcessWaitsForItsConnection(t *testing.T) {
	// Given a process that asks for the first time, far from Redis,
	var calls executions
	s := scene(t, `duration: 2s, limits: [1000/s], policy: {fallback: deny}, network: {round_trip: 50ms},
		redis: {service_time: 0s, exchange_time: 0s, wake_time: 0s}`)
	s.Workload = regularly(2*time.Millisecond, 2*time.Second)
	run := simulate(t, s, calls.see)
	// then its first call arrives when TCP's handshake, HELLO, the question about maintenance and
	// CLIENT SETINFO are over,
	testkit.Check(t, calls[0] == 4*far+far/2, "the first call is executed after %v", calls[0])
	// the handshake counts neither as a round trip nor as an outage,
	l := run.fleet.processes[0].links[0]
	testkit.Check(t, l.rules.RTT() == far && !l.breaker.Away(), "a round trip takes %v; away: %v",
		l.rules.RTT(), l.breaker.Away())
	// and only requests are denied that came longer than CallTimeout before the answer, or before the
	// answer to the next call, which brings more than the one token of a draw.
	denied := int64(1000) - run.books.tally.Admitted
	testkit.Check(t, denied >= 75 && denied <= 105,
		"%d requests are denied, want one every 2 ms for 150 to 200 ms", denied)
	// One connection is enough.
	testkit.Check(t, len(calls) > 5 && l.pool.idle <= 1, "there are %d connections", l.pool.idle+1)
}

func TestAfterAnOutageConnectionsAreOpenedAgain(t *testing.T) {
	for kind, want := range map[string]time.Duration{
		// The dial that finds the server again may have begun half a round trip before that was back.
		// After the handshake comes the answer that the script is not known, and then three round trips
		// with that.
		"outage": 6 * far, "restart_empty": 6 * far, "failover": 6 * far,
	} {
		// Given processes that call often, and a server that goes away for a second,
		var calls executions
		run := simulate(t, scene(t, `duration: 6s, limits: [1000/s], policy: {fallback: deny}, groups: [{count: 9}],
			network: {round_trip: 50ms}, workload: {load: 3}, redis: {faults: [{kind: %s, at: 2s, for: 1s}]}`, kind),
			calls.see)
		// then the first call after that comes when a connection has been opened for it.
		got := calls.first(3*time.Second) - 3*time.Second
		testkit.Check(t, got >= want, "%s: a call is executed %v after it", kind, got)
		last := calls[len(calls)-1]
		testkit.Check(t, last > 5900*time.Millisecond && run.books.audit.ExceededBy() == 0 || kind != "outage",
			"%s: the last call is at %v", kind, last)
	}
}

func TestAServerThatWasStoppedExecutesWhatCameMeanwhile(t *testing.T) {
	// Given processes that call often, and a server that is stopped for a second and has an idle connection
	// to each,
	var calls executions
	run := newRun(t, scene(t, `duration: 6s, limits: [1000/s], policy: {fallback: deny}, groups: [{count: 9}],
		workload: {load: 3}, redis: {faults: [{kind: hang, at: 2s, for: 1s}]}`))
	toTheEnd(t, run, calls.see)
	// then nothing is executed meanwhile, and the calls that wait for it at once when it goes on,
	meanwhile, atOnce := 0, 0
	for _, at := range calls {
		switch {
		case at > 2*time.Second && at < 3*time.Second:
			meanwhile++
		case at >= 3*time.Second && at < 3*time.Second+time.Millisecond:
			atOnce++
		}
	}
	testkit.Check(t, meanwhile == 0 && atOnce >= 9, "%d calls are executed meanwhile, and %d after it", meanwhile,
		atOnce)
	// within the bound, although the processes that made them no longer wait.
	testkit.Check(t, run.books.audit.ExceededBy() == 0, "exceeded by %d", run.books.audit.ExceededBy())
}

func TestTheFirstCallToAReplacedServerBringsTheScript(t *testing.T) {
	for kind, gone := range map[string]bool{"outage": true, "restart_empty": true, "failover": true,
		"hang": false} {
		// Given two processes far away that call, and again a while after the server was away,
		var calls executions
		s := scene(t, `duration: 6s, limits: [10/h], groups: [{count: 2}], network: {round_trip: 50ms},
			redis: {service_time: 0s, exchange_time: 0s, wake_time: 0s,
			faults: [{kind: %s, at: 2s, for: 1s}]}`, kind)
		s.Workload = replay(4, func(i int) scenario.TraceRequest {
			at := []time.Duration{0, 0, 4 * time.Second, 5 * time.Second}
			return scenario.TraceRequest{At: at[i], Process: i % 2, Cost: 1}
		})
		run := simulate(t, s, calls.see)
		// then the first brings the script after a NOSCRIPT answer. TCP sends it in three round trips,
		// which count as none, as in hybrid. The other process finds the script there.
		first, other := 4*time.Second+far/2, 5*time.Second+far/2
		if gone {
			first, other = first+3*far+far+2*far, other+3*far
		}
		trip := run.fleet.processes[0].links[0].rules.RTT()
		testkit.Check(t, trip == far, "%s: the longest round trip took %v, want %v", kind, trip, far)
		testkit.Check(t, slices.Contains(calls, first) && slices.Contains(calls, other),
			"%s: calls are executed at %v, want %v and %v among them", kind, calls, first, other)
	}
}

func TestNobodyCallsOverTheConnectionOfAProcessThatHasDied(t *testing.T) {
	// Given a process that is killed while it opens its connection,
	var calls executions
	simulate(t, scene(t, `duration: 2s, limits: [1000/s], network: {round_trip: 50ms},
		groups: [{count: 1, scale: [{at: 150ms, count: 0, kill: true}]}]`), calls.see)
	// then it never calls.
	testkit.Check(t, len(calls) == 0, "calls are executed at %v", calls)
}

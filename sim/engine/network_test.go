package engine

import (
	"math"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// TestNothingIsDrawnForARequestThatHasGone: over a network slower than CallTimeout, drawn tokens
// go to the requests that wait when the answer comes.
func TestNothingIsDrawnForARequestThatHasGone(t *testing.T) {
	for count, load := range map[int]string{
		1: "load: 3", 4: `rate: 500/s, cost: "uniform(34,62)"`,
	} {
		// Given answers that come after 106 ms, of which a request waits for 100,
		run := toTheEnd(t, connected(t, scene(t, `duration: 30s, limits: [1000/s], policy: {fallback: deny},
			groups: [{count: %d}], workload: {%s}, network: {round_trip: 106ms}`, count, load)))
		// then the fleet admits 98 % of what one central bucket admits.
		if got, want := run.books.tally.Admitted, run.books.centralAdmitted; got < want*98/100 {
			t.Errorf("%s: %d are admitted, one central bucket admits %d", load, got, want)
		}
	}
}

// TestAGroupHasItsOwnRoundTrip: a request waits for the round trips of the handshake and of its call.
func TestAGroupHasItsOwnRoundTrip(t *testing.T) {
	const ms = time.Millisecond
	for group, trip := range map[string]time.Duration{"count: 1": ms, "round_trip: 9ms": 9 * ms} {
		s := scene(t, "duration: 2s, limits: [1/s], network: {round_trip: 1ms}, groups: [{%s}]", group)
		s.Workload = regularly(time.Second, time.Second)
		waits := simulate(t, s).books.waits.Mean()
		testkit.Check(t, waits/trip == handshakeFirst+1, "%s: the request waits %v", group, waits)
	}
}

func TestADeniedRequestWaitsForItsCallToo(t *testing.T) {
	// Given a token for one of two processes,
	s := scene(t, "duration: 2s, limits: [1/h burst 1], network: {round_trip: 9ms}, groups: [{count: 2}]")
	s.Workload = replay(2, func(i int) scenario.TraceRequest { return scenario.TraceRequest{Cost: 1, Process: i} })
	// then the denied process has waited as long as the other one.
	run := simulate(t, s)
	got, admitted := figures(run).DeniedWaitMsP99.Mean, figures(run).WaitMsMax.Mean
	testkit.Check(t, got >= 18 && got == admitted, "waits of %v ms, of the admitted request %v ms", got, admitted)
}

func TestEachOfTwoFailoversLosesWhatItSays(t *testing.T) {
	// Given a bucket that is used from the beginning, and a second failover during the first, with
	// a replica that is further behind,
	run := simulate(t, scene(t, `duration: 8s, limits: [6000/m], policy: {fallback: deny}, redis: {faults: [
		{kind: failover, at: 5s, for: 1s, lost: 100ms}, {kind: failover, at: 5.5s, for: 1s, lost: 2s}]}`))
	// then the bucket has its old state of 3.5 s.
	created := time.Duration((*run.redis.place(0)).Dump().Created-serverStart) * time.Microsecond
	testkit.Check(t, created <= time.Second, "the bucket was made at %v, so both replicas were lost", created)
}

func TestRedisDoesNotWorkWhenItIsDown(t *testing.T) {
	for _, kind := range []string{"outage", "hang", "restart_empty", "failover"} {
		// Given a call that takes a second, and reaches Redis half a millisecond after its connection is
		// open,
		s := scene(t, `duration: 2s, limits: [1/s], network: {round_trip: 1ms},
			redis: {service_time: 1s, exchange_time: 0s, wake_time: 0s,
			faults: [{kind: %s, at: 300ms, for: 1h}]}`, kind)
		s.Workload = regularly(time.Hour, 1)
		run := simulate(t, s)
		// then Redis is busy until it goes down.
		got, want := figures(run).RedisCPU.Mean*2, 0.2955
		testkit.Check(t, math.Abs(got-want) <= 1e-12 && run.books.granted == 0,
			"%s: Redis works for %v s, want %v, and grants %d", kind, got, want, run.books.granted)
	}
}

func TestRedisIsBusyForEachCallAndExchangeAndWaking(t *testing.T) {
	// Given calls that all come to an end, of processes each with an exchange of its own,
	for _, c := range []struct{ service, exchange, wake time.Duration }{
		{time.Microsecond, 0, 0}, {15 * time.Microsecond, 3 * time.Microsecond, 0},
		{2 * time.Millisecond, 0, 0},
		{time.Microsecond, time.Microsecond, 40 * time.Microsecond},
	} {
		s := scene(t, `duration: 3s, limits: [1000/s], groups: [{count: 3}], network: {round_trip: exp(1ms)},
			redis: {service_time: %v, exchange_time: %v, wake_time: %v}`, c.service, c.exchange, c.wake)
		s.Workload = regularly(time.Millisecond, time.Second)
		run := simulate(t, s)
		// then Redis is busy for each of them, exactly: nearly all exchanges find it idle.
		calls, trips := run.network.calls, run.network.trips
		busy := run.redis.shards[0].busy - calls*int64(c.service) - trips*int64(c.exchange)
		woken := busy / max(1, int64(c.wake))
		if busy != woken*int64(c.wake) || c.wake > 0 && (woken > trips || woken < trips*9/10) || calls < 10 {
			t.Errorf("%+v: %d calls in %d exchanges, %d of which woke it", c, calls, trips, woken)
		}
		cpu, want := figures(run).RedisCPU.Mean, time.Duration(run.redis.shards[0].busy).Seconds()/3
		testkit.Check(t, math.Abs(cpu-want) <= 1e-15, "redis_cpu is %v, want %v", cpu, want)
	}
}

package engine

import (
	"math"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

func TestEachOfTwoFailoversLosesWhatItSays(t *testing.T) {
	// Given a bucket that is used from the beginning, and a second failover during the first, with
	// a replica that is further behind,
	run := simulate(t, scene(t, `duration: 8s, limits: [6000/m], policy: {fallback: deny}, redis: {faults: [
		{kind: failover, at: 5s, for: 1s, lost: 100ms}, {kind: failover, at: 5.5s, for: 1s, lost: 2s}]}`))
	// then the bucket is the old one, as it was at 3.5 s.
	created := time.Duration((*run.redis.place(0)).Dump().Created-serverStart) * time.Microsecond
	if created > time.Second {
		t.Errorf("the bucket was made at %v, so both replicas were lost", created)
	}
}

func TestASlowSecondIsOverWhenItIsOver(t *testing.T) {
	// Given ten processes that call at once in a moment in which every call takes a second longer,
	s := scene(t, `duration: 5s, limits: [1000/h], call_timeout: 20s, groups: [{count: 10}],
		redis: {faults: [{kind: slow, at: 990ms, for: 20ms, by: 1s}]}`)
	s.Workload = replay(10, func(i int) scenario.TraceRequest {
		return scenario.TraceRequest{At: time.Second, Process: i, Cost: 1}
	})
	var executed []time.Duration
	simulate(t, s, func(run *replication, _ *call) { executed = append(executed, time.Duration(run.time.now)) })
	// then the first takes a second, and the others, which are served after it, no longer than
	// usual.
	if len(executed) < 10 || executed[9] > 2010*time.Millisecond {
		t.Errorf("calls were executed at %v, want ten soon after 2 s", executed)
	}
}

func TestRedisIsNeverBusierThanOneCore(t *testing.T) {
	for _, fault := range []string{"kind: slow, at: 1s, for: 4s, by: 200ms",
		"kind: restart_empty, at: 2s, for: 100ms"} {
		// Given more calls than one core can execute,
		run := simulate(t, scene(t, `duration: 5s, warmup: 1s, limits: [1000/s], groups: [{count: 50}],
			workload: {load: 3}, redis: {service_time: 50ms, faults: [{%s}]}`, fault))
		// then it is busy all the time, and not more than that.
		if cpu := figures(run).RedisCPU.Mean; cpu > 1 || cpu < 0.9 {
			t.Errorf("%s: Redis uses %v of a core", fault, cpu)
		}
	}
}

func TestRedisDoesNotWorkWhenItIsDown(t *testing.T) {
	for _, kind := range []string{"outage", "hang", "restart_empty", "failover"} {
		// Given a call that takes a second, and reaches Redis half a millisecond after it was made,
		s := scene(t, `duration: 2s, limits: [1/s],
			redis: {service_time: 1s, faults: [{kind: %s, at: 300ms, for: 1h}]}`, kind)
		s.Workload = regularly(time.Hour, 1)
		run := simulate(t, s)
		// then Redis is busy until it goes down.
		got, want := figures(run).RedisCPU.Mean*2, 0.2995
		if math.Abs(got-want) > 1e-12 || run.books.granted != 0 {
			t.Errorf("%s: Redis works for %v s, want %v, and grants %d", kind, got, want, run.books.granted)
		}
	}
}

func TestABucketByTheCallersTimeIsKeptByTheServers(t *testing.T) {
	// Given a bucket that goes by the time that callers send along, and one of two processes an
	// hour ahead,
	made := map[int64]bool{}
	simulate(t, scene(t, `duration: 5s, limits: [100/s], redis: {client_time: true},
		groups: [{name: right}, {name: ahead, clock: {offset: "uniform(1h,1h)"}}]`),
		func(_ *replication, c *call) { made[c.grant.Epoch] = true })
	// then Redis, whose clock is right, does not forget the bucket meanwhile.
	if len(made) != 1 {
		t.Errorf("there were %d buckets", len(made))
	}
}

func TestRedisIsBusyForTheServiceTimeOfEachCall(t *testing.T) {
	// Given calls that all come to an end: requests in the first second of three,
	for _, service := range []time.Duration{time.Microsecond, 15 * time.Microsecond, 2 * time.Millisecond} {
		s := scene(t, "duration: 3s, limits: [1000/s], groups: [{count: 3}], redis: {service_time: %v}", service)
		s.Workload = regularly(time.Millisecond, time.Second)
		run := simulate(t, s)
		// then Redis is busy for the service time of each, exactly.
		calls := run.network.calls()
		if busy := run.redis.shards[0].busy; busy != calls*int64(service) || calls < 10 {
			t.Errorf("%d calls of %v keep it busy for %v", calls, service, time.Duration(busy))
		}
		cpu, want := figures(run).RedisCPU.Mean, float64(calls)*service.Seconds()/3
		if math.Abs(cpu-want) > 1e-15 {
			t.Errorf("redis_cpu is %v, want %v", cpu, want)
		}
	}
}

func TestManyKeysOnManyShardsTakeMemoryOnce(t *testing.T) {
	run := newRun(t, scene(t, "limits: [1/s], keys: {count: 1000}, redis: {shards: 7}"))
	places := 0
	for _, s := range run.redis.shards {
		places += len(s.buckets)
	}
	if places > 1007 {
		t.Errorf("there are %d places for 1000 buckets", places)
	}
	// Each key has one of its own.
	for key := range int32(1000) {
		if p := run.redis.place(key); *p != nil {
			t.Fatalf("key %d shares a place with key %d", key, (*p).expires)
		} else {
			*p = &bucket{expires: int64(key)}
		}
	}
}

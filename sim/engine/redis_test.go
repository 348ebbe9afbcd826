package engine

import (
	"math"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// faulty is a Redis with a service time and faults.
func faulty(service time.Duration, faults ...scenario.RedisFault) scenario.Redis {
	return scenario.Redis{ServiceTime: scenario.Constantly(service), Faults: faults}
}

func TestEachOfTwoFailoversLosesWhatItSays(t *testing.T) {
	// Given a bucket that is used from the beginning, and a second failover during the first, with
	// a replica that is further behind,
	run := simulate(t, scenario.Scenario{
		Duration: 8 * time.Second, Limits: limits(lease.PerMinute(6000)), Policy: deny,
		Redis: faulty(15*time.Microsecond,
			scenario.RedisFault{Kind: scenario.FaultFailover, At: 5 * time.Second, For: time.Second,
				Lost: 100 * time.Millisecond},
			scenario.RedisFault{Kind: scenario.FaultFailover, At: 5500 * time.Millisecond, For: time.Second,
				Lost: 2 * time.Second}),
	})
	// then the bucket is the old one, as it was at 3.5 s.
	created := time.Duration((*run.redis.place(0)).Dump().Created-serverStart) * time.Microsecond
	if created > time.Second {
		t.Errorf("the bucket was made at %v, so both replicas were lost", created)
	}
}

func TestASlowSecondIsOverWhenItIsOver(t *testing.T) {
	// Given ten processes that call at once in a moment in which every call takes a second longer,
	var executed []time.Duration
	simulate(t, scenario.Scenario{
		Duration: 5 * time.Second, Limits: limits(lease.PerHour(1000)), CallTimeout: 20 * time.Second,
		Groups: alike(10),
		Workload: replay(10, func(i int) scenario.TraceRequest {
			return scenario.TraceRequest{At: time.Second, Process: i, Cost: 1}
		}),
		Redis: faulty(15*time.Microsecond, scenario.RedisFault{Kind: scenario.FaultSlow,
			At: 990 * time.Millisecond, For: 20 * time.Millisecond, By: time.Second}),
	}, func(run *replication, _ *call) { executed = append(executed, time.Duration(run.time.now)) })
	// then the first takes a second, and the others, which are served after it, no longer than
	// usual.
	if len(executed) < 10 || executed[9] > 2010*time.Millisecond {
		t.Errorf("calls were executed at %v, want ten soon after 2 s", executed)
	}
}

func TestRedisIsNeverBusierThanOneCore(t *testing.T) {
	for _, f := range []scenario.RedisFault{
		{Kind: scenario.FaultSlow, At: time.Second, For: 4 * time.Second, By: 200 * time.Millisecond},
		{Kind: scenario.FaultRestartEmpty, At: 2 * time.Second, For: 100 * time.Millisecond},
	} {
		// Given more calls than one core can execute,
		run := simulate(t, scenario.Scenario{
			Duration: 5 * time.Second, Warmup: time.Second, Limits: limits(lease.PerSecond(1000)),
			Groups: alike(50), Workload: scenario.Workload{Load: 3}, Redis: faulty(50*time.Millisecond, f),
		})
		// then it is busy all the time, and not more than that.
		if cpu := figures(run).RedisCPU.Mean; cpu > 1 || cpu < 0.9 {
			t.Errorf("%s: Redis uses %v of a core", f.Kind, cpu)
		}
	}
}

func TestRedisDoesNotWorkWhenItIsDown(t *testing.T) {
	for _, kind := range []string{scenario.FaultOutage, scenario.FaultHang, scenario.FaultRestartEmpty,
		scenario.FaultFailover} {
		// Given a call that takes a second, and reaches Redis half a millisecond after it was made,
		run := simulate(t, scenario.Scenario{
			Duration: 2 * time.Second, Limits: limits(lease.PerSecond(1)), Workload: regularly(time.Hour, 1),
			Redis: faulty(time.Second, scenario.RedisFault{Kind: kind, At: 300 * time.Millisecond, For: time.Hour}),
		})
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
	simulate(t, scenario.Scenario{
		Duration: 5 * time.Second, Limits: limits(lease.PerSecond(100)), Redis: scenario.Redis{ClientTime: true},
		Groups: []scenario.Group{{Name: "right"},
			{Name: "ahead", Clock: &scenario.Clock{Offset: scenario.DurationDist{Dist: uniform(3600e9, 3600e9)}}}},
	}, func(_ *replication, c *call) { made[c.grant.Epoch] = true })
	// then Redis, whose clock is right, does not forget the bucket meanwhile.
	if len(made) != 1 {
		t.Errorf("there were %d buckets", len(made))
	}
}

func TestRedisIsBusyForTheServiceTimeOfEachCall(t *testing.T) {
	// Given calls that all come to an end: requests in the first second of three,
	for _, service := range []time.Duration{time.Microsecond, 15 * time.Microsecond, 2 * time.Millisecond} {
		run := simulate(t, scenario.Scenario{
			Duration: 3 * time.Second, Limits: limits(lease.PerSecond(1000)), Groups: alike(3),
			Workload: regularly(time.Millisecond, time.Second), Redis: faulty(service),
		})
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
	run := newRun(t, scenario.Scenario{Limits: limits(lease.PerSecond(1)),
		Keys: scenario.Keys{Count: 1000}, Redis: scenario.Redis{Shards: 7}})
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

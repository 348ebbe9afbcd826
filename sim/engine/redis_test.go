package engine

import (
	"math"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

func TestEachOfTwoFailoversLosesWhatItSays(t *testing.T) {
	// Given a bucket that is used from the beginning, and a second failover during the first, with
	// a replica that is further behind,
	run := simulate(t, scenario.Scenario{
		Duration: 8 * time.Second, Limits: []lease.Limit{lease.PerMinute(6000)},
		Policy: lease.Policy{Fallback: lease.FallbackDeny},
		Redis: scenario.Redis{Faults: []scenario.RedisFault{
			{Kind: scenario.FaultFailover, At: 5 * time.Second, For: time.Second, Lost: 100 * time.Millisecond},
			{Kind: scenario.FaultFailover, At: 5500 * time.Millisecond, For: time.Second, Lost: 2 * time.Second},
		}},
	})
	// then the bucket is the old one, as it was at 3.5 s.
	created := time.Duration((*run.redis.place(0)).Dump().Created-serverStart) * time.Microsecond
	if created > time.Second {
		t.Errorf("the bucket was made at %v, so both replicas were lost", created)
	}
}

func TestASlowSecondIsOverWhenItIsOver(t *testing.T) {
	// Given ten processes that call at once in a moment in which every call takes a second longer,
	s := scenario.Scenario{
		Duration: 5 * time.Second, Limits: []lease.Limit{lease.PerHour(1000)}, CallTimeout: 20 * time.Second,
		Groups: []scenario.Group{{Count: 10}},
		Workload: replay(10, func(i int) scenario.TraceRequest {
			return scenario.TraceRequest{At: time.Second,
				Process: i, Cost: 1}
		}),
		Redis: scenario.Redis{Faults: []scenario.RedisFault{{Kind: scenario.FaultSlow,
			At: 990 * time.Millisecond, For: 20 * time.Millisecond, By: time.Second}}},
	}
	var executed []time.Duration
	simulate(t, s, func(run *replication, _ *call) { executed = append(executed, time.Duration(run.time.now)) })
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
			Duration: 5 * time.Second, Warmup: time.Second, Limits: []lease.Limit{lease.PerSecond(1000)},
			Groups: []scenario.Group{{Count: 50}}, Workload: scenario.Workload{Load: 3},
			Redis: scenario.Redis{ServiceTime: scenario.Constantly(50 * time.Millisecond),
				Faults: []scenario.RedisFault{f}},
		})
		// then it is busy all the time, and not more than that.
		if cpu := figure(run, "redis_cpu"); cpu > 1 || cpu < 0.9 {
			t.Errorf("%s: Redis uses %v of a core", f.Kind, cpu)
		}
	}
}

func TestRedisDoesNotWorkWhenItIsDown(t *testing.T) {
	for _, kind := range []string{scenario.FaultOutage, scenario.FaultHang, scenario.FaultRestartEmpty, scenario.FaultFailover} {
		// Given a call that takes a second, and reaches Redis half a millisecond after it was made,
		run := simulate(t, scenario.Scenario{
			Duration: 2 * time.Second, Limits: []lease.Limit{lease.PerSecond(1)},
			Workload: replay(1, func(int) scenario.TraceRequest { return scenario.TraceRequest{Cost: 1} }),
			Redis: scenario.Redis{ServiceTime: scenario.Constantly(time.Second),
				Faults: []scenario.RedisFault{{Kind: kind, At: 300 * time.Millisecond, For: time.Hour}}},
		})
		// then Redis is busy until it goes down.
		if got, want := figure(run, "redis_cpu")*2, 0.2995; math.Abs(got-want) > 1e-12 || run.books.granted != 0 {
			t.Errorf("%s: Redis works for %v s, want %v, and grants %d", kind, got, want, run.books.granted)
		}
	}
}

func TestABucketByTheCallersTimeIsKeptByTheServers(t *testing.T) {
	// Given a bucket that goes by the time that callers send along, and one of two processes an
	// hour ahead,
	made := map[int64]bool{}
	simulate(t, scenario.Scenario{
		Duration: 5 * time.Second, Limits: []lease.Limit{lease.PerSecond(100)},
		Redis: scenario.Redis{ClientTime: true},
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
			Duration: 3 * time.Second, Limits: []lease.Limit{lease.PerSecond(1000)},
			Groups:   []scenario.Group{{Count: 3}},
			Workload: scenario.Workload{Kind: scenario.Replay, Trace: regularly(time.Millisecond, time.Second)},
			Redis:    scenario.Redis{ServiceTime: scenario.Constantly(service)},
		})
		// then Redis is busy for the service time of each, exactly.
		if run.redis.shards[0].busy != run.network.calls()*int64(service) || run.network.calls() < 10 {
			t.Errorf("%d calls of %v keep it busy for %v", run.network.calls(), service,
				time.Duration(run.redis.shards[0].busy))
		}
		if cpu, want := figure(run, "redis_cpu"), float64(run.network.calls())*service.Seconds()/3; math.Abs(cpu-want) > 1e-15 {
			t.Errorf("redis_cpu is %v, want %v", cpu, want)
		}
	}
}

func TestManyKeysOnManyShardsTakeMemoryOnce(t *testing.T) {
	run := newRun(t, scenario.Scenario{Limits: []lease.Limit{lease.PerSecond(1)},
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

package live

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim"
	scenfile "github.com/yuzhi-go/yuzhi/sim/scenario/file"
)

func TestAScenarioIsTheSameFleet(t *testing.T) {
	for _, c := range []struct {
		sets   string
		change func(*Options) // of the shipped one
	}{
		{"", func(*Options) {}},
		{"groups[0].count=9; limits=[100/s]; workload.load=0.5; duration=1s",
			func(o *Options) { o.Processes, o.Limit, o.Offered, o.Duration = 9, "100/s", 0.5, time.Second }},
		{"workload.load=0; workload.rate=5000/s", func(o *Options) { o.Offered = 0.25 }},
		{"workload.kind=sync; workload.within=50ms",
			func(o *Options) { o.Shape, o.Within = ShapeBursts, 50*time.Millisecond }},
		{"policy={fallback: deny, target: 20ms, ttl: 300ms, overcommit: 7, strict_expiry: true, weight: 1}",
			func(o *Options) {
				o.Overcommit, o.Target, o.TTL, o.Strict = 7, 20*time.Millisecond, 300*time.Millisecond, true
			}},
		// Fields that neither uses, or that are measured, may have any value.
		{"name=x; seed=7; reps=3; rivals=[fixed_window]; groups[0].name=y; groups[0].share=8; " +
			"network.round_trip=7ms; redis.service_time=1ms", func(*Options) {}},
	} {
		s := scenario(t, c.sets)
		got, err := FromScenario(s)
		testkit.Check(t, err == nil && strings.HasPrefix(got.Key, "leasesim-"),
			"%s: key %q, %v", c.sets, got.Key, err)
		got.Key = ""
		want := Options{Processes: 4, Limit: "20000/s burst 5000", Offered: 2, Shape: ShapeSteady,
			Duration: 5 * time.Second}
		c.change(&want)
		testkit.Check(t, reflect.DeepEqual(got, want), "%s:\n%+v, want\n%+v", c.sets, got, want)
	}
}

// scenario is the shipped one with some fields set.
func scenario(t *testing.T, sets string) sim.Scenario {
	t.Helper()
	s, err := scenfile.Load("example:real-processes")
	testkit.NoErr(t, err)
	if sets != "" {
		testkit.NoErr(t, scenfile.Set(&s, strings.Split(sets, "; ")...))
	}
	testkit.NoErr(t, s.Validate())
	return s
}

// refused are settings that live cannot run, and what is said of them. There is one for every field
// that counts.
var refused = []struct{ set, want string }{
	{"warmup=1s", "warmup is 1s, must be 0s"},
	{"limits=[100/s, 1000/m]", "limits is [100/s 1000/m], must be one limit"},
	{"limits=[100 each 1h]", "must be one limit and not a calendar"},
	{"policy.min_batch=5", "policy.min_batch is 5, must be 0"},
	{"policy.cold_start=allow", "policy.cold_start is allow, must be deny"},
	{"policy.fallback=allow_all", "policy.fallback is allow_all, must be deny"},
	{"policy.start_empty=true", "policy.start_empty is true, must be false"},
	{"policy.headroom=0.5", "policy.headroom is 0.5, must be 0"},
	{"policy.shadow=true", "policy.shadow is true, must be false"},
	{"call_timeout=50ms", "call_timeout is 50ms, must be 100ms"},
	{"clock.offset=1s", "clock.offset is 1s, must be 0s"},
	{"clock.drift=50ppm", "clock.drift is 50ppm, must be 0ppm"},
	{"groups[0].count=257", "--processes is 257, must be 1 to 256"},
	{"groups[0].headroom=0.5", "groups[0].headroom is 0.5, must be 0"},
	{"groups[0].shadow=true", "groups[0].shadow is true, must be false"},
	{"groups[0].clock={offset: 1s}", "groups[0].clock is there, must be left out"},
	{"groups[0].workload={kind: closed}", "groups[0].workload is there, must be left out"},
	{"groups[0].pauses={every: 1s, for: 1s}", "groups[0].pauses.every is 1s, must be 0s"},
	{"groups[0].restarts={every: 1s, for: 1s}", "groups[0].restarts.for is 1s, must be 0s"},
	{"groups[0].scale=[{at: 1s, count: 5}]", "groups[0].scale is [{at: 1s, count: 5}], must be []"},
	{"workload={kind: adversary}", "workload.kind is adversary, must be one whose requests do not depend"},
	{"workload={kind: closed}", "workload.kind is closed, must be one whose requests do not depend"},
	{"workload.verb=try", "workload.verb is try, must be allow"},
	{"workload={kind: constant, verb: wait, patience: 1s}", "workload.patience is 1s, must be 0s"},
	{"workload.actual=2", "workload.actual is 2, must be 0"},
	{"workload.hold=1s", "workload.hold is 1s, must be 0s"},
	{"workload.cancelled=5%", "workload.cancelled is 5%, must be 0%"},
	{"network.loss=1%", "network.loss is 1%, must be 0%"},
	{"network.lost_replies=1%", "network.lost_replies is 1%, must be 0%"},
	{"network.duplicates=1%", "network.duplicates is 1%, must be 0%"},
	{"network.partitions=[{at: 1s, for: 1s}]",
		"network.partitions is [{at: 1s, for: 1s, part: 100%}], must be []"},
	{"redis.shards=3", "redis.shards is 3, must be 1"},
	{"redis.faults=[{kind: outage, at: 1s, for: 1s}]", "must be []"},
	{"duration=50ms", "--duration is 50ms, must be 100ms to 1h"},
}

var everyGroups = map[string]bool{"policy.headroom=0.5": true, "policy.shadow=true": true}

// asPlayed returns the fleet of compare --live for a scenario.
func asPlayed(s sim.Scenario) (Options, error) {
	s, err := Played(s)
	if err != nil {
		return Options{}, err
	}
	return FromScenario(s)
}

func TestLiveNamesTheFieldsItCannotRun(t *testing.T) {
	for _, c := range refused {
		_, err := asPlayed(scenario(t, c.set))
		testkit.Check(t, errors.Is(err, ErrUsage) && strings.Contains(err.Error(), c.want),
			"%s: %v, want %q", c.set, err, c.want)
		// One setting is one error; but a stop has two fields, and some of a policy's are every group's.
		if n := strings.Count(err.Error(), "\n") + 1; n > 1 && !strings.Contains(c.set, "every: 1s, for") &&
			!everyGroups[c.set] {
			t.Errorf("%s: %d errors: %v", c.set, n, err)
		}
	}
	// All of them are said at once.
	_, err := asPlayed(scenario(t, "warmup=1s; redis.shards=2; workload.verb=try"))
	if err == nil || strings.Count(err.Error(), "live cannot run this scenario") != 3 {
		t.Error(err)
	}
}

// TestALoadThatNoShapeOffersIsPlayedAsATrace: given a load of any kind, when real processes play it, then
// they are given the very requests that the simulator makes.
func TestALoadThatNoShapeOffersIsPlayedAsATrace(t *testing.T) {
	for _, sets := range []string{
		"workload={kind: poisson, load: 0.9}", "workload={kind: onoff}", "workload={kind: pareto}",
		"workload={kind: diurnal}", "workload={kind: flash, at: 1s, for: 1s}",
		"workload={kind: sync, every: 1s, within: 2ms}", "workload={kind: boundary}", "limits=[1000 in 1s]",
		"limits=[60000/m burst 10]", "workload.cost=pareto(1,50,1.2)", "keys={count: 20, zipf: 1}",
		"groups=[{name: a, count: 3, skew: 1, weight: 3}, {name: b}]",
		"groups=[{name: a, count: 3, workload: {rate: 100/s}}, " +
			"{name: b, workload: {kind: pareto, rate: 900/s}}]",
		"workload={kind: constant, verb: wait}",
		"redis.faults=[{kind: hang, at: 1s, for: 500ms}]",
	} {
		s := scenario(t, "limits=[2000/s burst 100]; duration=3s; reps=1; "+sets)
		drawn, err := Played(s)
		testkit.NoErr(t, err)
		o, err := FromScenario(drawn)
		testkit.Check(t, err == nil && o.Shape == ShapeReplay && len(o.Trace) > 0, "%s: %v, %s", sets, err,
			o.Shape)
		want, err := sim.Run(t.Context(), s)
		testkit.NoErr(t, err)
		got, err := sim.Run(t.Context(), drawn)
		testkit.NoErr(t, err)
		// Those that wait end a deadline before the run does.
		testkit.Check(t, got.Offered.Mean == want.Offered.Mean || o.Deadline == time.Second &&
			got.Offered.Mean == math.Floor(want.Offered.Mean*2/3), "%s: %v tokens, not %v", sets,
			got.Offered.Mean,
			want.Offered.Mean)
		testkit.Check(t, got.Admitted.Mean == want.Admitted.Mean || o.Deadline > 0,
			"%s: %v admitted, not %v", sets,
			got.Admitted.Mean, want.Admitted.Mean)
	}
}

func TestEveryFieldOfAScenarioIsRunRefusedOrWithoutMeaning(t *testing.T) {
	known := map[string]bool{}
	for _, path := range []string{
		// not looked at
		"name", "description", "seed", "reps", "rivals", "rivals[]",
		"network.round_trip", "groups[].round_trip",
		"redis.service_time", "redis.exchange_time", "redis.wake_time",
		// run
		"duration", "limits", "limits[]", "policy.target", "policy.ttl", "policy.overcommit",
		"policy.strict_expiry", "policy.calls_per_second",
		"groups", "groups[]", "groups[].count", "groups[].name", "groups[].share", "workload.kind",
		"workload.rate",
		"workload.load", "workload.within",
		// played as a trace
		"policy.weight", "groups[].weight", "groups[].skew", "keys.count", "keys.zipf", "workload.cost",
		"workload.every",
		// of other kinds and verbs
		"policy.max_overshoot", "workload.deadline", "workload.patience", "workload.on", "workload.off",
		"workload.alpha", "workload.burst", "workload.period", "workload.swing",
		"workload.at", "workload.for", "workload.factor", "workload.clients", "workload.think", "workload.retries",
		"workload.backoff",
		"workload.repeated", "workload.file", "workload.columns", "workload.trace_sum",
	} {
		known[path] = true
	}
	for _, c := range refused {
		path, value, _ := strings.Cut(c.set, "=")
		path = strings.ReplaceAll(path, "[0]", "[]")
		known[path] = true
		// a section or a list is refused as a whole
		if strings.HasPrefix(value, "{") || strings.HasPrefix(value, "[{") {
			for _, p := range scenfile.Paths() {
				if strings.HasPrefix(p, path+".") && path != "workload" || strings.HasPrefix(p, path+"[]") &&
					path != "groups" {
					known[p] = true
				}
			}
		}
	}
	for _, path := range scenfile.Paths() {
		testkit.Check(t, known[path], "nobody has said what live does with %s", path)
	}
}

func TestTheMeasuredLoadIsSimulated(t *testing.T) {
	s := fleet.scenario()
	lognormal := func(median, p99 time.Duration) sim.DurationDist {
		return sim.DurationDist{Dist: sim.Dist{Kind: sim.DistLognormal, P: float64(median), Q: float64(p99)}}
	}
	for _, c := range []struct {
		what              string
		p50, p99, service time.Duration
		trip              sim.DurationDist
		simulated         time.Duration
	}{
		{"a real Redis", 500 * time.Microsecond, 2 * time.Millisecond, 100 * time.Microsecond,
			lognormal(400*time.Microsecond, 1900*time.Microsecond), 100 * time.Microsecond},
		{"one that does not say", 515 * time.Microsecond, 2015 * time.Microsecond, 0,
			lognormal(499*time.Microsecond, 1999*time.Microsecond), 16 * time.Microsecond},
		{"one that counts more than there is", 50 * time.Microsecond, 60 * time.Microsecond, 100 * time.Microsecond,
			lognormal(time.Microsecond, time.Microsecond), 100 * time.Microsecond},
		{"a fleet that made no call", 0, 0, 0, lognormal(time.Microsecond, time.Microsecond),
			16 * time.Microsecond},
	} {
		far := s
		far.Groups = []sim.Group{s.Groups[0]}
		far.Groups[0].RoundTrip = sim.Constantly(time.Second)
		got := Simulated(far, Report{RoundTripNs: Quantiles{int64(c.p50), int64(c.p99)},
			ServiceTimeNs: int64(c.service)})
		if got.Network.RoundTrip != c.trip || got.Redis.ServiceTime != sim.Constantly(c.simulated) {
			t.Errorf("%s: %v, %v", c.what, got.Network.RoundTrip, got.Redis.ServiceTime)
		}
		err := got.Validate()
		testkit.Check(t, err == nil, "%s: %v", c.what, err)
		got.Network.RoundTrip, got.Redis = s.Network.RoundTrip, s.Redis
		testkit.Check(t, reflect.DeepEqual(got, s), "%s: something else has changed: %+v", c.what, got)
	}
}

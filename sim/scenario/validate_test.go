package scenario

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// valid is a scenario that uses most of what there is.
func valid() Scenario {
	return Scenario{
		Limits: []lease.Limit{lease.PerSecond(1000), lease.PerMinute(6000).WithBurst(300)},
		Groups: []Group{
			{Name: "web", Count: 20, Scale: []Step{{At: time.Second, Count: 40}, {At: time.Second, Count: 0}}},
			{Count: 5, Clock: &Clock{}, Workload: &Workload{Kind: Closed}},
		},
		Network: Network{Partitions: []Partition{{At: time.Second, For: time.Second, Group: "group-1"}}},
		Redis: Redis{Shards: 2, Faults: []RedisFault{
			{Kind: FaultFailover, At: time.Second}, {Kind: FaultSlow, For: 1, By: 1, Shard: 2},
			{Kind: FaultClockStep, By: -time.Hour},
		}},
	}
}

func TestWhatIsValidIsValidWithItsDefaultsToo(t *testing.T) {
	least := Scenario{Limits: []lease.Limit{lease.PerSecond(1)}}
	clocks := valid()
	clocks.Clock = Clock{Offset: duration(DistNormal, -1e9, 1e10), Drift: drift(DistUniform, -999_999, 999_999)}
	steps := valid()
	steps.Groups[0].Scale[1].Count = processesMax - 5
	for _, s := range []Scenario{least, valid(), clocks, steps} {
		if err := s.Validate(); err != nil {
			t.Errorf("%v", err)
		}
		if err := s.Defaults().Validate(); err != nil {
			t.Errorf("with its defaults: %v", err)
		}
	}
}

func TestGroupsWithoutANameAreCalledByTheirPlace(t *testing.T) {
	s := valid().Defaults()
	if s.Groups[0].Name != "web" || s.Groups[1].Name != "group-1" {
		t.Errorf("the groups are %q and %q", s.Groups[0].Name, s.Groups[1].Name)
	}
	if s := (Scenario{}).Defaults(); len(s.Groups) != 1 || s.Groups[0].Name != "all" {
		t.Errorf("the group of no groups is %+v", s.Groups)
	}
}

func replay(requests ...TraceRequest) Workload {
	return Workload{Kind: Replay, File: "t.csv", Trace: &Trace{Requests: requests}}
}

func TestAFieldOfThePolicyThatIsOutOfBoundsIsOneErrorInTheFilesWords(t *testing.T) {
	wrong := func(s Scenario, want string) {
		t.Helper()
		got := strings.ReplaceAll(fmt.Sprint(s.Validate()), ErrInvalidScenario.Error()+": ", "")
		foreign := strings.Contains(got, "\n") || strings.Contains(got, "default") || leaseNames.MatchString(got)
		testkit.Check(t, strings.HasPrefix(got, want) && !foreign,
			"%q\nis not one error that begins with\n%q", got, want)
	}
	scene := Scenario{Limits: []lease.Limit{lease.PerSecond(5)}}
	for f := range reflect.TypeFor[lease.Policy]().Fields() {
		for _, value := range []float64{-1, 1 << 62} {
			s := scene
			v := reflect.ValueOf(&s.Policy).Elem().FieldByIndex(f.Index)
			switch {
			case v.Kind() == reflect.Float64:
				v.SetFloat(value)
			case v.CanInt() && f.Name != "ColdStart" && f.Name != "Fallback": // which a file has as words
				v.SetInt(int64(value))
			}
			if !v.IsZero() && !(f.Name == "MinBatch" || f.Name == "MaxBatch") || value < 0 && !v.IsZero() {
				wrong(s, "policy."+FieldName(f.Name)+": is ")
			}
		}
	}
	for want, p := range map[string]lease.Policy{
		"policy.ttl: is 150ms, must be at least 2*target (200ms)":  {TTL: 150 * time.Millisecond},
		"policy.target: is 1h0m0s, must be 1ms to 30m0s":           {Target: time.Hour, TTL: time.Second},
		"policy.weight: is 4503599627370496, must be 1 to 1048576": {Weight: 1 << 52},
	} {
		s := scene
		s.Policy = p
		wrong(s, want)
	}
	s := scene
	s.Limits = []lease.Limit{lease.Sliding(100, 0)}
	wrong(s, "limits[0]: the window is 0s, must be whole microseconds, 1ms to ")
}

func TestValidateNamesFieldValueAndBound(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	type to = *Scenario
	for _, c := range []struct {
		want   string
		change func(s to)
	}{
		{"duration: is -5s, must be 1ms to 720h0m0s", func(s to) { s.Duration = -5 * time.Second }},
		{"duration: is 1000h0m0s, must be 1ms to 720h0m0s", func(s to) { s.Duration = 1000 * time.Hour }},
		{"warmup: is 30s, must be 0s to 29.999999999s", func(s to) { s.Warmup = 30 * time.Second }},
		{"warmup: is -1ns, must be 0s to", func(s to) { s.Warmup = -1 }},
		{"seed: is 9007199254740992, must be 1 to 9007199254740991", func(s to) { s.Seed = 1 << 53 }},
		{"reps: is 10001, must be 1 to 10000", func(s to) { s.Reps = 10_001 }},
		{"call_timeout: is 2m0s, must be 1µs to 1m0s", func(s to) { s.CallTimeout = 2 * time.Minute }},
		{"keys.count: is 1000001, must be 1 to 1000000", func(s to) { s.Keys.Count = 1_000_001 }},
		{"keys.zipf: is NaN, must be 0 to 10", func(s to) { s.Keys.Zipf = nan }},
		{"limits: there are 0, must be 1 to 4", func(s to) { s.Limits = nil }},
		{"limits: there are 5, must be 1 to 4", func(s to) { s.Limits = make5(s.Limits[0]) }},
		{"limits[1]: tokens is 0, must be at least 1", func(s to) { s.Limits[1].Tokens = 0 }},
		{"policy.target: is 1ns, must be 1ms to 30m0s", func(s to) { s.Policy.Target = 1 }},
		{"policy.ttl: is 2h0m0s, must be 2ms to", func(s to) { s.Policy.TTL = 2 * time.Hour }},
		{"policy.min_batch: is -1, must be at least 1", func(s to) { s.Policy.MinBatch = -1 }},
		{"policy.min_batch: is 3, must be at most max_batch (2)",
			func(s to) { s.Policy.MinBatch, s.Policy.MaxBatch = 3, 2 }},
		{"policy.overcommit: is -1, must be", func(s to) { s.Policy.Overcommit = -1 }},
		{"policy.cold_start: is 7, must be", func(s to) { s.Policy.ColdStart = 7 }},
		{"policy.fallback: is 7, must be", func(s to) { s.Policy.Fallback = 7 }},
		{"policy.overcommit: is 4503599627370495, must be at most 4503",
			func(s to) { s.Policy.Overcommit = 1<<52 - 1; s.Limits = s.Limits[:1] }},
		{"clock.offset: is -1s, but a plain offset d means uniform",
			func(s to) { s.Clock.Offset = Constantly(-time.Second) }},
		{"clock.offset: is uniform(0s,1000000h0m0s), must be strictly",
			func(s to) { s.Clock.Offset = duration(DistUniform, 0, 3.6e18) }},
		{"clock.offset: has the parameters NaN and 0, must be finite",
			func(s to) { s.Clock.Offset = duration("", nan, 0) }},
		{"clock.drift: has the parameters 0 and +Inf, must be finite",
			func(s to) { s.Clock.Drift = drift(DistNormal, 0, inf) }},
		{"clock.drift: is 1e+06ppm, must be strictly within +-1000000",
			func(s to) { s.Clock.Drift = drift("", 1e6, 0) }},
		{"clock.drift: is uniform(-1e+06ppm,0ppm), must be strictly",
			func(s to) { s.Clock.Drift = drift(DistUniform, -1e6, 0) }},
		{"clock.drift: is -5ppm, but a plain drift d means uniform in",
			func(s to) { s.Clock.Drift = drift("", -5, 0) }},
		{"groups[1].clock.drift: is 2e+06ppm, must be", func(s to) { s.Groups[1].Clock.Drift.P = 2e6 }},

		{`groups[1].name: is "web", which is the name of groups[0] too`,
			func(s to) { s.Groups[1].Name = "web"; s.Network.Partitions = nil }},
		{"groups[0].count: is -1, must be 1 to 100000", func(s to) { s.Groups[0].Count = -1 }},
		{"groups: have 100001 processes at the most, must be at most", func(s to) { s.Groups[0].Count = 99_996 }},
		{"groups: have 100002 processes at the most, must be", func(s to) { s.Groups[0].Scale[1].Count = 99_997 }},
		{"groups[0].weight: is -1, must be 1 to", func(s to) { s.Groups[0].Weight = -1 }},
		{"groups[0].share: is -1, must be 0 to 1000000000000", func(s to) { s.Groups[0].Share = -1 }},
		{"groups[0].share: is +Inf, must be", func(s to) { s.Groups[0].Share = inf }},
		{"groups[0].headroom: is 1, must be 0 to below 1", func(s to) { s.Groups[0].Headroom = 1 }},
		{"groups[0].skew: is 11, must be 0 to 10", func(s to) { s.Groups[0].Skew = 11 }},
		{"groups[0].pauses.every: is 1ns, must be 1ms to", func(s to) { s.Groups[0].Pauses.Every = 1 }},
		{"groups[1].pauses.for: is -3s, must not be negative",
			func(s to) { s.Groups[1].Pauses.For = Constantly(-3 * time.Second) }},
		{"groups[0].restarts.for: is normal(-1ns,1ns), must not",
			func(s to) { s.Groups[0].Restarts.For = duration(DistNormal, -1, 1) }},
		{"groups[0].scale[1].at: is 500ms, must not be before",
			func(s to) { s.Groups[0].Scale[1].At = time.Second / 2 }},
		{"groups[0].scale[1].at: is 31s, must be 0s to 30s",
			func(s to) { s.Groups[0].Scale[1].At = 31 * time.Second }},
		{"groups[0].scale[0].count: is -1, must be 0 to", func(s to) { s.Groups[0].Scale[0].Count = -1 }},
		{"groups[1].workload.load: is -1, must be 0 to", func(s to) { s.Groups[1].Workload.Load = -1 }},

		{`rivals[1]: unknown algorithm "centrl": the names are central, `,
			func(s to) { s.Rivals = []string{"central", "centrl"} }},
		{`rivals[0]: invalid argument: the batch is "0" tokens, must be`,
			func(s to) { s.Rivals = []string{"local_batches:0"} }},
		{`workload.kind: is "possion", must be one of constant, poisson`,
			func(s to) { s.Workload.Kind = "possion" }},
		{`workload.verb: is "ask", must be one of allow, try, wait`, func(s to) { s.Workload.Verb = "ask" }},
		{"workload.rate: is -1/s, must be 0/s to 1e+09/s", func(s to) { s.Workload.Rate = -1 }},
		{"workload.rate: is NaN/s, must be", func(s to) { s.Workload.Rate = Rate(nan) }},
		{"workload.load: is +Inf, must be 0 to 1000000", func(s to) { s.Workload.Load = inf }},
		{"workload.load: is 2 and rate is 5/s, but both say",
			func(s to) { s.Workload.Load, s.Workload.Rate = 2, 5 }},
		{"workload.cost: is uniform(3,2), must be 1 or more",
			func(s to) { s.Workload.Cost = Cost{Min: 3, Max: 2} }},
		{"workload.cost: is uniform(0,2), must be 1 or more",
			func(s to) { s.Workload.Cost = Cost{Min: 0, Max: 2} }},
		{"workload.cost: is pareto(1,2,0.001), whose shape must be 0.01",
			func(s to) { s.Workload.Cost = Cost{1, 2, 0.001} }},
		{"groups[0].pauses.at: is 1s and every is 2s, but stops come",
			func(s to) { s.Groups[0].Pauses = Stops{Every: 2 * time.Second, At: time.Second} }},
		{"groups[0].restarts.at: is -1s, must be 0s to", func(s to) { s.Groups[0].Restarts.At = -time.Second }},
		{"workload.cost: is 301, must be at most the smallest burst (30",
			func(s to) { s.Workload.Cost = Cost{Min: 301, Max: 301} }},
		{"workload.cost: is 151, must be at most the smallest burst, l",
			func(s to) { s.Policy.Headroom, s.Workload.Cost = 0.5, Cost{Min: 151, Max: 151} }},
		{"workload.actual: is -1, must not be negative, and 1 or", func(s to) { s.Workload.Actual.P = -1 }},
		{"workload.actual: is exp(0.5), must not be negative, and 1 or",
			func(s to) { s.Workload.Actual = TokenDist{Dist{Kind: DistExp, P: 0.5}} }},
		{`workload.actual: "uniform(2,1)" must rise`,
			func(s to) { s.Workload.Actual = TokenDist{Dist{DistUniform, 2, 1}} }},
		{"workload.actual: is 2e+09, must be strictly within", func(s to) { s.Workload.Actual.P = 2e9 }},
		{"workload.hold: is -1s, must not be negative", func(s to) { s.Workload.Hold = Constantly(-time.Second) }},
		{"workload.cancelled: is 101%, must be 0% to 100%", func(s to) { s.Workload.Cancelled = 1.01 }},
		{"workload.deadline: is -1s, must be 1ns to 1h0m0s", func(s to) { s.Workload.Deadline = -time.Second }},
		{"workload.on: is 1ns, must be 1µs to", func(s to) { s.Workload.On = 1 }},
		{"workload.off: is -1ns, must be 1µs to", func(s to) { s.Workload.Off = -1 }},
		{"workload.alpha: is 1, must be above 1", func(s to) { s.Workload.Alpha = 1 }},
		{"workload.alpha: is NaN, must be above 1", func(s to) { s.Workload.Alpha = nan }},
		{"workload.burst: is 0.5, must be 1 to", func(s to) { s.Workload.Burst = 0.5 }},
		{"workload.period: is 1µs, must be 1ms to", func(s to) { s.Workload.Period = time.Microsecond }},
		{"workload.swing: is 150%, must be 0% to 100%", func(s to) { s.Workload.Swing = 1.5 }},
		{"workload.at: is -1s, must be 0s to", func(s to) { s.Workload.At = -time.Second }},
		{"workload.at: is 31s, must be 0s to 30s",
			func(s to) { s.Workload.Kind, s.Workload.At = Flash, 31*time.Second }},
		{"workload.for: is -1s, must be 0s to", func(s to) { s.Workload.For = -time.Second }},
		{"workload.factor: is -1, must be 0 to 1000000", func(s to) { s.Workload.Factor = -1 }},
		{"workload.every: is -1ns, must be 1µs to", func(s to) { s.Workload.Every = -1 }},
		{"workload.within: is -1ns, must be 0s to", func(s to) { s.Workload.Within = -1 }},
		{"workload.within: is 1s, must be 0s to 500ms",
			func(s to) { s.Workload = Workload{Kind: Sync, Every: time.Second / 2, Within: time.Second} }},
		{"workload.clients: is 10001, must be 1 to 10000", func(s to) { s.Workload.Clients = 10_001 }},
		{"workload.think: is -1s, must not be negative",
			func(s to) { s.Workload.Think = Constantly(-time.Second) }},
		{"workload.think: is uniform(0s,0s), must take 1µs or more",
			func(s to) { s.Workload.Kind, s.Workload.Think = Closed, duration(DistUniform, 0, 0) }},
		{"workload.think: is exp(1000h0m0s), must be strictly within",
			func(s to) { s.Workload.Think = duration(DistExp, 3.6e15, 0) }},
		{"workload.think: is gauss(1ns,2ns), but there is no",
			func(s to) { s.Workload.Think = duration("gauss", 1, 2) }},
		{"workload.retries: is 21, must be 0 to 20", func(s to) { s.Workload.Retries = 21 }},
		{"workload.backoff: is -1ns, must be 0s to 1h0m0s", func(s to) { s.Workload.Backoff = -1 }},

		{`workload.file: is "t.csv": there is no trace with requests`, func(s to) { s.Workload = replay() }},
		{"workload.file: request 1 of the trace comes at 1s, before",
			func(s to) { s.Workload = replay(TraceRequest{2e9, 0, 0, 1}, TraceRequest{1e9, 0, 0, 1}) }},
		{"workload.file: request 0 of the trace comes at -1ns, before",
			func(s to) { s.Workload = replay(TraceRequest{-1, 0, 0, 1}) }},
		{"workload.file: request 0 of the trace has process -1 and key",
			func(s to) { s.Workload = replay(TraceRequest{0, -1, 0, 1}) }},
		{"workload.file: request 0 of the trace has process 0 and key -",
			func(s to) { s.Workload = replay(TraceRequest{0, 0, -1, 1}) }},
		{"workload.file: request 0 of the trace costs 0 tokens, must",
			func(s to) { s.Workload = replay(TraceRequest{0, 0, 0, 0}) }},
		{"workload.file: request 0 of the trace costs 301 tokens, must",
			func(s to) { s.Workload = replay(TraceRequest{0, 0, 0, 301}) }},
		{"workload.file: the first request of the trace comes at 30s",
			func(s to) { s.Workload = replay(TraceRequest{30e9, 0, 0, 1}) }},
		{"workload.file: the trace lasts 0s, must last 1µs or more to", func(s to) {
			s.Workload = replay(TraceRequest{0, 0, 0, 1})
			s.Workload.Repeated = true
		}},

		{"network.round_trip: is -1ms, must not be negative",
			func(s to) { s.Network.RoundTrip = Constantly(-time.Millisecond) }},
		{`network.round_trip: "uniform(2ns,1ns)" must rise`,
			func(s to) { s.Network.RoundTrip = duration(DistUniform, 2, 1) }},
		{"network.loss: is 101%, must be 0% to 100%", func(s to) { s.Network.Loss = 1.01 }},
		{"network.lost_replies: is NaN%, must be", func(s to) { s.Network.LostReplies = Ratio(nan) }},
		{"network.duplicates: is -1%, must be", func(s to) { s.Network.Duplicates = -0.01 }},
		{"network.duplicates_after: is -1ns, must be 0s to", func(s to) { s.Network.DuplicatesAfter = -1 }},
		{"workload.patience: is -1s, must not be negative",
			func(s to) { s.Workload.Patience = Constantly(-time.Second) }},
		{"network.partitions[0].at: is 40s, must be 0s to 30s",
			func(s to) { s.Network.Partitions[0].At = 40 * time.Second }},
		{"network.partitions[0].for: is 0s, must be 1ns to", func(s to) { s.Network.Partitions[0].For = 0 }},
		{"network.partitions[0].part: is 200%, must be", func(s to) { s.Network.Partitions[0].Part = 2 }},
		{`network.partitions[0].group: is "db", must be the name`,
			func(s to) { s.Network.Partitions[0].Group = "db" }},

		{"redis.service_time: is -1ns, must not be negative", func(s to) { s.Redis.ServiceTime = Constantly(-1) }},
		{"redis.shards: is 16385, must be 1 to 16384", func(s to) { s.Redis.Shards = 16_385 }},
		{`redis.faults[0].kind: is "fire", must be one of outage`, func(s to) { s.Redis.Faults[0].Kind = "fire" }},
		{"redis.faults[0].at: is 40s, must be 0s to 30s", func(s to) { s.Redis.Faults[0].At = 40 * time.Second }},
		{"redis.faults[0].for: is -1ns, must be 0s to", func(s to) { s.Redis.Faults[0].For = -1 }},
		{"redis.faults[1].for: is 0s, must be 1ns to", func(s to) { s.Redis.Faults[1].For = 0 }},
		{"redis.faults[1].by: is 0s, must be 1ns to", func(s to) { s.Redis.Faults[1].By = 0 }},
		{"redis.faults[2].by: is 0s, must be how far the clock", func(s to) { s.Redis.Faults[2].By = 0 }},
		{"redis.faults[2].by: is 1000000h0m0s, must be -876000h0m0s",
			func(s to) { s.Redis.Faults[2].By = 1_000_000 * time.Hour }},
		{"redis.faults[0].lost: is -1ns, must be 0s to", func(s to) { s.Redis.Faults[0].Lost = -1 }},
		{"redis.faults[1].shard: is 3, must be 0 to 2", func(s to) { s.Redis.Faults[1].Shard = 3 }},
	} {
		s := valid()
		s.Duration = 30 * time.Second
		c.change(&s)
		err := s.Validate()
		begins := strings.HasPrefix(fmt.Sprint(err), "sim: invalid scenario: "+c.want)
		named := errors.Is(err, ErrInvalidScenario) && begins
		testkit.Must(t, named, "%v\nshould be an ErrInvalidScenario that begins with\n%s", err, c.want)
		n := len(err.(interface{ Unwrap() []error }).Unwrap())
		testkit.Check(t, n == 1, "one violation is reported as %d:\n%v", n, err)
	}
}

func make5(l lease.Limit) []lease.Limit { return []lease.Limit{l, l, l, l, l} }

func TestValidateReportsAllFieldsAtOnceAndThenWhatDoesNotFit(t *testing.T) {
	// Given three fields that are wrong, and three more that do not fit others
	s := valid()
	s.Duration, s.Limits[1].Tokens, s.Workload.Load = -1, -1, -1
	s.Warmup, s.Redis.Faults[0].At, s.Workload.Cost = time.Hour, time.Hour, Cost{Min: 1, Max: 1_000_000}
	reports := func(want string) {
		t.Helper()
		err := s.Validate()
		testkit.Check(t, err != nil && err.Error() == want, "%v\nwant\n%s", err, want)
	}
	reports("sim: invalid scenario: duration: is -1ns, must be 1ms to 720h0m0s\n" +
		"sim: invalid scenario: limits[1]: tokens is -1, must be at least 1\n" +
		"sim: invalid scenario: workload.load: is -1, must be 0 to 1000000")
	s.Duration, s.Limits[1].Tokens, s.Workload.Load = 30*time.Second, 1, 0
	reports("sim: invalid scenario: warmup: is 1h0m0s, must be 0s to 29.999999999s\n" +
		"sim: invalid scenario: workload.cost: is uniform(1,1000000), must be at most the smallest burst (300): " +
		"more is never admitted\n" +
		"sim: invalid scenario: redis.faults[0].at: is 1h0m0s, must be 0s to 30s")
}

func TestFieldNamesAreInSnakeCase(t *testing.T) {
	for name, want := range map[string]string{
		"TTL": "ttl", "RoundTrip": "round_trip", "On": "on", "CallTimeout": "call_timeout", "TraceSum": "trace_sum",
		"ClientTime": "client_time", "": "",
	} {
		got := FieldName(name)
		testkit.Check(t, got == want, "%s is called %s, want %s", name, got, want)
	}
}

func TestASettingThatTheKindDoesNotReadIsRefused(t *testing.T) {
	base := Scenario{Limits: []lease.Limit{lease.PerSecond(100)}, Workload: Workload{Kind: Poisson}}
	for _, c := range []struct {
		kind string
		set  func(w *Workload)
		want string
	}{
		{Poisson, func(w *Workload) { w.Factor = 5 }, "factor: is 5, which %s does not read; it is for flash"},
		{Flash, func(w *Workload) { w.Factor = 5 }, ""},
		{Poisson, func(w *Workload) { w.Factor = 10 }, ""}, // which is the default, and changes nothing
		{
			Closed, func(w *Workload) { w.Load = 2 },
			"load: is 2, which %s does not read; it is for constant, poisson, ",
		},
		{Adversary, func(w *Workload) { w.Rate = 2 }, "rate: is 2/s, which %s does not read"},
		{Sync, func(w *Workload) { w.Think = base.Defaults().Workload.Think }, ""},
		{
			Constant, func(w *Workload) { w.File = "t.csv" },
			"file: is t.csv, which %s does not read; it is for replay",
		},
	} {
		s := base
		s.Workload.Kind = c.kind
		c.set(&s.Workload)
		err := s.Validate()
		if c.want == "" {
			testkit.Check(t, err == nil && s.Defaults().Validate() == nil, "%s: %v", c.kind, err)
			continue
		}
		want := "workload." + fmt.Sprintf(c.want, "a workload of kind "+c.kind)
		testkit.Check(t, err != nil && strings.Contains(err.Error(), want), "%v, want %q", err, want)
	}
	// Every field is known to be read by all kinds, or by some.
	all := []string{"Kind", "Verb", "Actual", "Hold", "Cancelled", "Deadline", "Patience", "Trace", "TraceSum"}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Workload]()) {
		testkit.Check(t, slices.Contains(all, f.Name) != (readBy[f.Name] != nil), "who reads %s?", f.Name)
	}
}

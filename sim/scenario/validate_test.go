package scenario

import (
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
			{Count: 5, Workload: &Workload{Kind: Constant}},
		},
		Network: Network{Partitions: []Partition{{At: time.Second, For: time.Second, Group: "group-1"}}},
		Redis: Redis{Shards: 2, Faults: []RedisFault{
			{Kind: FaultFailover, At: time.Second}, {Kind: FaultHang, At: 1, For: 1, Shard: 2},
		}},
	}
}

func TestAValidScenarioIsValidWithItsDefaults(t *testing.T) {
	least := Scenario{Limits: []lease.Limit{lease.PerSecond(1)}}
	clocks := valid()
	clocks.Clock = Clock{Offset: duration(DistNormal, -1e9, 1e10), Drift: drift(DistUniform, -999_999, 999_999)}
	steps := valid()
	steps.Groups[0].Scale[1].Count = processesMax - 5
	for _, s := range []Scenario{least, valid(), clocks, steps} {
		testkit.NoErr(t, s.Validate())
		testkit.NoErr(t, s.Defaults().Validate())
	}
	// Groups without a name are called by their place.
	two, none := valid().Defaults().Groups, Scenario{}.Defaults().Groups
	testkit.Check(t, two[0].Name == "web" && two[1].Name == "group-1" && len(none) == 1 && none[0].Name == "all",
		"%+v and %+v", two, none)
}

func replay(requests ...TraceRequest) Workload {
	return Workload{Kind: Replay, File: "t.csv", Trace: &Trace{Requests: requests}}
}

func TestAFieldOfThePolicyThatIsOutOfBoundsIsOneErrorInTheFilesWords(t *testing.T) {
	wrong := func(s Scenario, want string) {
		t.Helper()
		got := strings.ReplaceAll(fmt.Sprint(s.Validate()), ErrInvalidScenario.Error()+": ", "")
		foreign := strings.Contains(got, "\n") || strings.Contains(got, "default")
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
			if !v.IsZero() && f.Name != "MinBatch" || value < 0 && !v.IsZero() {
				wrong(s, "policy."+FieldName(f.Name)+" is ")
			}
		}
	}
	for want, p := range map[string]lease.Policy{
		"policy.ttl is 150ms, must be at least 200ms, two targets": {TTL: 150 * time.Millisecond},
		"policy.target is 1h0m0s, must be 1ms to 30m0s":            {Target: time.Hour, TTL: time.Second},
		"policy.weight is 4503599627370496, must be 1 to 1048576":  {Weight: 1 << 52},
	} {
		s := scene
		s.Policy = p
		wrong(s, want)
	}
	s := scene
	s.Limits = []lease.Limit{lease.Sliding(100, 0)}
	wrong(s, "limits[0].period is 0s, must be whole microseconds, 1ms to ")
}

// A Scenario may have values that no file has.
func TestValidateRefusesWhatNoFileSays(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	type to = *Scenario
	for want, change := range map[string]func(s to, w *Workload){
		"clock.offset has the parameters NaN":       func(s to, _ *Workload) { s.Clock.Offset.P = nan },
		"clock.drift has the parameters 0 and":      func(s to, _ *Workload) { s.Clock.Drift.Q = inf },
		"groups have up to 100001 processes":        func(s to, _ *Workload) { s.Groups[0].Count = 99_996 },
		"groups have up to 100002 processes":        func(s to, _ *Workload) { s.Groups[0].Scale[1].Count = 99_997 },
		"groups[0].share is +Inf, must be":          func(s to, _ *Workload) { s.Groups[0].Share = inf },
		"workload.rate is NaN/s, must be":           func(_ to, w *Workload) { w.Rate = Rate(nan) },
		"workload.cost is uniform(3,2), must":       func(_ to, w *Workload) { w.Cost = Cost{Min: 3, Max: 2} },
		"workload.cost is uniform(0,2), must":       func(_ to, w *Workload) { w.Cost = Cost{Min: 0, Max: 2} },
		"workload.cost is pareto(1,2,0.001)":        func(_ to, w *Workload) { w.Cost = Cost{1, 2, 0.001} },
		`workload.hold is "uniform(2ns,1ns)", must`: func(_ to, w *Workload) { w.Hold = duration(DistUniform, 2, 1) },
		"workload.hold is gauss(1ns,2ns), is a":     func(_ to, w *Workload) { w.Hold = duration("gauss", 1, 2) },
		"network.loss is 101%, must be 0%":          func(s to, _ *Workload) { s.Network.Loss = 1.01 },
		"network.lost_replies is NaN%, must be":     func(s to, _ *Workload) { s.Network.LostReplies = Ratio(nan) },
		"network.partitions[0].part is 200%":        func(s to, _ *Workload) { s.Network.Partitions[0].Part = 2 },
	} {
		s := valid()
		change(&s, &s.Workload)
		checkRefused(t, s, want)
	}
	for want, requests := range map[string][]TraceRequest{
		`is "t.csv", but there is no trace with requests`:          nil,
		"request 1 of the trace is {At:1s Process:0":               {{2e9, 0, 0, 1}, {1e9, 0, 0, 1}},
		"request 0 of the trace is {At:0s Process:-1":              {{0, -1, 0, 1}},
		"request 0 of the trace is {At:0s Process:0 Key:-":         {{0, 0, -1, 1}},
		"request 0 of the trace is {At:0s Process:0 Key:0 Cost:0}": {{}},
		"1 of the 1 requests of the trace cost more than":          {{0, 0, 0, 301}},
		"the first request of the trace comes at 30s":              {{30e9, 0, 0, 1}},
	} {
		s := valid()
		s.Workload = replay(requests...)
		checkRefused(t, s, "workload.file "+want)
	}
}

func checkRefused(t *testing.T, s Scenario, want string) {
	t.Helper()
	s.Duration = 30 * time.Second
	err := s.Validate()
	testkit.Check(t, strings.HasPrefix(fmt.Sprint(err), "sim: invalid scenario: "+want) &&
		!strings.Contains(err.Error(), "\n"), "%v\nshould be one error that begins with\n%s", err, want)
}

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
	reports("sim: invalid scenario: duration is -1ns, must be 1ms to 720h0m0s\n" +
		"sim: invalid scenario: limits[1].tokens is -1, must be at least 1\n" +
		"sim: invalid scenario: workload.load is -1, must be 0 to 1000000")
	s.Duration, s.Limits[1].Tokens, s.Workload.Load = 30*time.Second, 1, 0
	reports("sim: invalid scenario: warmup is 1h0m0s, must be 0s to 29.999999999s\n" +
		"sim: invalid scenario: workload.cost is uniform(1,1000000), must be at most the smallest burst (300): " +
		"more is never admitted\n" +
		"sim: invalid scenario: redis.faults[0].at is 1h0m0s, must be 0s to 30s")
}

// A setting that the kind does not read is refused, unless it is the default, which changes nothing.
func TestADefaultThatTheKindDoesNotReadIsTaken(t *testing.T) {
	s := Scenario{Limits: []lease.Limit{lease.PerSecond(100)}, Workload: Workload{Kind: Sync, Factor: 10}}
	s.Workload.On = s.Defaults().Workload.On
	testkit.NoErr(t, s.Validate())
	// Every field is known to be read by all kinds, or by some.
	all := []string{"Kind", "Verb", "Actual", "Hold", "Deadline", "Trace"}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Workload]()) {
		testkit.Check(t, slices.Contains(all, f.Name) != (readBy[f.Name] != nil), "who reads %s?", f.Name)
	}
}

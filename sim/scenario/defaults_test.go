package scenario

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// settings are values for a field of each type, from the smallest to the largest that are of use.
var settings = map[reflect.Type][]any{
	reflect.TypeFor[time.Duration](): {
		time.Microsecond, time.Millisecond, 7 * time.Millisecond, time.Second, 45 * time.Second, time.Hour,
		DurationMax,
	},
	reflect.TypeFor[DurationDist](): {
		Constantly(time.Microsecond), Constantly(time.Second), Constantly(time.Hour), duration(DistExp, 1e9, 0),
		duration(DistUniform, 1e6, 1e10),
	},
	reflect.TypeFor[DriftDist]():     {drift("", 50, 0)},
	reflect.TypeFor[TokenDist]():     {TokenDist{Dist{P: 1}}, TokenDist{Dist{P: 1000}}},
	reflect.TypeFor[Cost]():          {Cost{Min: 1, Max: 1}, Cost{Min: 1, Max: 100}},
	reflect.TypeFor[Ratio]():         {Ratio(0.001), Ratio(1)},
	reflect.TypeFor[Rate]():          {Rate(0.1), Rate(1e6)},
	reflect.TypeFor[int]():           {1, 2, 5, 100, 1_000_000},
	reflect.TypeFor[int64]():         {1, 2, 5, 100, 1_000_000},
	reflect.TypeFor[uint64]():        {1, 2, 5, 100, 1_000_000},
	reflect.TypeFor[float64]():       {0.25, 1, 2, 5, 100, 1_000_000},
	reflect.TypeFor[bool]():          {true},
	reflect.TypeFor[[]lease.Limit](): limits(),
	reflect.TypeFor[[]RedisFault]():  redisFaults(),
	reflect.TypeFor[[]Partition]():   {[]Partition{{At: 20 * time.Second, For: time.Second}}},
	reflect.TypeFor[[]Group](): {
		[]Group{{}, {}},
		[]Group{{Scale: []Step{{At: 20 * time.Second, Count: 3}}}},
		[]Group{
			{Workload: &Workload{Kind: Flash, At: 20 * time.Second}},
			{Workload: &Workload{Kind: Boundary, Every: time.Millisecond}},
		},
	},
}

func limits() (all []any) {
	const hour = time.Hour
	for _, per := range []time.Duration{time.Millisecond, time.Second, hour, 24 * hour, 720 * hour} {
		all = append(all, []lease.Limit{{Tokens: 100, Per: per}}, []lease.Limit{lease.Sliding(100, per)},
			[]lease.Limit{lease.Calendar(100, per, 0)})
	}
	return all
}

func redisFaults() (all []any) {
	for _, kind := range FaultKinds {
		all = append(all, []RedisFault{{Kind: kind, At: 20 * time.Second, For: time.Second}})
	}
	return all
}

// eachSetting calls f while one field of v, or of what is in it, has one of its settings.
func eachSetting(v reflect.Value, path string, f func(what string)) {
	if values := settings[v.Type()]; values != nil {
		was := reflect.ValueOf(v.Interface())
		for _, value := range values {
			v.Set(reflect.ValueOf(value).Convert(v.Type()))
			f(fmt.Sprintf("%s is %v", path, value))
		}
		v.Set(was)
		return
	}
	if v.Kind() != reflect.Struct {
		return
	}
	for i := range v.NumField() {
		if field := v.Type().Field(i); field.IsExported() {
			eachSetting(v.Field(i), strings.TrimPrefix(path+"."+FieldName(field.Name), "."), f)
		}
	}
}

// TestNoDefaultMakesAScenarioInvalid: whatever the kind of workload, the defaults fit any setting
// that is right by itself.
func TestNoDefaultMakesAScenarioInvalid(t *testing.T) {
	tried := 0
	for _, kind := range WorkloadKinds {
		s := Scenario{Limits: []lease.Limit{lease.PerSecond(1000)}, Workload: Workload{Kind: kind}}
		if kind == Replay {
			s.Workload = replay(TraceRequest{Cost: 1}, TraceRequest{At: 29_899 * time.Millisecond, Cost: 1})
		}
		eachSetting(reflect.ValueOf(&s).Elem(), "", func(what string) {
			if s.ValidateFields() != nil {
				return
			}
			tried++
			// A field of another kind, or a time after the end of a run of 30 s, is wrong whatever else is said.
			err := s.Validate()
			ok := err == nil || strings.Contains(err.Error(), "does not read") ||
				strings.HasSuffix(err.Error(), "must be 0s to 30s") || strings.HasSuffix(err.Error(), "to 29.999999999s")
			testkit.Check(t, ok, "%s: %s: %v", kind, what, err)
		})
	}
	testkit.Check(t, tried > 1000, "%d settings were tried", tried)
}

// TestARunOfATraceLastsAsLongAsIt and the answer to its last request, whichever command runs it.
func TestARunOfATraceLastsAsLongAsIt(t *testing.T) {
	const ms = time.Millisecond
	trace := replay(TraceRequest{Cost: 1}, TraceRequest{At: 5 * time.Second, Cost: 1})
	longer, waits := replay(TraceRequest{At: time.Minute, Cost: 1}), trace
	years := replay(TraceRequest{Cost: 1}, TraceRequest{At: 700 * 24 * time.Hour, Cost: 1})
	waits.Verb, waits.Deadline = VerbWait, 300*ms
	for _, c := range []struct {
		what string
		s    Scenario
		want time.Duration
	}{
		{"a trace", Scenario{Workload: trace}, 5101 * ms},
		{"with longer calls", Scenario{Workload: trace, CallTimeout: 250 * ms}, 5251 * ms},
		{"of two years", Scenario{Workload: years}, DurationMax},
		{"whose requests wait", Scenario{Workload: waits}, 5301 * ms},
		{"a window", Scenario{Workload: trace, Limits: []lease.Limit{lease.Sliding(9, time.Hour)}},
			5101 * ms},
		{"two traces", Scenario{Groups: []Group{{Workload: &trace}, {Workload: &longer}}},
			time.Minute + 101*ms},
		{"a trace and another load", Scenario{Workload: trace, Groups: []Group{{}, {Workload: &Workload{}}}},
			30 * time.Second},
	} {
		got := c.s.Defaults().Duration
		testkit.Check(t, got == c.want, "%s lasts %v, want %v", c.what, got, c.want)
	}
}

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

// settings are values for a field of that type, from the smallest to the largest that are of use.
func settings(of reflect.Type) (values []any) {
	switch of {
	case reflect.TypeFor[time.Duration]():
		for _, d := range []time.Duration{time.Microsecond, time.Millisecond, 7 * time.Millisecond, time.Second,
			45 * time.Second, time.Hour, DurationMax} {
			values = append(values, d)
		}
	case reflect.TypeFor[DurationDist]():
		values = append(values, Constantly(time.Microsecond), Constantly(time.Second), Constantly(time.Hour),
			duration(DistExp, 1e9, 0), duration(DistUniform, 1e6, 1e10))
	case reflect.TypeFor[DriftDist]():
		values = append(values, drift("", 50, 0))
	case reflect.TypeFor[TokenDist]():
		values = append(values, TokenDist{Dist{P: 1}}, TokenDist{Dist{P: 1000}})
	case reflect.TypeFor[Cost]():
		values = append(values, Cost{Min: 1, Max: 1}, Cost{Min: 1, Max: 100})
	case reflect.TypeFor[Ratio]():
		values = append(values, Ratio(0.001), Ratio(1))
	case reflect.TypeFor[Rate]():
		values = append(values, Rate(0.1), Rate(1e6))
	case reflect.TypeFor[[]lease.Limit]():
		const hour = time.Hour
		for _, per := range []time.Duration{time.Millisecond, time.Second, hour, 24 * hour, 720 * hour} {
			for _, l := range []lease.Limit{
				{Tokens: 100, Per: per}, lease.Sliding(100, per), lease.Calendar(100, per, 0),
			} {
				values = append(values, []lease.Limit{l})
			}
		}
	case reflect.TypeFor[[]RedisFault]():
		for _, kind := range FaultKinds {
			fault := RedisFault{Kind: kind, At: time.Hour, For: time.Second, By: time.Second, Shard: 3}
			values = append(values, []RedisFault{fault})
		}
	case reflect.TypeFor[[]Partition]():
		values = append(values, []Partition{{At: time.Hour, For: time.Second}})
	case reflect.TypeFor[[]Group]():
		values = append(values, []Group{{}, {}}, []Group{{}, {Name: "group-0"}}, []Group{{Name: "group-1"}, {}, {}},
			[]Group{{Scale: []Step{{At: time.Hour, Count: 3}}}},
			[]Group{
				{Workload: &Workload{Kind: Flash, At: time.Hour}},
				{Workload: &Workload{Kind: Boundary, Every: time.Millisecond}},
			})
	default:
		switch of.Kind() {
		case reflect.Int, reflect.Int64, reflect.Uint64, reflect.Float64:
			for _, n := range []int{1, 2, 5, 100, 1_000_000} {
				values = append(values, reflect.ValueOf(n).Convert(of).Interface())
			}
			if of.Kind() == reflect.Float64 {
				values = append(values, 0.25)
			}
		case reflect.Bool:
			values = append(values, true)
		}
	}
	return values
}

// eachSetting calls f while one field of v, or of what is in it, has one of its settings.
func eachSetting(v reflect.Value, path string, f func(what string)) {
	if values := settings(v.Type()); len(values) > 0 {
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
			s.Workload = replay(TraceRequest{Cost: 1}, TraceRequest{At: time.Millisecond, Cost: 1})
		}
		eachSetting(reflect.ValueOf(&s).Elem(), "", func(what string) {
			if s.ValidateFields() != nil {
				return
			}
			tried++
			err := s.Validate() // a field of another kind is wrong whatever else is said
			ok := err == nil || strings.Contains(err.Error(), "does not read")
			testkit.Check(t, ok, "%s: %s: %v", kind, what, err)
		})
	}
	testkit.Check(t, tried > 1000, "%d settings were tried", tried)
}

package file

import (
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

func TestMarshalWritesWhatIsSet(t *testing.T) {
	s := fleet()
	s.Description = "no. 5: 50% off\n"
	s.Policy = lease.Policy{Target: 50 * time.Millisecond, Fallback: lease.FallbackDeny, StartEmpty: true}
	s.Groups[0].Clock = &scenario.Clock{}
	s.Workload = scenario.Workload{Load: 1.5, Cost: scenario.Cost{Min: 2, Max: 2}, Swing: 0.125}
	s.Network.RoundTrip = scenario.DurationDist{Dist: scenario.Dist{Kind: scenario.DistUniform, Q: 1e6}}
	s.Rivals = []string{} // as good as none
	text, err := Marshal(s)
	want := `description: |
  no. 5: 50% off
limits:
- 100/s
policy:
  target: 50ms
  fallback: deny
  start_empty: true
groups:
- name: web
  count: 20
  clock: {}
- name: a.b
  count: 5
  workload:
    kind: poisson
workload:
  load: 1.5
  cost: 2
  swing: 12.5%
network:
  round_trip: uniform(0s,1ms)
redis:
  faults:
  - kind: hang
    at: 1ns
    for: 1ns
`
	if err != nil || string(text) != want {
		t.Errorf("%v, wrote\n%s\nwant\n%s", err, text, want)
	}
}

func TestMarshalRefusesWhatAFileCannotSay(t *testing.T) {
	for what, s := range map[string]scenario.Scenario{
		"there is a trace without a file": {Groups: []scenario.Group{{Workload: &scenario.Workload{Trace: &scenario.Trace{}}}}},
		`"\xff" is not UTF-8`:             {Name: "\xff"},
		"9 is no value of lease.Fallback": {Policy: lease.Policy{Fallback: 9}},
	} {
		if text, err := Marshal(s); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: wrote\n%s\n%v", what, text, err)
		}
	}
}

// decoded reads a text without asking whether the scenario is valid.
func decoded(text []byte) (s scenario.Scenario, err error) {
	d := newDecoder("s.yaml")
	if root := d.document(text); root != nil {
		d.value("", root, reflect.ValueOf(&s).Elem())
	}
	return s, d.err()
}

func TestMarshalLosesNothing(t *testing.T) {
	rng := testkit.Rand(t)
	for range 1000 {
		// Given any scenario, valid or not, of values that have a text
		var want scenario.Scenario
		randomize(rng, reflect.ValueOf(&want).Elem())
		// When it is written and read
		text, err := Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		// Then it is equal.
		got, err := decoded(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%v: wrote\n%s\nread\n%+v\nwant\n%+v", err, text, got, want)
		}
	}
}

// randomize fills v with anything that has a text; a third of the fields stay zero.
func randomize(rng *rand.Rand, v reflect.Value) {
	if rng.IntN(3) == 0 {
		return
	}
	length := func() float64 { return float64(rng.Int64N(1 << (1 + rng.IntN(52)))) }
	switch x := v.Addr().Interface().(type) {
	case **scenario.Trace:
		return
	case *scenario.Rate:
		*x = scenario.Rate(rng.ExpFloat64() * math.Pow(10, float64(rng.IntN(20)-10)))
	case *scenario.Ratio:
		*x = scenario.Ratio(rng.Float64() * math.Pow(10, -float64(rng.IntN(20))))
	case *scenario.Cost:
		x.Min = 1 + rng.Int64N(1000)
		x.Max = x.Min + rng.Int64N(2)*rng.Int64N(1000)
	case *scenario.DurationDist:
		x.Dist = randomDist(rng, length)
	case *scenario.DriftDist:
		x.Dist = randomDist(rng, rng.ExpFloat64)
	case *lease.Limit:
		*x = lease.Limit{Tokens: 1 + rng.Int64N(1000), Per: time.Duration(1 + rng.Int64N(1e6)*1000), Burst: rng.Int64N(3) * 500}
		for x.Validate() != nil {
			x.Per = time.Millisecond
		}
		if rng.IntN(3) == 0 {
			x.Burst = x.Tokens
		}
	case *lease.Fallback:
		*x = lease.Fallback(rng.IntN(3))
	case *lease.ColdStart:
		*x = lease.ColdStart(rng.IntN(2))
	case *time.Duration:
		*x = time.Duration(rng.Uint64()) >> rng.IntN(64)
	case *string:
		letters := []rune("ab0: #'\"-?!%&*|>[]{},\\\n\t\r~=<@`.é\u0000\u0007\u0085\u2028\ufeff\U0001f600")
		for range rng.IntN(12) {
			*x += string(letters[rng.IntN(len(letters))])
		}
		if rng.IntN(4) == 0 {
			*x = []string{"null", "true", "5", "1e3", "~", "0x1", "<<", "2001-01-01", "", "-"}[rng.IntN(10)]
		}
	case *int:
		*x = int(rng.Uint64()) >> rng.IntN(64)
	case *int64:
		*x = int64(rng.Uint64()) >> rng.IntN(64)
	case *uint64:
		*x = rng.Uint64() >> rng.IntN(64)
	case *float64:
		*x = rng.NormFloat64() * math.Pow(10, float64(rng.IntN(600)-300))
	case *bool:
		*x = true
	default:
		randomParts(rng, v)
	}
}

func randomParts(rng *rand.Rand, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		randomize(rng, v.Elem())
	case reflect.Slice:
		n := 1 + rng.IntN(3)
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			// A limit of zero has no text; everything else may be zero.
			for randomize(rng, v.Index(i)); v.Index(i).IsZero() && v.Type().Elem() == reflect.TypeFor[lease.Limit](); {
				randomize(rng, v.Index(i))
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			randomize(rng, v.Field(i))
		}
	}
}

func randomDist(rng *rand.Rand, draw func() float64) scenario.Dist {
	p, q := draw(), draw()
	switch rng.IntN(6) {
	case 0:
		return scenario.Dist{P: -p}
	case 1:
		return scenario.Dist{Kind: scenario.DistUniform, P: -p, Q: q}
	case 2:
		return scenario.Dist{Kind: scenario.DistNormal, P: -p, Q: q}
	case 3:
		return scenario.Dist{Kind: scenario.DistExp, P: p}
	case 4:
		return scenario.Dist{Kind: scenario.DistLognormal, P: p + 1, Q: p + 1 + q}
	}
	return scenario.Dist{Kind: scenario.DistPareto, P: p + 1, Q: 1.5 + rng.ExpFloat64()}
}

// FuzzParse: whatever a file says, it is read, or refused with places; and what is read is written
// and read alike.
func FuzzParse(f *testing.F) {
	f.Add(string(Template()))
	f.Add(string(uncommented()))
	for _, e := range Examples() {
		f.Add(string(e.Text))
	}
	for text := range wrong {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "file") {
			t.Skip("it could name any file of this machine")
		}
		s, err := Parse("s.yaml", []byte(text))
		if err != nil {
			joined, ok := err.(interface{ Unwrap() []error })
			if !ok {
				t.Fatalf("%T is not a join of errors: %v", err, err)
			}
			for _, err := range joined.Unwrap() {
				if p, ok := err.(*problem); !ok || p.line < 1 || p.column < 1 || p.message == "" {
					t.Fatalf("the error has no place: %v", err)
				}
			}
			return
		}
		again, err := Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		back, err := Parse("s.yaml", again)
		if err != nil || !reflect.DeepEqual(back, s) {
			t.Fatalf("%v: wrote\n%s\nread\n%+v\nwant\n%+v", err, again, back, s)
		}
	})
}

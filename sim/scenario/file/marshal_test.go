package file

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/internal/yamlfile"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

func TestMarshalWritesWhatIsSet(t *testing.T) {
	s := fleet()
	s.Description = "no. 5: 50% off\n"
	s.Policy = lease.Policy{Target: 50 * time.Millisecond, Fallback: lease.FallbackDeny, StartEmpty: true}
	s.Groups[0].Workload, s.Groups = &scenario.Workload{}, s.Groups[:1]
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
  workload: {}
redis:
  faults:
  - kind: hang
    at: 1ns
    for: 1ns
`
	testkit.Check(t, err == nil && string(text) == want, "%v, wrote\n%s\nwant\n%s", err, text, want)
}

func TestMarshalRefusesWhatAFileCannotSay(t *testing.T) {
	for what, s := range map[string]scenario.Scenario{
		"there is a trace without a file": {Workload: scenario.Workload{Trace: &scenario.Trace{}}},
	} {
		text, err := Marshal(s)
		testkit.Check(t, errors.Is(err, ErrInvalid) && strings.Contains(err.Error(), what), "%s: wrote\n%s\n%v",
			what, text, err)
	}
}

func TestMarshalLosesNothing(t *testing.T) {
	rng := testkit.Rand(t)
	for range testkit.PlainOrRace(1000, 100) {
		// Given any scenario, valid or not, of values that have a text
		var want scenario.Scenario
		randomize(t, rng, reflect.ValueOf(&want).Elem())
		// When it is written and read
		text, err := Marshal(want)
		testkit.NoErr(t, err)
		// Then it is equal.
		var got scenario.Scenario
		d := newDecoder("s.yaml")
		d.Read("", text, reflect.ValueOf(&got).Elem())
		err = d.err()
		testkit.Must(t, err == nil && reflect.DeepEqual(got, want), "%v: wrote\n%s\nread\n%+v\nwant\n%+v", err, text, got, want)
	}
}

// texts are some of each type. That quantities keep all their digits is tested in package scenario.
var texts = map[reflect.Type][]string{
	reflect.TypeFor[scenario.Rate]():         {"0.1/s", "90/m", "123456789.12345679/s", "1e-10/s"},
	reflect.TypeFor[scenario.Ratio]():        {"33.333333333333336%", "0.00000000000000001%", "100%"},
	reflect.TypeFor[scenario.Cost]():         {"1", "999999999999", "uniform(1,5)"},
	reflect.TypeFor[scenario.DurationDist](): {"-1ns", "uniform(-5ms,1m0.000000001s)", "exp(0s)"},
	reflect.TypeFor[scenario.TokenDist]():    {"-1.5", "uniform(50,300)", "lognormal(1,1.5)"},
	reflect.TypeFor[scenario.DriftDist]():    {"-0.1ppm", "uniform(-1e-30ppm,1e300ppm)"},
	reflect.TypeFor[lease.Limit](): {
		"1/s", "1000/m burst 500", "500/h burst 500", "100 in 1m", "7 each 250ms", "1000 each 24h from 16h",
	},
	reflect.TypeFor[lease.Fallback]():  format.Words[reflect.TypeFor[lease.Fallback]()],
	reflect.TypeFor[lease.ColdStart](): format.Words[reflect.TypeFor[lease.ColdStart]()],
	reflect.TypeFor[time.Duration]():   {"1ns", "-2562047h47m16.854775808s", "1h0m0.5s"},
	reflect.TypeFor[bool]():            {"true"},
	reflect.TypeFor[int]():             {"1", "-9223372036854775808", "9223372036854775807"},
	reflect.TypeFor[int64]():           {"1", "-9223372036854775808", "9223372036854775807"},
	reflect.TypeFor[uint64]():          {"1", "18446744073709551615"},
	reflect.TypeFor[float64]():         {"0.1", "-1.7976931348623157e+308", "5e-324", "1000000"},
}

// randomize fills v with anything that has a text; a third of the fields stay zero.
func randomize(t *testing.T, rng *rand.Rand, v reflect.Value) {
	some, isLimit := texts[v.Type()], v.Type() == reflect.TypeFor[lease.Limit]()
	switch { // a zero Limit has no text
	case rng.IntN(3) == 0 && !isLimit, v.Type() == reflect.TypeFor[*scenario.Trace]():
	case some != nil:
		testkit.NoErr(t, format.SetScalar(v, some[rng.IntN(len(some))], true, ""))
	case v.Kind() == reflect.String:
		letters := []rune("ab0: #'\"-?!%&*|>[]{},\\\n\t\r~=<@`.é\u0000\u0007\u0085\u2028\ufeff\U0001f600")
		starts := []string{"null", "true", "5", "1e3", "~", "0x1", "<<", "2001-01-01", "", "-", "", "", "", "", ""}
		text := starts[rng.IntN(len(starts))]
		for range rng.IntN(12) {
			text += string(letters[rng.IntN(len(letters))])
		}
		v.SetString(text)
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		randomize(t, rng, v.Elem())
	case v.Kind() == reflect.Slice:
		n := 1 + rng.IntN(3)
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			randomize(t, rng, v.Index(i))
		}
	case v.Kind() == reflect.Struct:
		for _, field := range v.Fields() {
			randomize(t, rng, field)
		}
	}
}

// FuzzParse checks that any file is read, or refused with places, and that a scenario that was read
// equals itself written and read again.
func FuzzParse(f *testing.F) {
	f.Add(string(Template()))
	f.Add(string(uncommented()))
	for _, e := range Examples() {
		f.Add(string(e.Text))
	}
	for _, w := range wrong {
		f.Add(w[0])
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "file") {
			t.Skip("it could name any file of this machine")
		}
		s, err := Parse("s.yaml", []byte(text))
		if err != nil {
			for _, err := range err.(interface{ Unwrap() []error }).Unwrap() {
				p, ok := err.(*yamlfile.Problem)
				testkit.Must(t, ok && p.Line >= 1 && p.Column >= 1 && p.Text != "", "the error has no place: %v", err)
			}
			return
		}
		again, err := Marshal(s)
		testkit.NoErr(t, err)
		back, err := Parse("s.yaml", again)
		testkit.Must(t, err == nil && reflect.DeepEqual(back, s), "%v: wrote\n%s\nread\n%+v\nwant\n%+v", err, again, back, s)
	})
}

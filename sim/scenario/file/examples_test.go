package file

import (
	"errors"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/sim/scenario"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

func TestExamplesAreSmallAndExplained(t *testing.T) {
	for _, e := range Examples() {
		s, err := Load("example:" + e.Name)
		testkit.NoErr(t, err)
		testkit.Check(t, s.Name == e.Name && s.Description == e.Description && e.Description != "",
			"%s is named %q: %q", e.Name, s.Name, s.Description)
		requests := expected(s)
		testkit.Check(t, requests >= 50_000 && requests <= 5_000_000,
			"%s simulates about %.0f requests, want 50,000 to 5,000,000", e.Name, requests)
	}
	files, err := exampleFiles.ReadDir("examples")
	testkit.Check(t, err == nil && len(files) == len(exampleOrder),
		"there are %d files of %d examples: %v", len(files), len(exampleOrder), err)
	_, err = Load("example:nothing")
	const want = `no example "nothing"; there are steady-fleet, `
	testkit.Check(t, errors.Is(err, ErrInvalid) && strings.Contains(err.Error(), want), "%v", err)
}

// expected is about how many requests s simulates in all replications.
func expected(s scenario.Scenario) float64 {
	s = s.Defaults()
	seconds := s.Duration.Seconds()
	if w := s.Workload; w.Kind == scenario.Flash {
		seconds += (w.Factor - 1) * w.For.Seconds()
	}
	return s.RateOf(&s.Workload) * seconds * float64(s.Reps)
}

// commented matches the # of a line that is a field.
var commented = regexp.MustCompile(`(?m)^( *)#([^ \n])`)

func uncommented() []byte { return commented.ReplaceAll(Template(), []byte("$1$2")) }

func TestTemplateHasEveryField(t *testing.T) {
	// Given the template as leasesim init writes it, and the same with all fields
	d := newDecoder("template.yaml")
	var s scenario.Scenario
	d.Read("", uncommented(), reflect.ValueOf(&s).Elem())
	testkit.NoErr(t, d.err())
	has := map[string]bool{}
	number := regexp.MustCompile(`\[[0-9]+\]`)
	for path := range d.Places {
		has[number.ReplaceAllString(path, "[]")] = true
	}
	// Then every path is there. The fields of a group's own workload stand at workload.
	for _, path := range paths() {
		stands := path
		if field, ok := strings.CutPrefix(path, "groups[].workload."); ok {
			stands = "workload." + field
		}
		if stands == "rivals[]" { // whose names package rival knows
			continue
		}
		testkit.Check(t, has[stands], "the template lacks %s", path)
	}
}

func TestTemplateSaysTheDefaults(t *testing.T) {
	as, err := Parse("template.yaml", Template())
	testkit.NoErr(t, err)
	all, err := Parse("template.yaml", uncommented())
	testkit.NoErr(t, err)
	for i, g := range all.Groups {
		testkit.Check(t, g.Workload != nil && len(g.Scale) != 0,
			"the commented-out sections are not there: %+v", g)
		// These are examples and no defaults.
		all.Groups[i].Workload, all.Groups[i].Scale = nil, nil
		all.Groups[i].RoundTrip = scenario.DurationDist{}
	}
	all.Network.Partitions, all.Redis.Faults = nil, nil
	// The other fields mean the same whether they are given or not.
	said, unsaid := all.Defaults(), as.Defaults()
	config, same := said.Policy.ConfigFor(said.Limits, 0, said.CallTimeout),
		unsaid.Policy.ConfigFor(unsaid.Limits, 0, unsaid.CallTimeout)
	config.CallsPerSecond = 0 // a Target that is given, even the default, is not made longer
	testkit.Check(t, reflect.DeepEqual(config, same),
		"with the policy's defaults given, the configuration is\n%+v, not\n%+v", config, same)
	said.Policy = unsaid.Policy
	testkit.Check(t, reflect.DeepEqual(said, unsaid), "with the defaults, the scenario is\n%+v, not\n%+v", said, unsaid)
}

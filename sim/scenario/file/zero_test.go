package file

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// alike reports whether a and b are equal apart from Zeros.
func alike(a, b scenario.Scenario) bool {
	a.Zeros, b.Zeros = nil, nil
	return reflect.DeepEqual(a, b)
}

func TestAZeroThatIsGivenIsAZeroOrIsRefused(t *testing.T) {
	all, err := Parse("template.yaml", uncommented())
	testkit.NoErr(t, err)
	refused, kept := 0, 0
	for _, path := range Paths() {
		path = strings.ReplaceAll(path, "[]", "[0]")
		for _, text := range []string{"0", "0s", "0%", "0/s", "false"} {
			// Given a scenario with a value in each field, when one of them is set to zero,
			s := all
			err := Set(&s, path+"="+text)
			if err != nil {
				refused += strings.Count(err.Error(), "means its default")
				continue
			}
			// then it is zero in the scenario that runs, or nothing but zero is drawn from it.
			kept++
			for _, d := range Differences(s, s.Defaults()) {
				testkit.Check(t, !strings.HasPrefix(d.Path, path), "%s=%s runs as %s", path, text, d.Second)
			}
		}
	}
	testkit.Check(t, refused > 30 && kept > 30, "%d are refused and %d kept", refused, kept)
}

func TestAZeroSaysWhatItWouldMean(t *testing.T) {
	const means = "which means its default here: "
	for assignment, want := range map[string]string{
		"workload.load=-0":               "workload.load: is 0, " + means + "0.9; leave it out, or give",
		"policy.min_batch=0":             "policy.min_batch: is 0, " + means + "1; ",
		"duration=0":                     "duration: is 0s, " + means + "30s; ",
		"workload.rate=0/s":              "workload.rate: is 0/s, " + means + "a load of 0.9; ",
		"groups[0].workload={rate: 0/s}": "groups[0].workload.rate: is 0/s, " + means + "a load of 0.9; ",
	} {
		s := fleet()
		err := Set(&s, assignment)
		wrong := errors.Is(err, ErrInvalid) && strings.HasPrefix(err.Error(), want)
		testkit.Check(t, wrong, "%s: %v\nwant %s", assignment, err, want)
	}
	// In a file it is reported with its place.
	_, err := Parse("a.yaml", []byte("limits: [5/s]\ngroups:\n  - count: 0\n"))
	testkit.Check(t, err != nil && strings.HasPrefix(err.Error(), "a.yaml:3:12: groups[0].count: is 0, "+means),
		"%v", err)
}

// A zero stays one, or is refused, whatever is set before and after it, unless it is given anew.
func TestAGivenZeroIsNoDefaultLater(t *testing.T) {
	const headroom, flash = "groups: [{headroom: 0}]", "groups: [{workload: {kind: flash, factor: 2}}]"
	for _, c := range []struct {
		given, later string // assignments with "; " between them
		want         string // after which a zero means this
	}{
		{headroom, "policy.headroom=0.3", "groups[0].headroom: is 0, which means its default here: 0.3"},
		{"groups: [{shadow: false}]", "policy.shadow=true",
			"groups[0].shadow: is false, which means its default here: true"},
		{"workload: {kind: sync, within: 0s}", "workload.kind=boundary",
			"workload.within: is 0s, which means its default here: 10ms"},
		{"workload: {load: 0, rate: 5/s}", "workload.rate=0/s",
			"workload.load: is 0, which means its default here: 0.9"},
		{headroom, "groups=[{count: 3}]; policy.headroom=0.3", "<nil>"},
		{flash, "groups[0].workload.factor=0; groups[0].count=5", "groups[0].workload.factor: is 0, which means"},
		{flash, "groups[0].workload={factor: 0}; groups[0].workload={kind: flash}", "<nil>"},
		{flash, "workload.load=0; workload.rate=5/s; policy.target=0; policy.target=50ms", "<nil>"},
		{flash, "groups[0].workload={load: 0, rate: 5/s}; groups[0].workload={load: 2}", "<nil>"},
	} {
		s, err := Parse("a.yaml", []byte("limits: [5/s]\n"+c.given+"\n"))
		testkit.NoErr(t, err)
		testkit.NoErr(t, Set(&s, "seed=7")) // a call of its own, which knows the zeros of the file from s alone
		err = Set(&s, strings.Split(c.later, "; ")...)
		ok := strings.HasPrefix(fmt.Sprint(err), c.want) && (err == nil) == (c.want == "<nil>")
		testkit.Check(t, ok, "%s, then %s: %v", c.given, c.later, err)
	}
}

// A distribution of zero draws zero, also after it was written and read, or after another element of
// its list was set.
func TestADistributionOfZeroDrawsZero(t *testing.T) {
	s := fleet()
	testkit.NoErr(t, Set(&s, "network.round_trip=0ms", "redis.service_time=0ms"))
	text, err := Marshal(s)
	testkit.NoErr(t, err)
	again, err := Parse("again.yaml", text)
	testkit.NoErr(t, err)
	testkit.Check(t, again.Hash() == s.Hash(), "read again from\n%s", text)
	testkit.NoErr(t, Set(&s, "groups[1].count=3", "groups[1].round_trip=0s"))
	testkit.Check(t, !s.Groups[1].RoundTrip.IsZero(), "a round trip of 0 is that of the network")
	s = s.Defaults()
	means := s.Groups[1].RoundTrip.Mean() + s.Network.RoundTrip.Mean() + s.Redis.ServiceTime.Mean()
	testkit.Check(t, means == 0, "the means are %v", means)
}

// TestAFaultSaysWhenItBegins: a moment that is left out is a mistake, and a given zero is the start.
func TestAFaultSaysWhenItBegins(t *testing.T) {
	for _, list := range []string{"redis: {faults: [{%skind: hang, for: 1s}]}", "network: {partitions: [{%sfor: 1s}]}"} {
		for at, ok := range map[string]bool{"": false, "at: 0s, ": true, "at: 2s, ": true} {
			_, err := Parse("fault", fmt.Appendf(nil, "{limits: [1/s], "+list+"}", at))
			testkit.Check(t, (err == nil) == ok, list+": %v", at, err)
		}
	}
}

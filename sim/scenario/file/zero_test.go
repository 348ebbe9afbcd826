package file

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// paths lists all fields, with [] for the elements of a list.
func paths() []string { return format.Paths("", reflect.TypeFor[scenario.Scenario]()) }

func TestAZeroThatIsGivenIsAZeroOrIsRefused(t *testing.T) {
	all, err := Parse("template.yaml", uncommented())
	testkit.NoErr(t, err)
	refused, kept := 0, 0
	for _, path := range paths() {
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

func TestAZeroThatIsGivenAnewIsForgotten(t *testing.T) {
	s := fleet()
	testkit.NoErr(t, Set(&s, "groups[0].workload={factor: 0}", "groups[0].workload={kind: flash}", "workload.load=0",
		"workload.rate=5/s", "policy.target=0", "policy.target=50ms"))
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

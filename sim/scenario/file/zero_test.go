package file

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// alike reports whether a and b are equal, but for what was said to be zero.
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
			// Given a scenario that says something in each field, when one of them is set to zero,
			s := all
			err := Set(&s, path+"="+text)
			if err != nil {
				if strings.Contains(err.Error(), "means its default") {
					refused++
				}
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
	for assignment, want := range map[string]string{
		"workload.load=0":                "workload.load: is 0, which means its default here: 0.9; leave it out, or give another value",
		"workload.factor=0":              "workload.factor: is 0, which means its default here: 10; ",
		"groups[0].count=0":              "groups[0].count: is 0, which means its default here: 1; ",
		"groups.web.weight=0":            "groups[0].weight: is 0, which means its default here: 1; ",
		"policy.max_batch=0":             "policy.max_batch: is 0, which means its default here: what the limit can give; ",
		"duration=0":                     "duration: is 0s, which means its default here: 30s; ",
		"workload.rate=0/s":              "workload.rate: is 0/s, which means its default here: a load of 0.9; ",
		"groups[0].workload={rate: 0/s}": "groups[0].workload.rate: is 0/s, which means its default here: a load of 0.9; ",
		"groups[0].shadow=no":            "", // not read at all
		"policy.overcommit=0":            "", // which has no default
		"clock.offset=0s":                "",
		"network.round_trip=0s":          "",
	} {
		s := fleet()
		s.Workload.Load, s.Workload.Rate = 0, 0
		err := Set(&s, assignment)
		if want == "" {
			testkit.Check(t, err == nil || !strings.Contains(err.Error(), "default"), "%s: %v", assignment, err)
			continue
		}
		testkit.Check(t, errors.Is(err, ErrInvalid) && strings.HasPrefix(err.Error(), want), "%s: %v\nwant %s",
			assignment, err, want)
	}
	// In a file it is said with its place.
	_, err := Parse("a.yaml", []byte("limits: [5/s]\ngroups:\n  - count: 0\n"))
	testkit.Check(t, err != nil && strings.HasPrefix(err.Error(), "a.yaml:3:12: groups[0].count: is 0, which means"),
		"%v", err)
	// A zero that another assignment makes right is right.
	s := fleet()
	testkit.NoErr(t, Set(&s, "workload.load=0", "workload.rate=5/s", "policy.target=0", "policy.target=50ms"))
	testkit.NoErr(t, Set(&s, "groups[0].workload={load: 0, rate: 5/s}", "groups[0].workload={load: 2}"))
}

func TestWhatIsSetLaterInAListDoesNotTakeAZeroAway(t *testing.T) {
	// Given a zero in a list, when something else in that list is set,
	s := fleet()
	testkit.NoErr(t, Set(&s, "groups[0].workload={kind: closed}", "groups[0].workload.think=0s",
		"groups[0].workload.clients=5", "groups[0].count=3"))
	// then nothing but zero is drawn;
	think := s.Defaults().Groups[0].Workload.Think
	testkit.Check(t, think.Mean() == 0, "a think time of 0s has the mean %v", think.Mean())
	// and a zero that is a default is refused,
	err := Set(&s, "groups[0].workload={kind: flash}", "groups[0].workload.factor=0", "groups[0].count=5")
	testkit.Check(t, err != nil && strings.Contains(err.Error(), "groups[0].workload.factor: is 0, which means"), "%v", err)
	// unless it was replaced.
	testkit.NoErr(t, Set(&s, "groups[0].workload={kind: flash, factor: 0}", "groups[0].workload={kind: flash}"))
	testkit.NoErr(t, Set(&s, "groups[0].count=0", "groups[0].count=5"))
}

func TestAZeroThatWasGivenBeforeIsNoDefaultLater(t *testing.T) {
	for _, c := range []struct{ given, later, want string }{
		{"groups: [{headroom: 0}]", "policy.headroom=0.3", "groups[0].headroom: is 0, which means its default here: 0.3"},
		{"groups: [{shadow: false}]", "policy.shadow=true", "groups[0].shadow: is false, which means its default here: true"},
		{"workload: {kind: sync, within: 0s}", "workload.kind=boundary", "workload.within: is 0s, which means its default here: 10ms"},
		{"workload: {load: 0, rate: 5/s}", "workload.rate=0/s", "workload.load: is 0, which means its default here: 0.9"},
		{"groups: [{headroom: 0}]", "groups=[{count: 3}] policy.headroom=0.3", ""}, // is given anew
		{"groups: [{headroom: 0}]", "policy.overcommit=3", ""},
	} {
		// Given a file with a zero that is one there, when another field is set, in one assignment more,
		s, err := Parse("a.yaml", []byte("limits: [5/s]\n"+c.given+"\n"))
		testkit.NoErr(t, err)
		testkit.NoErr(t, Set(&s, "seed=7"))
		for _, assignment := range strings.SplitAfter(c.later, "] ") {
			if err = Set(&s, strings.TrimSpace(assignment)); err != nil {
				break
			}
		}
		// then it is still zero, or refused.
		told := err != nil && strings.HasPrefix(err.Error(), c.want)
		testkit.Check(t, told && c.want != "" || err == nil && c.want == "", "%s, then %s: %v", c.given, c.later, err)
	}
}

func TestARoundTripOfZeroTakesNoTime(t *testing.T) {
	for _, path := range []string{"network.round_trip", "redis.service_time"} {
		s := fleet()
		testkit.NoErr(t, Set(&s, path+"=0ms"))
		s = s.Defaults()
		of := map[string]scenario.DurationDist{
			"network.round_trip": s.Network.RoundTrip, "redis.service_time": s.Redis.ServiceTime,
		}[path]
		testkit.Check(t, of.Mean() == 0, "%s=0ms has the mean %v", path, of.Mean())
		// And a file that is written from it says so, too.
		text, err := Marshal(s)
		testkit.NoErr(t, err)
		again, err := Parse("again.yaml", text)
		testkit.NoErr(t, err)
		testkit.Check(t, again.Defaults().Hash() == s.Hash(), "%s is another after it was written:\n%s", path, text)
	}
}

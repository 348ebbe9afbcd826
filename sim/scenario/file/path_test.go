package file

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

func fleet() scenario.Scenario {
	return scenario.Scenario{
		Limits: []lease.Limit{lease.PerSecond(100)},
		Groups: []scenario.Group{{Name: "web", Count: 20},
			{Name: "a.b", Count: 5, Workload: &scenario.Workload{Kind: scenario.Poisson}}},
		Redis: scenario.Redis{Faults: []scenario.RedisFault{{Kind: scenario.FaultHang, At: 1, For: 1}}},
	}
}

func TestSetChangesOneFieldWhichIsTheDifference(t *testing.T) {
	for assignment, want := range map[string]string{
		"policy.target=50ms":           "policy.target: 0s -> 50ms",
		" policy.ttl = 2s # seconds":   "policy.ttl: 0s -> 2s",
		"policy.fallback=deny":         "policy.fallback: local_share -> deny",
		"groups[0].count=300":          "groups[0].count: 20 -> 300",
		"groups.web.count=300":         "groups[0].count: 20 -> 300",
		"groups[a.b].count=300":        "groups[1].count: 5 -> 300",
		"groups.web.workload={}":       "groups[0].workload: left out -> there",
		"groups[1].workload=null":      "groups[1].workload: there -> left out",
		"groups[1].workload.kind=sync": "groups[1].workload.kind: poisson -> sync",
		"groups[1].workload={load: 2}": "groups[1].workload.kind: poisson -> ; groups[1].workload.load: 0 -> 2",
		"groups=[{}]": "groups: [{name: web, count: 20}, " +
			"{name: a.b, count: 5, workload: {kind: poisson}}] -> [{}]",
		"redis.faults=[]":         "redis.faults: [{kind: hang, at: 1ns, for: 1ns}] -> []",
		"redis.faults[0].for=3ns": "redis.faults[0].for: 1ns -> 3ns",
		"redis={shards: 3}": "redis.shards: 0 -> 3; " +
			"redis.faults: [{kind: hang, at: 1ns, for: 1ns}] -> []",
		"limits=[5/s, 7/m burst 3]":        "limits: [100/s] -> [5/s, 7/m burst 3]",
		"limits[0]=5/s burst 9":            "limits[0]: 100/s -> 5/s burst 9",
		"limits[0]=100 each 1m from 3s":    "limits[0]: 100/s -> 100 each 1m from 3s",
		"network.round_trip=uniform(0,1s)": "network.round_trip: 0s -> uniform(0s,1s)",
		"name=a: b # c":                    "name: before -> a: b # c",
		"name=":                            "name: before -> ",
		`name='it''s' # quoted`:            "name: before -> it's",
		"rivals=[gcra/server, split]":      "rivals: [] -> [gcra/server, split]",
	} {
		s := fleet()
		s.Name = "before"
		before := s
		err := Set(&s, assignment)
		var got []string
		for _, d := range Differences(before, s) {
			got = append(got, d.Path+": "+d.First+" -> "+d.Second)
		}
		ok := err == nil && strings.Join(got, "; ") == want
		testkit.Check(t, ok, "%s: %v, %q; want %s", assignment, err, got, want)
		isLimit := strings.HasPrefix(assignment, "limits[0]")
		testkit.Check(t, !isLimit || before.Hash() != s.Hash(), "%s: the hash is the same", assignment)
	}
	// A section that was missing has the fields that were set, and no others.
	s := fleet()
	testkit.NoErr(t, Set(&s, "groups.web.workload.kind=onoff"))
	testkit.NoErr(t, Set(&s, "groups.web.workload.on=1s"))
	want := scenario.Workload{Kind: scenario.OnOff, On: time.Second}
	testkit.Check(t, *s.Groups[0].Workload == want, "the workload is %+v", s.Groups[0].Workload)
}

func TestSetKnowsTheGroupThatDefaultsGives(t *testing.T) {
	for _, path := range []string{"groups[0].count", "groups.all.count"} {
		s := scenario.Scenario{Limits: []lease.Limit{lease.PerSecond(100)}}
		testkit.NoErr(t, Set(&s, path+"=7"))
		want := scenario.Scenario{Limits: s.Limits}.Defaults()
		want.Groups[0].Count, want.Groups[0].Share = 7, 7
		got := s.Defaults()
		testkit.Check(t, reflect.DeepEqual(got, want), "%s: %+v, want %+v", path, got, want)
	}
}

func TestSetSaysWhatIsWrongAndChangesNothing(t *testing.T) {
	for assignment, want := range map[string]string{
		"policy.target":           "policy.target: has no value; an assignment is like policy.target=50ms",
		"policy.target=50":        `policy.target: is "50", which has no unit`,
		"policy.target=":          "policy.target: is empty",
		"policy.target=[":         "policy.target: did not find expected node content",
		"policy.target=5s\n---\n": "policy.target: there is more than one document",
		"policy.traget=1s":        "policy.traget: unknown field; did you mean policy.target?",
		"target=50ms":             "target: unknown field; did you mean policy.target?",
		"=1":                      "is not a path like policy.target or groups[0].count",
		"policy.=1":               "policy.: is not a path",
		"limits[0=1/s":            "limits[0: is not a path",
		"policy[0]=1":             "policy: is not a list, so [0] is not in it",
		"policy.target.ms=1": `policy.target: is a duration like 100ms, 2s or 1h30m, ` +
			`of at most 292 years and has no part "ms"`,
		"limits[1]=5/s":          "limits[1]: is not there: the list has 1 elements, from [0] on",
		"limits.first=5/s":       `limits: is a list; an element of it is limits[0], not "first"`,
		"limits=5/s":             `limits: is "5/s", must be a list, like [1000/s burst 200]`,
		"groups.db.count=5":      `groups: have no group "db"; there are web, a.b`,
		"groups.web.count=many":  `groups[0].count: is "many", must be a whole number`,
		"workload.file=none.csv": "workload.file: trace: ",
	} {
		s := fleet()
		err := Set(&s, assignment)
		testkit.Check(t, errors.Is(err, ErrInvalid) && strings.HasPrefix(err.Error(), want),
			"%s: %v\nwant an ErrInvalid that begins with %s", assignment, err, want)
		testkit.Check(t, reflect.DeepEqual(s, fleet()), "%s: the scenario has changed to %+v", assignment, s)
	}
}

func TestSetLeavesCopiesAlone(t *testing.T) {
	// Given a scenario and its copy, which share lists and pointers
	s := fleet()
	s.Workload.Trace = &scenario.Trace{}
	same := s
	// When everything that is shared is set in one of them
	testkit.NoErr(t, Set(&same, "limits[0]=5/s", "groups[0].count=9", "groups[1].workload.kind=sync",
		"redis.faults[0].at=9s"))
	// Then the other is as it was, and traces, which may be large, are not copied.
	want := fleet()
	want.Workload.Trace = same.Workload.Trace
	asIs := reflect.DeepEqual(s, want) && s.Workload.Trace == want.Workload.Trace
	testkit.Check(t, asIs, "%+v, want %+v", s, want)
}

func TestSetReadsTheTraceOfAFile(t *testing.T) {
	path, other := written(t, "t.csv", requests), written(t, "t.csv", requests+"2,a\n")
	s := fleet()
	testkit.NoErr(t, Set(&s, "groups[1].workload.file="+path))
	w := *s.Groups[1].Workload
	testkit.Must(t, w.Trace != nil && len(w.Trace.Requests) == 2, "the trace is %+v", w)
	// When another field is set, the trace stays, and its file is not read again.
	s.Groups[1].Workload.File = "gone.csv"
	err := Set(&s, "groups[1].workload.load=2")
	now := func() *scenario.Workload { return s.Groups[1].Workload }
	testkit.Check(t, err == nil && now().Trace == w.Trace, "%v, the trace is %+v", err, now())
	// When another file is set, its trace takes the place of the first.
	testkit.Check(t, Set(&s, "groups.a.b.workload.file="+other) != nil, "a name with a dot needs brackets")
	err = Set(&s, "groups[a.b].workload.file="+other)
	replaced := err == nil && len(now().Trace.Requests) == 3 && now().Trace.Sum != w.Trace.Sum
	testkit.Check(t, replaced, "%v, %+v", err, now())
	err = Set(&s, "groups[1].workload.file=")
	testkit.Check(t, err == nil && now().Trace == nil, "%v, %+v", err, now())
}

func TestEveryFieldIsADifference(t *testing.T) {
	first, err := Parse("template.yaml", uncommented())
	testkit.NoErr(t, err)
	first = first.Defaults()
	first.Rivals = []string{"a"}
	testkit.Must(t, Differences(first, first) == nil, "a scenario differs from itself")
	for _, path := range paths() {
		path = strings.ReplaceAll(path, "[]", "[0]")
		if strings.HasSuffix(path, ".file") { // whose trace is looked for
			continue
		}
		// Given two scenarios of which one has a field, or a list, zero,
		second := first
		newDecoder("").assign("", pathPart.FindAllString(path, -1), "", reflect.ValueOf(&second).Elem())
		if reflect.DeepEqual(second, first) {
			continue
		}
		// then that is the difference, and set as it is shown it is none.
		all := Differences(first, second)
		testkit.Must(t, len(all) == 1 && all[0].Path == path && all[0].First != all[0].Second, "%s: %+v", path, all)
		err := Set(&second, path+"="+all[0].First)
		same := err == nil && reflect.DeepEqual(first, second)
		testkit.Check(t, same, "%s=%s: %v\n%+v, want\n%+v", path, all[0].First, err, second, first)
	}
}

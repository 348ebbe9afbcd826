package file

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/yuzhi-go/yuzhi/internal/yamlfile"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
	"github.com/yuzhi-go/yuzhi/sim/scenario/trace"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

func TestParseReadsEveryType(t *testing.T) {
	got, err := Parse("s.yaml", []byte(`
name: 2024
description: |
  two
  lines
duration: 1m30s
warmup: 0
seed: 9007199254740991
limits: [100/s, "5000/m burst 200"]
policy: {ttl: 250ms, max_batch: 20, weight: 3, cold_start: allow, fallback: deny, start_empty: true}
keys: {count: 7, zipf: 1e0}
clock: {offset: "uniform(-1s,10s)", drift: 50ppm}
groups:
  - &small
    name: a
    count: 2
    skew: .5
  - name: b
    clock: {}
    workload: {kind: closed, think: exp(5ms)}
    pauses: {every: 1m, for: "lognormal(1ms,2ms)"}
    scale: [{at: 1s, count: 0, kill: true}]
    # everything in here is commented out:
    restarts:
workload: {kind: diurnal, rate: 90/m, cost: "uniform(1, 5)", swing: 12.5%}
network:
  round_trip: pareto(1ms,1.5)
redis:
  faults: []
rivals: []
`))
	testkit.NoErr(t, err)
	want := scenario.Scenario{
		Name: "2024", Description: "two\nlines\n", Duration: 90 * time.Second, Seed: 1<<53 - 1,
		Limits: []lease.Limit{lease.PerSecond(100), lease.PerMinute(5000).WithBurst(200)},
		Policy: lease.Policy{TTL: 250 * time.Millisecond, MaxBatch: 20, Weight: 3, ColdStart: lease.ColdStartAllow, Fallback: lease.FallbackDeny, StartEmpty: true},
		Keys:   scenario.Keys{Count: 7, Zipf: 1},
		Clock: scenario.Clock{
			Offset: scenario.DurationDist{Dist: scenario.Dist{Kind: scenario.DistUniform, P: -1e9, Q: 1e10}},
			Drift:  scenario.DriftDist{Dist: scenario.Dist{P: 50}},
		},
		Groups: []scenario.Group{{Name: "a", Count: 2, Skew: 0.5}, {
			Name: "b", Clock: &scenario.Clock{},
			Workload: &scenario.Workload{Kind: scenario.Closed, Think: scenario.DurationDist{Dist: scenario.Dist{Kind: scenario.DistExp, P: 5e6}}},
			Pauses:   scenario.Stops{Every: time.Minute, For: scenario.DurationDist{Dist: scenario.Dist{Kind: scenario.DistLognormal, P: 1e6, Q: 2e6}}},
			Scale:    []scenario.Step{{At: time.Second, Kill: true}},
		}},
		Workload: scenario.Workload{Kind: scenario.Diurnal, Rate: 1.5, Cost: scenario.Cost{Min: 1, Max: 5}, Swing: 0.125},
		Network:  scenario.Network{RoundTrip: scenario.DurationDist{Dist: scenario.Dist{Kind: scenario.DistPareto, P: 1e6, Q: 1.5}}},
	}
	testkit.Check(t, alike(got, want), "read\n%+v\nwant\n%+v", got, want)
}

func TestAnAliasStandsForItsAnchor(t *testing.T) {
	s, err := Parse("s.yaml", []byte("limits: [&l 7/s burst 3, *l]\ngroups:\n- {name: a, pauses: &p {every: 1s, for: 2ms}}\n- {name: b, restarts: *p}\n"))
	testkit.NoErr(t, err)
	if s.Limits[1] != lease.PerSecond(7).WithBurst(3) || s.Groups[1].Restarts != s.Groups[0].Pauses {
		t.Errorf("%+v", s)
	}
}

// wrong is files and the one error that each has, by its beginning.
var wrong = map[string]string{
	"":                        "s.yaml:1:1: is empty",
	"---\n":                   "s.yaml:1:1: is empty",
	"# nothing\n":             "s.yaml:1:1: is empty",
	"---\n~\n":                "s.yaml:1:1: is empty",
	"[1/s]":                   "s.yaml:1:1: is a list, must be a mapping with the fields name, description, ",
	"limits: [1/s\n":          "s.yaml:2:1: did not find",
	"a: b: c":                 "s.yaml:1:5: mapping values are not allowed",
	"limits:\n\t- x":          "s.yaml:2:1: the line begins with a tab; YAML takes spaces only",
	"name: *n":                "s.yaml:1:7: unknown anchor 'n'",
	"name: a\x00":             "s.yaml:1:8: there is a byte that is not text",
	"x: é\ny: \xff":           "s.yaml:2:4: there is a byte that is not text",
	"name: a\n---\nname: b\n": "s.yaml:2:1: there is more than one document",
	"name: a\n---\nb: [":      "s.yaml:3:5: did not find",

	// Names
	"limits: [1/s]\nduratoin: 5s":                           "s.yaml:2:1: duratoin: unknown field; did you mean duration?",
	"limits: [1/s]\npolicy: {TTL: 1s}":                      "s.yaml:2:10: policy.TTL: unknown field; did you mean policy.ttl?",
	"limits: [1/s]\nredis: {shard: 3}":                      "s.yaml:2:9: redis.shard: unknown field; did you mean redis.shards?",
	"limits: [1/s]\ntarget: 5s":                             "s.yaml:2:1: target: unknown field; did you mean policy.target?",
	"limits: [1/s]\nnetwork:\n  lots: 1%":                   "s.yaml:3:3: network.lots: unknown field",
	"limits: [1/s]\nworkload: {trace: x}":                   "s.yaml:2:12: workload.trace: unknown field",
	"limits: [1/s]\n? [a]\n: b":                             "s.yaml:2:3: has a name that is not a word",
	"limts: [1/s]":                                          "s.yaml:1:1: limts: unknown field; did you mean limits?",
	"limits: [1/s]\nseed: 1\nname: x\nseed: 2":              "s.yaml:4:1: seed: is there twice, first in line 2",
	"limits: [1/s]\nkeys: &k {count: 1}\nnetwork: {<<: *k}": "s.yaml:3:11: network: has a merge key, which is not read",

	// Types
	"limits: 1/s":                                 `s.yaml:1:9: limits: is "1/s", must be a list, like [1000/s burst 200]`,
	"limits: [{tokens: 1}]":                       "s.yaml:1:10: limits[0]: is a mapping, must be a limit, like 1000/s burst 200",
	"limits: [100 each month]":                    "s.yaml:1:10: limits[0]: \"100 each month\": a period has a fixed length",
	"limits: [100 in 1m burst 5]":                 "s.yaml:1:10: limits[0]: \"100 in 1m burst 5\": \"burst 5\" is not understood",
	"limits: [1/s]\nkeys: 5":                      `s.yaml:2:7: keys: is "5", must be a mapping with the fields count, zipf`,
	"limits: [1/s]\nreps: many":                   `s.yaml:2:7: reps: is "many", must be a whole number`,
	"limits: [1/s]\nreps: 1.5":                    `s.yaml:2:7: reps: is "1.5", must be a whole number`,
	"limits: [1/s]\nreps: 010":                    `s.yaml:2:7: reps: is "010", must be a whole number`,
	"limits: [1/s]\nreps: 0x10":                   `s.yaml:2:7: reps: is "0x10", must be a whole number`,
	"limits: [1/s]\nreps: '5'":                    `s.yaml:2:7: reps: is the text "5", must be a whole number`,
	"limits: [1/s]\nreps:":                        "s.yaml:2:6: reps: has no value, must be a whole number",
	"limits: [1/s]\nreps: 9223372036854775808":    "s.yaml:2:7: reps: is \"9223372036854775808\", must be a whole number, below 2^63",
	"limits: [1/s]\nseed: -1":                     `s.yaml:2:7: seed: is "-1", must be a whole number, 0 or more`,
	"limits: [1/s]\nseed: 18446744073709551616":   "s.yaml:2:7: seed: is \"18446744073709551616\", must be a whole number, 0 or more and below 2^64",
	"limits: [1/s]\nworkload: {load: .inf}":       `s.yaml:2:18: workload.load: is ".inf", must be a number like 0.9`,
	"limits: [1/s]\nworkload: {load: 1e999}":      `s.yaml:2:18: workload.load: is "1e999", must be a number like 0.9, below 1.8e308`,
	"limits: [1/s]\nworkload: {load: 1_0}":        `s.yaml:2:18: workload.load: is "1_0", must be a number like 0.9`,
	"limits: [1/s]\nredis: {client_time: yes}":    `s.yaml:2:22: redis.client_time: is "yes", must be true or false`,
	"limits: [1/s]\nredis: {client_time: 'true'}": `s.yaml:2:22: redis.client_time: is the text "true", must be true or false`,
	"limits: [1/s]\nname: [a]":                    "s.yaml:2:7: name: is a list, must be a text",
	"limits: [1/s]\nname: !!str a":                "s.yaml:2:7: name: has the tag !!str",
	"limits: [1/s]\nrivals: [central, central]":   `s.yaml:2:19: rivals[1]: is "central", which is rivals[0] too`,
	"limits: [1/s]\nworkload: {load: 90%}":        `s.yaml:2:18: workload.load: is "90%", must be a number like 0.9, below 1.8e308`,
	"limits: [1/s]\nrivals: [[a]]":                "s.yaml:2:10: rivals[0]: is a list, must be a text",

	"limits: [1/s]\nworkload: {load: '2'}": `s.yaml:2:18: workload.load: is the text "2", must be a number`,

	// Quantities
	"limits: [1]":                              `s.yaml:1:10: limits[0]: "1": no "/" between tokens and period`,
	"limits: [1/s]\nduration: 100":             `s.yaml:2:11: duration: is "100", which has no unit: a duration is like 100ms`,
	"limits: [1/s]\nduration: '100'":           `s.yaml:2:11: duration: is "100", which has no unit`,
	"limits: [1/s]\nduration: 5 s":             `s.yaml:2:11: duration: is "5 s", must be a duration like 100ms`,
	"limits: [1/s]\nduration: 9999999999h":     `s.yaml:2:11: duration: is "9999999999h", must be a duration like 100ms, 2s or 1h30m, of at most 292 years`,
	"limits: [1/s]\nworkload: {rate: 5}":       `s.yaml:2:18: workload.rate: "5" has no unit: a rate is like 1200/s`,
	"limits: [1/s]\nnetwork: {loss: 0.5}":      `s.yaml:2:17: network.loss: "0.5" has no unit: a ratio is in percent`,
	"limits: [1/s]\nnetwork: {loss: -1%}":      `s.yaml:2:17: network.loss: "-1%" must be 0% to 100%`,
	"limits: [1/s]\nnetwork: {round_trip: 5}":  `s.yaml:2:23: network.round_trip: "5" is not a duration with a unit`,
	"limits: [1/s]\nclock: {drift: 5}":         `s.yaml:2:16: clock.drift: "5" has no unit: a drift is like 50ppm`,
	"limits: [1/s]\npolicy: {fallback: denny}": `s.yaml:2:20: policy.fallback: is "denny", must be local_share or deny or allow_all; did you mean deny?`,
	"limits: [1/s]\nworkload: {cost: 0}":       `s.yaml:2:18: workload.cost: "0" must be 1 or more`,

	// What Scenario.Validate finds, at its field or at the nearest section that is there
	"name: a":                      "s.yaml:1:1: limits: there are 0, must be 1 to 4",
	"name: a\nlimits: []":          "s.yaml:2:1: limits: there are 0, must be 1 to 4",
	"limits: [1/s]\nduration: -5s": "s.yaml:2:11: duration: is -5s, must be 1ms to 720h0m0s",
	"limits: [1/s]\nnetwork:\n  round_trip: -1ms":                            "s.yaml:3:15: network.round_trip: is -1ms, must not be negative",
	"limits: [1/s]\nredis:\n  faults:\n  - at: 1s\n    for: 1s":              "s.yaml:4:5: redis.faults[0].kind: is \"\", must be one of outage",
	"limits: [1/s]\ngroups:\n  - name: a\n    workload:\n      kind: replay": `s.yaml:4:5: groups[0].workload.file: is "": there is no trace`,
}

func TestParseSaysWhereAndWhat(t *testing.T) {
	for text, want := range wrong {
		_, err := Parse("s.yaml", []byte(text))
		if !errors.Is(err, ErrInvalid) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q:\n%v\nwant an ErrInvalid that begins with\n%s", text, err, want)
		} else if more := strings.Count(err.Error(), "\n"); more > 0 {
			t.Errorf("%q: %d errors follow from the one that counts:\n%v", text, more, err)
		}
	}
}

func TestParseReportsAllErrorsInOrder(t *testing.T) {
	_, err := Parse("dir/s.yaml", []byte(`warmup: 2h
limits:
  - 100/s
  - 5
reps: 0.5
workload:
  kind: possion
  load: -1
  rate: fast
groups:
  - count: -3
    color: red
redis: {shards: 2, faults: [{kind: outage, at: 1s, for: 1s, shard: 3}]}
duration: soon
`))
	// Given a duration that could not be read, that warmup is too long for the default one says
	// nothing.
	want := []string{
		`dir/s.yaml:4:5: limits[1]: "5": no "/"`,
		`dir/s.yaml:5:7: reps: is "0.5"`,
		`dir/s.yaml:7:9: workload.kind: is "possion", must be one of constant, poisson`,
		`dir/s.yaml:8:9: workload.load: is -1, must be 0 to`,
		`dir/s.yaml:9:9: workload.rate: "fast" has no unit`,
		`dir/s.yaml:11:12: groups[0].count: is -3, must be 1 to`,
		`dir/s.yaml:12:5: groups[0].color: unknown field`,
		`dir/s.yaml:14:11: duration: is "soon"`,
	}
	got := strings.Split(err.Error(), "\n")
	for i := range max(len(got), len(want)) {
		testkit.Must(t, i < len(got) && i < len(want) && strings.HasPrefix(got[i], want[i]),
			"the errors are\n%v\nwant\n%v", err, strings.Join(want, "\n"))
	}
	testkit.Check(t, errors.Is(err, scenario.ErrInvalidScenario) && errors.Is(err, ErrInvalid),
		"the error is neither of a file nor of a scenario: %v", err)
}

func TestAFileThatSaysTooMuchIsRefused(t *testing.T) {
	// Given aliases that say 500 times 500 steps in a small file
	text := "limits: [1/s]\ngroups:\n- {name: a, scale: &s [" + strings.Repeat("{}, ", 500) + "]}\n" + strings.Repeat("- {scale: *s}\n", 500)
	_, err := Parse("s.yaml", []byte(text))
	testkit.Check(t, err != nil && strings.Contains(err.Error(), "the file has more than 200000 values"), "%.200v", err)
	_, err = Parse("s.yaml", make([]byte, yamlfile.TextMax+1))
	testkit.Check(t, err != nil && strings.Contains(err.Error(), "has more than 1048576 bytes"),
		"%.200v", err)
}

func TestALongValueIsCutInMessages(t *testing.T) {
	_, err := Parse("s.yaml", []byte("limits: [1/s]\nreps: "+strings.Repeat("é", 1000)))
	if err == nil || utf8.RuneCountInString(err.Error()) > 120 || !strings.Contains(err.Error(), `éé", must be`) {
		t.Errorf("%v", err)
	}
}

// written makes files of a folder and returns the path of the first.
func written(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		path := filepath.Join(dir, files[i])
		testkit.NoErr(t, os.MkdirAll(filepath.Dir(path), 0o700))
		testkit.NoErr(t, os.WriteFile(path, []byte(files[i+1]), 0o600))
	}
	return filepath.Join(dir, files[0])
}

const requests = "time_s,key\n0.5,a\n1,b\n"

func TestATraceIsFoundBesideItsScenario(t *testing.T) {
	const workload = "limits: [9/s]\nworkload: {kind: replay, file: traces/t.csv}\ngroups: [{workload: {kind: replay, file: traces/t.csv}}]\n"
	path := written(t, "s.yaml", workload, "traces/t.csv", requests)
	s, err := Load(path)
	testkit.NoErr(t, err)
	want := []scenario.TraceRequest{{At: time.Second / 2, Cost: 1}, {At: time.Second, Process: 1, Key: 1, Cost: 1}}
	for _, w := range []*scenario.Workload{&s.Workload, s.Groups[0].Workload} {
		if w.Trace == nil || !reflect.DeepEqual(w.Trace.Requests, want) || w.TraceSum != trace.Digest(w.Trace) {
			t.Errorf("the trace is %+v, %q", w.Trace, w.TraceSum)
		}
	}
	// When it is written and read at the same place, the digest is right; of another trace it would
	// not be.
	text, err := Marshal(s)
	testkit.NoErr(t, err)
	if again, err := Parse(path, text); err != nil || !reflect.DeepEqual(again, s) {
		t.Errorf("%s\nis read as %+v, %v", text, again, err)
	}
	other := written(t, "s.yaml", string(text), "traces/t.csv", requests+"2,a\n")
	if _, err := Load(other); err == nil || !strings.Contains(err.Error(), "workload.trace_sum: is \""+s.Workload.TraceSum+"\", but that of traces/t.csv is ") {
		t.Errorf("another trace: %v", err)
	}
}

func TestAWrongTraceIsAnErrorOfItsField(t *testing.T) {
	path := written(t, "s.yaml", "limits: [9/s]\nworkload:\n  kind: replay\n  file: t.csv\n", "t.csv", "time_s\n1\nx\n")
	trace := filepath.Join(filepath.Dir(path), "t.csv")
	if _, err := Load(path); err == nil || err.Error() != path+":4:9: workload.file: trace: invalid trace: "+trace+`:3:1: time "x" is not a decimal number` {
		t.Errorf("%v", err)
	}
	testkit.NoErr(t, os.Remove(trace))
	if _, err := Load(path); err == nil || !strings.HasPrefix(err.Error(), path+":4:9: workload.file: trace: ") {
		t.Errorf("%v", err)
	}
	// A trace that is right by itself, but costs more than the burst
	path = written(t, "s.yaml", "limits: [9/s]\nworkload:\n  kind: replay\n  file: t.csv\n", "t.csv", "time_s,tokens\n1,10\n")
	if _, err := Load(path); err == nil || !strings.HasPrefix(err.Error(), path+":4:9: workload.file: request 0 of the trace costs 10 tokens") ||
		!strings.HasSuffix(err.Error(), "; 1 of its 1 requests costs more") {
		t.Errorf("%v", err)
	}
}

func TestLoadPassesOnWhatTheSystemSays(t *testing.T) {
	if _, err := Load(filepath.Join(t.TempDir(), "none.yaml")); !errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrInvalid) {
		t.Errorf("%v", err)
	}
	if _, err := Load(t.TempDir()); err == nil || errors.Is(err, ErrInvalid) {
		t.Errorf("%v", err)
	}
}

func TestEveryViolationNamesAFieldOfAFile(t *testing.T) {
	// Given a scenario in which as much as possible is wrong
	wrong := &scenario.Workload{
		Kind: scenario.Replay, Verb: "x", Rate: -1, Load: -1, Cost: scenario.Cost{Min: -1}, Deadline: -1, On: -1, Off: -1, Alpha: -1, Burst: -1, Period: -1,
		Swing: -1, At: -1, For: -1, Factor: -1, Every: -1, Within: -1, Clients: -1, Think: scenario.Constantly(-1), Retries: -1, Backoff: -1,
	}
	stops := scenario.Stops{Every: -1, For: scenario.Constantly(-1)}
	clock := scenario.Clock{Offset: scenario.Constantly(-1), Drift: scenario.DriftDist{Dist: scenario.Dist{P: -1}}}
	err := scenario.Scenario{
		Duration: -1, Warmup: -1, Seed: 1 << 60, Reps: -1, CallTimeout: -1, Limits: make([]lease.Limit, 5), Keys: scenario.Keys{Count: -1, Zipf: -1}, Clock: clock,
		Policy: lease.Policy{Target: -1, TTL: -1, MinBatch: -1, MaxBatch: -1, Overcommit: -1, Weight: -1, ColdStart: -1, Fallback: -1},
		Groups: []scenario.Group{{Name: "a", Count: 200_000}, {
			Name: "a", Count: -1, Weight: -1, Share: -1, Skew: -1, Clock: &clock, Workload: wrong, Pauses: stops, Restarts: stops, Scale: []scenario.Step{{At: -1, Count: -1}},
		}},
		Workload: *wrong,
		Network:  scenario.Network{RoundTrip: scenario.Constantly(-1), Loss: -1, LostReplies: -1, Duplicates: -1, Partitions: []scenario.Partition{{At: -1, Part: -1, Group: "b"}}},
		Redis:    scenario.Redis{ServiceTime: scenario.Constantly(-1), Shards: -1, Faults: []scenario.RedisFault{{At: -1, For: -1, Lost: -1, Shard: -1}, {Kind: scenario.FaultSlow}}},
	}.Validate()
	// Then each path is one that a file may have, so that its line is found.
	known, seen := map[string]bool{}, 0
	for _, path := range Paths() {
		known[path] = true
	}
	number := regexp.MustCompile(`\[[0-9]+\]`)
	for _, err := range err.(interface{ Unwrap() []error }).Unwrap() {
		path, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "sim: invalid scenario: "), ": ")
		testkit.Check(t, known[number.ReplaceAllString(path, "[]")], "%v is not about a field of a file", err)
		seen++
	}
	testkit.Check(t, seen >= 90, "there are only %d violations:\n%v", seen, err)
}

func TestParseComparesNothingWithAFieldThatItCouldNotRead(t *testing.T) {
	_, err := Parse("s.yaml", []byte("limits: [100/s]\nwarmup: 2h\nduration: soon\n"))
	if err == nil || strings.Contains(err.Error(), "warmup") || !strings.Contains(err.Error(), "duration") {
		t.Errorf("%v", err)
	}
}

package file

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/yamlfile"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/scenario"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/internal/violation"
)

func durations(kind scenario.DistKind, p, q float64) scenario.DurationDist {
	return scenario.DurationDist{Dist: scenario.Dist{Kind: kind, P: p, Q: q}}
}

func TestParseReadsEveryType(t *testing.T) {
	got, err := Parse("s.yaml", []byte(`
name: 2024
duration: 1m30s
warmup: 0
seed: 9007199254740991
limits: [100/s, "5000/m burst 200", 100 in 1m, 1000 each 24h from 16h]
policy: {ttl: 250ms, min_batch: 20, weight: 3, cold_start: allow, fallback: deny, start_empty: true}
keys: {count: 7, zipf: 1e0}
clock: {offset: "uniform(-1s,10s)", drift: 50ppm}
groups:
  - name: a
    count: 2
    skew: .5
    restarts: &stops {every: 1m, for: "lognormal(1ms,2ms)"}
  - name: b
    workload: {kind: constant, hold: exp(5ms)}
    pauses: *stops
    scale: [{at: 1s, count: 0, kill: true}]
    # everything in here is commented out:
    restarts:
workload: {kind: onoff, rate: 90/m, cost: "uniform(1, 5)"}
network:
  round_trip: lognormal(1ms,1.5ms)
  loss: 12.5%
redis:
  faults: []
rivals: []
`))
	testkit.NoErr(t, err)
	stops := scenario.Stops{Every: time.Minute, For: durations(scenario.DistLognormal, 1e6, 2e6)}
	want := scenario.Scenario{
		Name: "2024", Duration: 90 * time.Second, Seed: 1<<53 - 1,
		Limits: []lease.Limit{lease.PerSecond(100), lease.PerMinute(5000).WithBurst(200),
			lease.Sliding(100, time.Minute), lease.Calendar(1000, 24*time.Hour, 16*time.Hour)},
		Policy: lease.Policy{TTL: 250 * time.Millisecond, MinBatch: 20, Weight: 3, ColdStart: lease.ColdStartAllow,
			Fallback: lease.FallbackDeny, StartEmpty: true},
		Keys: scenario.Keys{Count: 7, Zipf: 1},
		Clock: scenario.Clock{
			Offset: durations(scenario.DistUniform, -1e9, 1e10),
			Drift:  scenario.DriftDist{Dist: scenario.Dist{P: 50}},
		},
		Groups: []scenario.Group{{Name: "a", Count: 2, Skew: 0.5, Restarts: stops}, {
			Name: "b", Pauses: stops,
			Workload: &scenario.Workload{Kind: scenario.Constant, Hold: durations(scenario.DistExp, 5e6, 0)},
			Scale:    []scenario.Step{{At: time.Second, Kill: true}},
		}},
		Workload: scenario.Workload{Kind: scenario.OnOff, Rate: 1.5, Cost: scenario.Cost{Min: 1, Max: 5}},
		Network:  scenario.Network{RoundTrip: durations(scenario.DistLognormal, 1e6, 1.5e6), Loss: 0.125},
	}
	testkit.Check(t, reflect.DeepEqual(got, want), "read\n%+v\nwant\n%+v", got, want)
}

// wrong has files and the one mistake of each, by the beginning of its message after "s.yaml:".
var wrong = slices.Concat([][2]string{
	{"", "1:1: is empty"}, {"---\n", "1:1: is empty"}, {"# nothing\n", "1:1: is empty"},
	{"---\n~\n", "1:1: is empty"},
	{"[1/s]", "1:1: is a list, must be a mapping with the fields name, description, "},
	{"limits: [1/s\n", "2:1: did not find"}, {"a: b: c", "1:5: mapping values are not allowed"},
	{"limits:\n\t- x", "2:1: the line begins with a tab; YAML takes spaces only"},
	{"name: *n", "1:7: unknown anchor 'n'"}, {"name: a\x00", "1:8: there is a byte that is not text"},
	{"x: é\ny: \xff", "2:4: there is a byte that is not text"},
	{"name: a\n---\nname: b\n", "2:1: there is more than one document"},
	{"limts: [1/s]", "1:1: limts: unknown field; did you mean limits?"},
	{"limits: 1/s", `1:9: limits: is "1/s", must be a list, like [1000/s burst 200]`},
	{"limits: [{tokens: 1}]", "1:10: limits[0]: is a mapping, must be a limit, like 1000/s burst 200"},
	{"limits: [100 each month]", "1:10: limits[0]: \"100 each month\": a period has a fixed length"},
	{"name: a", "1:1: limits: has 0 entries, must have 1 to 4"},
}, startingWith("limits: [1/s]\n", [][2]string{
	{"duratoin: 5s", "2:1: duratoin: unknown field; did you mean duration?"},
	{"redis: {shard: 3}", "2:9: redis.shard: unknown field; did you mean redis.shards?"},
	{"target: 5s", "2:1: target: unknown field; did you mean policy.target?"},
	{"workload: {trace: x}", "2:12: workload.trace: unknown field"},
	{"? [a]\n: b", "2:3: has a name that is not a word"},
	{"seed: 1\nname: x\nseed: 2", "4:1: seed: occurs twice, first in line 2"},
	{"keys: &k {count: 1}\nnetwork: {<<: *k}", "3:11: network: has a merge key, which is not read"},
	{"keys: 5", `2:7: keys: is "5", must be a mapping with the fields count, zipf`},
	{"reps: many", `2:7: reps: is "many", must be a whole number`},
	{"reps: 010", `2:7: reps: is "010", must be a whole number`},
	{"reps: '5'", `2:7: reps: is the text "5", must be a whole number`},
	{"reps:", "2:6: reps: has no value, must be a whole number"},
	{"reps: 9223372036854775808", "2:7: reps: is \"9223372036854775808\", must be a whole number, below 2^63"},
	{"seed: -1", `2:7: seed: is "-1", must be a whole number, 0 or more`},
	{"workload: {load: .inf}", `2:18: workload.load: is ".inf", must be a number like 0.9`},
	{"workload: {load: 1e999}", `2:18: workload.load: is "1e999", must be a number like 0.9, below 1.8e308`},
	{"policy: {start_empty: yes}", `2:23: policy.start_empty: is "yes", must be true or false`},
	{"name: [a]", "2:7: name: is a list, must be a text"},
	{"name: !!str a", "2:7: name: has the tag !!str"},
	{"rivals: [central, central]", `2:19: rivals[1]: is "central", which is rivals[0] too`},
	{"duration: 100", `2:11: duration: is "100", which has no unit: a duration is like 100ms`},
	{"duration: 5 s", `2:11: duration: is "5 s", must be a duration like 100ms`},
	{"network: {loss: 0.5}", `2:17: network.loss: "0.5": has no unit: a ratio is in percent`},
	{"policy: {fallback: denny}",
		`2:20: policy.fallback: is "denny", must be local_share or deny or allow_all; did you mean deny?`},
	{"redis:\n  faults:\n  - at: 1s\n    for: 1s", "4:5: redis.faults[0].kind: is \"\", must be one of outage"},
}))

func startingWith(line string, files [][2]string) (all [][2]string) {
	for _, f := range files {
		all = append(all, [2]string{line + f[0], f[1]})
	}
	return all
}

func TestParseSaysWhereAndWhat(t *testing.T) {
	for _, w := range wrong {
		text, want := w[0], "s.yaml:"+w[1]
		_, err := Parse("s.yaml", []byte(text))
		begins := errors.Is(err, ErrInvalid) && strings.HasPrefix(err.Error(), want)
		one := begins && !strings.Contains(err.Error(), "\n")
		testkit.Check(t, one, "%q:\n%v\nwant one ErrInvalid that begins with\n%s", text, err, want)
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
	// The duration was not read, so warmup is not compared with it, nor with its default.
	want := []string{
		`4:5: limits[1]: "5": has no "/"`, `5:7: reps: is "0.5"`,
		`7:9: workload.kind: is "possion", must be one of constant, poisson`,
		`8:9: workload.load: is -1, must be 0 to`, `9:9: workload.rate: "fast": has no unit`,
		`11:12: groups[0].count: is -3, must be 1 to`, `12:5: groups[0].color: unknown field`,
		`14:11: duration: is "soon"`,
	}
	got := strings.Split(err.Error(), "\n")
	for i := range max(len(got), len(want)) {
		ok := i < len(got) && i < len(want) && strings.HasPrefix(got[i], "dir/s.yaml:"+want[i])
		testkit.Must(t, ok, "the errors are\n%v\nwant\n%v", err, strings.Join(want, "\n"))
	}
	testkit.Check(t, errors.Is(err, scenario.ErrInvalidScenario) && errors.Is(err, ErrInvalid),
		"the error is neither of a file nor of a scenario: %v", err)
}

func TestALargeFileIsRefused(t *testing.T) {
	// Given a small file whose aliases make 450 times 450 steps
	text := "limits: [1/s]\ngroups:\n- {name: a, scale: &s [" + strings.Repeat("{}, ", 450) + "]}\n" +
		strings.Repeat("- {scale: *s}\n", 450)
	_, err := Parse("s.yaml", []byte(text))
	testkit.Check(t, err != nil && strings.Contains(err.Error(), "has more than 200000 values"), "%.200v", err)
	_, err = Parse("s.yaml", make([]byte, yamlfile.TextMax+1))
	testkit.Check(t, err != nil && strings.Contains(err.Error(), "has more than 1048576 bytes"), "%.200v", err)
	// A long value is cut in messages.
	_, err = Parse("s.yaml", []byte("limits: [1/s]\nreps: "+strings.Repeat("é", 1000)))
	cut := err != nil && len(err.Error()) <= 240 && strings.Contains(err.Error(), `éé", must be`)
	testkit.Check(t, cut, "%v", err)
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
	const replays = "limits: [9/s]\nworkload: &w {kind: replay, file: traces/t.csv}\ngroups: [{workload: *w}]\n"
	path := written(t, "s.yaml", replays, "traces/t.csv", requests)
	s, err := Load(path)
	testkit.NoErr(t, err)
	want := []scenario.TraceRequest{
		{At: time.Second / 2, Cost: 1}, {At: time.Second, Process: 1, Key: 1, Cost: 1},
	}
	for _, w := range []*scenario.Workload{&s.Workload, s.Groups[0].Workload} {
		testkit.Check(t, w.Trace != nil && reflect.DeepEqual(w.Trace.Requests, want), "the trace is %+v", w.Trace)
	}
	// Written and read at the same place, it is the same.
	text, err := Marshal(s)
	testkit.NoErr(t, err)
	again, err := Parse(path, text)
	testkit.Check(t, err == nil && reflect.DeepEqual(again, s), "%s\nis read as %+v, %v", text, again, err)
}

func TestAWrongTraceIsAnErrorOfItsField(t *testing.T) {
	const replays = "limits: [9/s]\nworkload:\n  kind: replay\n  file: t.csv\n"
	fails := func(path, begins, ends string) {
		t.Helper()
		_, err := Load(path)
		testkit.Check(t, err != nil && strings.HasPrefix(err.Error(), path+":4:9: workload.file: "+begins) &&
			strings.HasSuffix(err.Error(), ends), "%v", err)
	}
	path := written(t, "s.yaml", replays, "t.csv", "time_s\nx\n")
	trace := filepath.Join(filepath.Dir(path), "t.csv")
	fails(path, "trace: invalid trace: "+trace+": there are no requests", `time "x" is not a decimal number`)
	testkit.NoErr(t, os.Remove(trace))
	fails(path, "trace: ", "")
	// A trace that is right by itself, but costs more than the burst
	path = written(t, "s.yaml", replays, "t.csv", "time_s,tokens\n1,10\n")
	fails(path, "1 of the 1 requests of the trace cost more than the smallest burst", "")
}

func TestLoadReturnsTheErrorOfTheSystem(t *testing.T) {
	_, err := Load(filepath.Join(t.TempDir(), "none.yaml"))
	testkit.Check(t, errors.Is(err, os.ErrNotExist) && !errors.Is(err, ErrInvalid), "%v", err)
}

func TestEveryViolationNamesAFieldOfAFile(t *testing.T) {
	// Given a scenario in which as many fields as possible are wrong
	var wrong scenario.Scenario
	worst(reflect.ValueOf(&wrong).Elem())
	wrong.Groups[0].Count, wrong.Groups[1].Name = 200_000, wrong.Groups[0].Name
	wrong.Seed, wrong.Limits = 1<<60, make([]lease.Limit, 5)
	wrong.Redis.Faults[1] = scenario.RedisFault{Kind: scenario.FaultHang}
	// Then each path is one that a file may have, so that its line is found.
	known, seen := map[string]bool{}, 0
	for _, path := range paths() {
		known[path] = true
	}
	number := regexp.MustCompile(`\[[0-9]+\]`)
	for _, v := range violation.All(wrong.Validate()) {
		path := number.ReplaceAllString(v.Path, "[]")
		if strings.HasPrefix(path, "limits[].") {
			path = "limits[]" // which a file has as one text
		}
		testkit.Check(t, known[path], "%v is not about a field of a file", v)
		seen++
	}
	testkit.Check(t, seen == 118, "there are %d violations:\n%v", seen, wrong.Validate())
}

// worst makes every number below v negative, and every list two elements long.
func worst(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		worst(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		worst(v.Index(0))
		worst(v.Index(1))
	case reflect.Struct:
		for _, field := range v.Fields() {
			worst(field)
		}
	case reflect.Int, reflect.Int64:
		v.SetInt(-1)
	case reflect.Float64:
		v.SetFloat(-1)
	case reflect.String:
		v.SetString("x")
	}
}

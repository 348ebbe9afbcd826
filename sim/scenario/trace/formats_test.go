package trace

import (
	"bytes"
	"compress/gzip"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// accessLog has lines of the common and of the combined format, and one of neither. The last
// request ended first.
const accessLog = `203.0.113.9 - - [23/Nov/2026:09:16:00 +0000] "GET /a?page=2 HTTP/1.1" 200 512
203.0.113.9 - ann [23/Nov/2026:09:16:02 +0000] "GET /b HTTP/1.1" 200 9 "https://example.org/\"x" "curl/8.5"
what is this
2001:db8::7 - - [23/Nov/2026:10:16:02 +0100] "POST /a HTTP/2.0" 429 - "-" "-" "0.003"
203.0.113.9 - - [23/Nov/2026:09:16:01 +0000] "GET /a HTTP/1.1" 200 12
`

func readAs(t *testing.T, text, columns string) (*scenario.Trace, error) {
	t.Helper()
	c, err := ParseColumns(columns)
	testkit.NoErr(t, err)
	return Read("t", strings.NewReader(text), c)
}

func TestAnAccessLogIsRead(t *testing.T) {
	const second = time.Second
	for columns, keys := range map[string][]int{
		"": {0, 0, 0, 1}, "key=path": {0, 0, 1, 0}, "key=user": {0, 0, 1, 0},
	} {
		got, err := readAs(t, accessLog, columns)
		testkit.NoErr(t, err)
		// Its requests come in order of time, those of one second evenly within it, in turns to all
		// processes, and for a key each.
		var want []scenario.TraceRequest
		for i, at := range []time.Duration{0, second, 2 * second, 5 * second / 2} {
			want = append(want, scenario.TraceRequest{At: at, Process: i, Key: keys[i], Cost: 1})
		}
		testkit.Check(t, reflect.DeepEqual(got.Requests, want), "%s: %v, want %v", columns, got.Requests, want)
		// And it is said what was done to it.
		for _, note := range []string{
			"1 of 5 lines is no request and was left out; the first is line 3: it is not like HOST - USER",
			"not in order of time", "whole seconds",
		} {
			said := func(text string) bool { return strings.Contains(text, note) }
			testkit.Check(t, slices.ContainsFunc(got.Notes, said), "%q is not in %q", note, got.Notes)
		}
	}
}

func TestTheOrderOfALogsLinesIsForgotten(t *testing.T) {
	lines := []string{
		`{"time_s": 1, "key": "a", "process": "web-7"}`, `{"time_s": 2, "key": "b", "process": "web-8"}`,
		`{"time_s": 3, "key": "a", "process": "web-8"}`,
	}
	forth, err := readAs(t, strings.Join(lines, "\n"), "")
	testkit.NoErr(t, err)
	slices.Reverse(lines)
	back, err := readAs(t, strings.Join(lines, "\n"), "")
	testkit.NoErr(t, err)
	same := reflect.DeepEqual(forth.Requests, back.Requests)
	testkit.Check(t, same, "%v, backwards %v", forth.Requests, back.Requests)
}

func TestJSONLinesAreRead(t *testing.T) {
	const text = `{"ts": 1700000000.25, "request": {"remote_ip": "a"}, "host": "web-1", "size": 3}
{"ts": 1700000001, "request": {"remote_ip": "b"}, "host": "web-2", "size": "4"}

{"ts": 1700000002, "request": {}, "host": "web-2", "size": 1}
{"ts": 1700000003, "request": {"remote_ip": "a"}, "host": "web-1", "size": 0}
oops
`
	got, err := readAs(t, text, "time_s=ts,key=request.remote_ip,process=host,tokens=size")
	testkit.NoErr(t, err)
	want := []scenario.TraceRequest{{Cost: 3}, {At: 750 * time.Millisecond, Process: 1, Key: 1, Cost: 4}}
	testkit.Check(t, reflect.DeepEqual(got.Requests, want), "%v, want %v", got.Requests, want)
	note := "3 of 5 lines are no requests and were left out; the first is line 4: it has no request.remote_ip"
	testkit.Check(t, slices.Equal(got.Notes, []string{note}), "%q, want %q", got.Notes, note)
	// Names of our own need no columns.
	own, err := readAs(t, `{"time": "2026-11-23T09:16:00.5Z", "key": "a", "process": 1}`, "")
	testkit.NoErr(t, err)
	want = []scenario.TraceRequest{{Process: 1, Cost: 1}}
	testkit.Check(t, reflect.DeepEqual(own.Requests, want), "%v", own.Requests)
}

func TestColumnsOfACSVFileMayHaveOtherNames(t *testing.T) {
	const text = "when,user,key,cost,what\n1000,ann,x,2,GET\n2000,bob,x,1,PUT\n"
	got, err := readAs(t, text, "time_ms=when, key=user, tokens=cost")
	testkit.NoErr(t, err)
	want := []scenario.TraceRequest{
		{At: time.Second, Cost: 2}, {At: 2 * time.Second, Process: 1, Key: 1, Cost: 1},
	}
	testkit.Check(t, reflect.DeepEqual(got.Requests, want), "%v, want %v", got.Requests, want)
}

func TestWhatIsNoTraceSaysWhy(t *testing.T) {
	const none = "t:1:1: none of its "
	long := strings.Repeat("a", lineMax)
	for _, c := range []struct{ text, columns, want string }{
		{"when\n1\n", "time_s=time", `t:1:1: there is no column "time", which should be the time; there are when`},
		{"time_s,user\n1,a\n", "", `t:1:8: unknown column "user"; there are time_s (or time_ms`},
		{`{"ts": 1}`, "", "t:1:1: the first object has no field with the time; there are time_s"},
		{`{"time_s": "x"}`, "", none + `1 lines is a request; the first is line 1: time "x" is not`},
		{"\x1f\x8b\x08\x00", "", "t:1:1: the file is compressed by gzip, and damaged"},
		{
			`203.0.113.9 GET "/" 200`, "",
			`t:1:17: bare " in non-quoted-field: it is no line with the names of columns`,
		},
		{
			"{\n \"time_s\": 1\n}\n", "",
			none + "3 lines is a request; the first is line 1: it is no JSON object by itself",
		},
		{
			"[{\"time_s\": 1},\n{\"time_s\": 2}]\n", "",
			none + "2 lines is a request; the first is line 1: it is no JSON",
		},
		{
			"{\"time_s\": 1}\n{\"time_s\": 2, \"key\": \"a\"}\n", "",
			"t:2:1: it has a key and the first object has none; with --columns key=key",
		},
		{
			`{"time": "2026-11-23T09:16:00Z", "time_ms": 3}`, "",
			"t:1:1: it has time and time_ms; say which counts, as in --columns time=time",
		},
		{`{"time_s": 1, "key": "` + long + `"}`, "", "t:1:1: the line has more than"},
		{
			accessLog, "key=cookie",
			`an access log has no field "cookie" for the key; there are host, ident, user`,
		},
	} {
		_, err := readAs(t, c.text, c.columns)
		testkit.Check(t, errors.Is(err, ErrInvalid) && strings.Contains(err.Error(), ": "+c.want),
			"%q as %q: %v\nwant %s", c.text, c.columns, err, c.want)
	}
	for text, want := range map[string]string{
		"ts":                 "must be like time_ms=ts,key=user",
		"key=":               "must be like",
		"when=ts":            `unknown "when"; there are time_s`,
		"time_s=a,time_ms=b": "time is there twice",
	} {
		_, err := ParseColumns(text)
		testkit.Check(t, errors.Is(err, ErrInvalid) && strings.Contains(err.Error(), want), "%q: %v", text, err)
	}
}

func TestWhatOthersAddToAnAccessLogIsPassedOver(t *testing.T) {
	const time = ` [23/Nov/2026:09:16:00 +0000] `
	for _, c := range []struct{ line, columns, key string }{
		// Apache's vhost_combined
		{`a.b:443 203.0.113.9 - ann` + time + `"GET /a HTTP/1.1" 200 5 "-" "curl"`, "", "203.0.113.9"},
		{`a.b:443 203.0.113.9 - -` + time + `"GET /a HTTP/1.1" 200 5`, "key=vhost", "a.b:443"},
		// a user with a space in the name
		{`203.0.113.9 - Ann Lee` + time + `"GET /a HTTP/1.1" 200 5`, "key=user", "Ann Lee"},
		// the ingress of Kubernetes, which has more in brackets, and milliseconds
		{
			`203.0.113.9 - - [23/Nov/2026:09:16:00.250 +0000] "GET /a HTTP/2.0" 200 5 "-" "curl" 31 0.004 ` +
				`[web-80] [] 10.0.0.1:80`, "key=path", "/a",
		},
	} {
		got, err := readAs(t, c.line+"\n"+c.line+"\n", c.columns)
		testkit.Must(t, err == nil, "%s: %v", c.line, err)
		said := slices.Contains(got.Notes, "all its requests have the key \""+c.key+"\"")
		testkit.Check(t, len(got.Requests) == 2 && said, "%s: %v, %q", c.line, got.Requests, got.Notes)
	}
	// A line without a key is left out, and counted.
	got, err := readAs(t, accessLog, "key=agent")
	testkit.NoErr(t, err)
	counted := strings.HasPrefix(got.Notes[0], "3 of 5 lines are no requests")
	testkit.Check(t, len(got.Requests) == 2 && counted, "%q", got.Notes)
}

func TestRequestsThatShareAKeyForWantOfANameAreCounted(t *testing.T) {
	for text, want := range map[string]string{
		"time_s,key\n1,a\n2,\n3,-\n": "2 of its 3 requests have no key (- or nothing): they share one",
		"time_s,process\n1,a\n2,\n":  "1 of its 2 requests has no process (- or nothing): it has one of its own",
	} {
		got, err := readAs(t, text, "")
		testkit.NoErr(t, err)
		testkit.Check(t, slices.Equal(got.Notes, []string{want}), "%q: %q", text, got.Notes)
	}
	got, err := readAs(t, accessLog, "key=user")
	testkit.NoErr(t, err)
	const note = "3 of its 4 requests have no key (- or nothing): they share one"
	testkit.Check(t, slices.Contains(got.Notes, note), "%q", got.Notes)
}

func TestATimestampIsReadAsItIsWritten(t *testing.T) {
	c, err := ParseColumns("")
	testkit.NoErr(t, err)
	at := time.Duration(time.Date(2026, 11, 23, 9, 16, 0, 250_000_000, time.UTC).UnixNano())
	for _, text := range []string{
		"2026-11-23T09:16:00.25Z", "2026-11-23T14:46:00.250+05:30", "2026-11-23T14:46:00.250+0530",
		"2026-11-23T09:16:00.25", "2026-11-23 09:16:00.25", "2026-11-23 09:16:00,250", "2026-11-23 10:16:00.25+01",
		"2026-11-23 10:16:00.25 +0100",
		"2026-11-23 09:16:00.250000 UTC", "23/Nov/2026:10:16:00.25 +0100",
	} {
		got, err := c.timeOf(text)
		testkit.Check(t, err == nil && got == at, "%s: %v, %v; want %v", text, got, err, at)
	}
}

func TestTimestampsOfWholeSecondsAreSpread(t *testing.T) {
	// Given the timestamps of an export, which has no fractions
	got, err := readAs(t, "time_s\n1700000000\n1700000000\n1700000001\n", "")
	testkit.NoErr(t, err)
	spread := got.Requests[1].At == time.Second/2
	testkit.Check(t, spread && len(got.Notes) == 1, "%v, %q", got.Requests, got.Notes)
	// But those of a run may be meant to come at once.
	got, err = readAs(t, "time_s\n0\n0\n1\n", "")
	testkit.NoErr(t, err)
	testkit.Check(t, got.Requests[1].At == 0 && len(got.Notes) == 0, "%v, %q", got.Requests, got.Notes)
}

func TestATimeInAnotherUnitIsSaid(t *testing.T) {
	for _, text := range []string{
		"time_ms\n1700000000\n1700000020\n", "time_us\n1700000000000\n1700000020000\n",
		"time_ns\n1700000000\n1700000020\n",
	} {
		got, err := readAs(t, text, "")
		testkit.NoErr(t, err)
		said := len(got.Notes) == 1 && strings.Contains(got.Notes[0], "is the unit of its times right?")
		testkit.Check(t, said, "%q: %q", text, got.Notes)
	}
}

func TestAListOfOneIsWhatItHolds(t *testing.T) {
	// as Caddy writes a header
	got, err := readAs(t, `{"ts": 1.5, "request": {"headers": {"X-User": ["ann"]}}}
{"ts": 2.5, "request": {"headers": {"X-User": ["ann", "bob"]}}}
`, "time_s=ts,key=request.headers.X-User")
	testkit.NoErr(t, err)
	testkit.Check(t, len(got.Requests) == 1 && len(got.Notes) == 1, "%v, %q", got.Requests, got.Notes)
}

func TestACompressedLogIsRead(t *testing.T) {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(accessLog))
	testkit.NoErr(t, w.Close())
	got, err := readAs(t, b.String(), "")
	testkit.NoErr(t, err)
	testkit.Check(t, len(got.Requests) == 4, "%v", got.Requests)
	_, err = readAs(t, b.String()[:b.Len()-20], "")
	const damage = "compressed by gzip, and damaged"
	testkit.Check(t, errors.Is(err, ErrInvalid) && strings.Contains(err.Error(), damage), "%v", err)
}

package trace

import (
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

func TestALogIsReadAndItsNotesSayHow(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	for _, c := range []struct {
		text  string
		want  []scenario.TraceRequest // nil: whatever
		notes []string                // each is in one
	}{
		// The requests of an access log come in order of time, those of one second evenly within it, and in
		// turns to all processes.
		{accessLog, []scenario.TraceRequest{{Cost: 1}, {At: s, Process: 1, Cost: 1},
			{At: 2 * s, Process: 2, Cost: 1}, {At: 2500 * ms, Process: 3, Key: 1, Cost: 1}},
			[]string{"1 of 5 lines left out; the first is line 3: it is not like HOST", "not in order of time",
				"whole seconds"}},
		{"time_ms,user,key,tokens,what\n1000,ann,x,2,GET\n2000,bob,x,1,PUT\n", []scenario.TraceRequest{
			{At: s, Cost: 2}, {At: 2 * s, Process: 1, Cost: 1}},
			[]string{"columns left out: user, what", `all its requests have the key "x"`}},
		{"time_s,key\n1,a\n2,\n3,-\n", nil, []string{"2 of 3 requests have no key (- or nothing) and share one"}},
		{"time_s,process\n1,a\n2,\n", nil, []string{"1 of 2 requests have no process (- or nothing)"}},
		// Timestamps of whole seconds are spread, but the times of a run may be meant to come at once.
		{"time_s\n1700000000\n1700000000\n1700000001\n", []scenario.TraceRequest{{Cost: 1},
			{At: s / 2, Process: 1, Cost: 1}, {At: s, Process: 2, Cost: 1}}, []string{"whole seconds"}},
		{"time_s\n0\n0\n1\n", []scenario.TraceRequest{{Cost: 1}, {Process: 1, Cost: 1},
			{At: s, Process: 2, Cost: 1}}, nil},
	} {
		got, err := Read("t", strings.NewReader(c.text))
		testkit.NoErr(t, err)
		testkit.Check(t, c.want == nil || reflect.DeepEqual(got.Requests, c.want), "%q: %v, want %v", c.text,
			got.Requests, c.want)
		testkit.Must(t, len(got.Notes) == len(c.notes), "%q: %q", c.text, got.Notes)
		for i, note := range c.notes {
			testkit.Check(t, strings.Contains(got.Notes[i], note), "%q is not in %q", note, got.Notes[i])
		}
	}
}

func TestTheOrderOfALogsLinesIsForgotten(t *testing.T) {
	lines := []string{"1,a,web-7", "2,b,web-8", "3,a,web-8"}
	forth := read(t, "time_s,key,process\n"+strings.Join(lines, "\n"))
	slices.Reverse(lines)
	back := read(t, "time_s,key,process\n"+strings.Join(lines, "\n"))
	testkit.Check(t, reflect.DeepEqual(forth, back), "%v, backwards %v", forth, back)
}

func TestAFileOfAnotherKindIsRefusedByItsName(t *testing.T) {
	line, _, _ := strings.Cut(accessLog, "\n")
	for _, c := range []struct{ text, want string }{
		{"", "t: the file is empty"},
		{"time_s\n", "t: there are no requests in its 0 lines"},
		{"time_s\nx\n", `t: there are no requests in its 1 lines; the first is line 2: time "x" is not a decimal`},
		{"key,user\na\n", "t: there is no column with the time among key, user; columns are time_s (or"},
		{"time_s,key,key\n", `t: column "key" repeats column "key"`},
		{"time_s,time_ms\n", `t: column "time_ms" repeats column "time_s"`},
		{`{"time_s": 1}`, "t: it is JSON; jq makes CSV of it"},
		{"metric_name,timestamp,metric_value\nhttp_reqs,1,1\n", "t: it has the metrics of k6; keep the lines"},
		{"\x1f\x8b\x08\x00", "t: it is compressed by gzip; unpack it with gunzip"},
		{"\x28\xb5\x2f\xfd", "t: it is compressed by zstd; unpack it with zstd -d"},
		{"\xfd7zXZ\x00", "t: it is compressed by xz"}, {"BZh9", "t: it is compressed by bzip2"},
		{strings.Replace(line, "Nov", "Now", 1), "t: there are no requests in its 1 lines; the first is line 1: time"},
		{`203.0.113.9 GET "/" 200`, `bare " in non-quoted-field: it is no line with the names of columns`},
		{line + "\n" + line + strings.Repeat("a", lineMost), "t: line 2 has more than"},
	} {
		_, err := Read("t", strings.NewReader(c.text))
		testkit.Check(t, errors.Is(err, ErrInvalid) && strings.HasPrefix(err.Error(), "trace: invalid trace: t: ") &&
			strings.Contains(err.Error(), c.want) && !strings.HasSuffix(err.Error(), "; "),
			"%q: %v\nwant %s", c.text, err, c.want)
	}
}

func TestAnOddLineIsLeftOutAndCounted(t *testing.T) {
	for text, want := range map[string]string{
		"time_s\n1\nx\n2\n":               `1 of 3 lines left out; the first is line 3: time "x"`,
		"key,time_s\na,-1\na,2\n":         `the first is line 2: time "-1" is negative`,
		"time_s,tokens\n1,0\n2,5\n":       `the first is line 2: tokens "0" must be a whole number, 1 or more`,
		"time_s,tokens\n1,1.5\n1,\n2,1\n": `2 of 3 lines left out; the first is line 2: tokens "1.5"`,
		"time_s,key\n1,\"a\nb\"\n2\n":     "the first is line 4: wrong number of fields",
		"time_s,key\n1,a\n1,b\"\n2,b\n":   `the first is line 3: bare "`,
		"time_s\n2\n1\n":                  "the lines are not in order of time: they were sorted",
	} {
		got, err := Read("t", strings.NewReader(text))
		testkit.NoErr(t, err)
		testkit.Check(t, len(got.Requests) > 0 && strings.Contains(strings.Join(got.Notes, "\n"), want), "%q: %q, want %s",
			text, got.Notes, want)
	}
	got := read(t, "time_s,tokens\n1,374.0\n")
	testkit.Check(t, got[0].Cost == 374, "%+v", got)
}

func TestAddedFieldsOfAnAccessLogAreSkipped(t *testing.T) {
	const time = ` [23/Nov/2026:09:16:00 +0000] `
	for _, line := range []string{
		// Apache's vhost_combined
		`a.b:443 203.0.113.9 - ann` + time + `"GET /a HTTP/1.1" 200 5 "-" "curl"`,
		`a.b:443 203.0.113.9 - -` + time + `"GET /a HTTP/1.1" 200 5`,
		// lists of X-Forwarded-For, of which the first is the client
		`203.0.113.9, 10.0.0.1 - -` + time + `"GET /a HTTP/1.1" 200 5`,
		`a.b:443 203.0.113.9,10.0.0.1, 10.0.0.2 - -` + time + `"GET /a HTTP/1.1" 200 5`,
		// zeros where the log was cut
		"\x00\x00\x00" + `203.0.113.9 - -` + time + `"GET /a HTTP/1.1" 200 5`,
		// a user with a space in the name
		`203.0.113.9 - Ann Lee` + time + `"GET /a HTTP/1.1" 200 5`,
		// the ingress of Kubernetes, which has more in brackets, and milliseconds
		`203.0.113.9 - - [23/Nov/2026:09:16:00.250 +0000] "GET /a HTTP/2.0" 200 5 "-" "curl" 31 0.004 ` +
			`[web-80] [] 10.0.0.1:80`,
	} {
		got, err := Read("t", strings.NewReader(line+"\n"+line+"\n"))
		testkit.Must(t, err == nil, "%s: %v", line, err)
		said := slices.Contains(got.Notes, `all its requests have the key "203.0.113.9"`)
		testkit.Check(t, len(got.Requests) == 2 && said, "%s: %v, %q", line, got.Requests, got.Notes)
	}
}

func TestATimestampIsReadAsItIsWritten(t *testing.T) {
	at := time.Duration(time.Date(2026, 11, 23, 9, 16, 0, 250_000_000, time.UTC).UnixNano())
	for _, text := range []string{
		"2026-11-23T09:16:00.25Z", "2026-11-23T14:46:00.250+05:30", "2026-11-23T14:46:00.250+0530",
		"2026-11-23T09:16:00.25", "2026-11-23 09:16:00.25", "2026-11-23 09:16:00,250", "2026-11-23 10:16:00.25+01",
		"2026-11-23 10:16:00.25 +0100",
		"2026-11-23 09:16:00.250000 UTC", "23/Nov/2026:10:16:00.25 +0100",
	} {
		got, err := timestampOf(text)
		testkit.Check(t, err == nil && got == at, "%s: %v, %v; want %v", text, got, err, at)
	}
}

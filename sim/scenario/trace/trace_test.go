package trace

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

func read(t *testing.T, text string) []scenario.TraceRequest {
	t.Helper()
	got, err := Read("t.csv", strings.NewReader(text))
	testkit.Must(t, err == nil, "%q: %v", text, err)
	return got.Requests
}

func TestReadTakesColumnsInAnyOrder(t *testing.T) {
	const ms = time.Millisecond
	for text, want := range map[string][]scenario.TraceRequest{
		"time_s,process\n0,0\n0.0015,0\n2,0\n": {
			{At: 0, Cost: 1}, {At: 3 * ms / 2, Cost: 1}, {At: 2000 * ms, Cost: 1},
		},
		"key,time_ms,tokens,process\nb,1,3,3\na,1,1,2": {
			{At: ms, Process: 0, Key: 0, Cost: 3}, {At: ms, Process: 1, Key: 1, Cost: 1},
		},
		// Without a column of processes they take turns.
		"\ufefftime_us\r\n1000\r\n2e3\r\n":        {{At: ms, Cost: 1}, {At: 2 * ms, Process: 1, Cost: 1}},
		"time_ns,key\n5,\"a,\nb\"\n6,\"a,\nb\"\n": {{At: 5, Cost: 1}, {At: 6, Process: 1, Cost: 1}},
	} {
		got := read(t, text)
		testkit.Check(t, reflect.DeepEqual(got, want), "%q: %v, want %v", text, got, want)
	}
}

func TestKeysAndProcessesAreNumberedByFirstAppearance(t *testing.T) {
	got := read(t, "time_s,process,key\n0,3,900\n1,web-1,17\n2,3,900\n")
	for i, want := range []struct{ process, key int }{{0, 0}, {1, 1}, {0, 0}} {
		testkit.Check(t, got[i].Process == want.process && got[i].Key == want.key, "request %d is %+v, want %+v", i,
			got[i], want)
	}
}

func TestTimestampsCountFromTheFirstRequest(t *testing.T) {
	got := read(t, "time_s\n1700000000.123456789\n1700000000.123456790\n1700000003\n")
	for i, want := range []time.Duration{0, 1, 2876543211} {
		testkit.Check(t, got[i].At == want, "request %d comes at %d ns, want %d", i, got[i].At, want)
	}
	// Given a first time that may be one of a run, it is left alone.
	if got := read(t, "time_s\n2592000\n"); got[0].At != 30*24*time.Hour {
		t.Errorf("30 days became %v", got[0].At)
	}
}

func TestDecimalTimesAreExact(t *testing.T) {
	for _, c := range []struct {
		text string
		unit int64
		want time.Duration
	}{
		{"0.1", 1e9, 100_000_000}, {"0.000000001", 1e9, 1}, {"0.0000000019", 1e9, 1}, {"1e-9", 1e9, 1},
		{"1e-10", 1e9, 0}, {"5E-05", 1e9, 50_000}, {"1.5e3", 1e9, 1_500_000_000_000}, {"-0.0", 1e9, 0},
		{"+7", 1, 7}, {"7.9", 1, 7},
		{".5", 1e6, 500_000}, {"5.", 1e3, 5_000}, {"9223372036.854775807", 1e9, math.MaxInt64}, {"0e999", 1e9, 0},
	} {
		got, err := nanoseconds(c.text, c.unit)
		testkit.Check(t, err == nil && got == c.want, "%q: %d ns, %v; want %d", c.text, got, err, c.want)
	}
	for text, want := range map[string]string{
		"": "not a decimal", ".": "not a decimal", "x": "not a decimal", "1s": "not a decimal",
		"1e":   "not a decimal",
		"0x10": "not a decimal", "1_0": "not a decimal", "NaN": "not a decimal", "--1": "not a decimal",
		"1e99999999": "not a decimal", "-1": "negative", "-1e-30": "negative",
		"9223372036.854775808": "too large", "1e300": "too large",
	} {
		if got, err := nanoseconds(text, 1e9); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v; want an error with %q", text, got, err, want)
		}
	}
}

func TestReadFilePassesOnWhatTheSystemSays(t *testing.T) {
	dir := t.TempDir()
	if _, err := ReadFile(filepath.Join(dir, "none.csv")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	if _, err := ReadFile(dir); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a folder: %v", err)
	}
	path := filepath.Join(dir, "t.csv")
	testkit.NoErr(t, os.WriteFile(path, []byte("time_s\nx\n"), 0o600))
	if _, err := ReadFile(path); err == nil || !strings.Contains(err.Error(), path+": there are no requests") {
		t.Errorf("a wrong file: %v", err)
	}
	broken := errors.New("the disk is broken")
	failing := io.MultiReader(strings.NewReader("time_s\n1\n"), iotest.ErrReader(broken))
	_, err := Read("t.csv", failing)
	testkit.Check(t, errors.Is(err, broken), "a reader that fails: %v", err)
}

// written is the text of a trace.
func written(requests []scenario.TraceRequest) string {
	text := "time_ns,process,key,tokens\n"
	for _, r := range requests {
		text += fmt.Sprintf("%d,%d,%d,%d\n", r.At, r.Process, r.Key, r.Cost)
	}
	return text
}

func TestReadReadsWhatIsWritten(t *testing.T) {
	rng := testkit.Rand(t)
	for range 500 {
		// Given any trace whose keys and processes are numbered by first appearance
		var want []scenario.TraceRequest
		at, keys, processes := time.Duration(0), 0, 0
		for range 1 + rng.IntN(50) {
			at += time.Duration(rng.Int64N(1 << rng.IntN(36)))
			key := rng.IntN(keys + 1)
			keys = max(keys, key+1)
			process, cost := rng.IntN(processes+1), 1+rng.Int64N(1<<rng.IntN(62))
			processes = max(processes, process+1)
			want = append(want, scenario.TraceRequest{At: at, Process: process, Key: key, Cost: cost})
		}
		got := read(t, written(want))
		testkit.Must(t, reflect.DeepEqual(got, want), "wrote %v\nread  %v", want, got)
	}
}

func TestDigestTellsTracesApart(t *testing.T) {
	base := scenario.TraceRequest{At: 1, Process: 2, Key: 3, Cost: 4}
	seen := map[string][]scenario.TraceRequest{}
	for _, one := range []scenario.TraceRequest{
		base,
		{At: 2, Process: 2, Key: 3, Cost: 4},
		{At: 1, Process: 3, Key: 3, Cost: 4},
		{At: 1, Process: 2, Key: 4, Cost: 4},
		{At: 1, Process: 2, Key: 3, Cost: 5},
		{At: 2, Process: 1, Key: 3, Cost: 4},
	} {
		for _, requests := range [][]scenario.TraceRequest{{one}, {base, one}} {
			sum := digest(requests)
			other, ok := seen[sum]
			testkit.Check(t, !ok, "%v and %v have the digest %s", requests, other, sum)
			seen[sum] = requests
			testkit.Check(t, len(sum) == 16, "the digest %q has not 16 digits", sum)
		}
	}
	// The digest is in reports, so it is the same on every machine and in every release.
	got := digest([]scenario.TraceRequest{base})
	testkit.Check(t, got == "73e200e2b048c86d", "the digest of a known trace has become %s", got)
}

// FuzzRead: whatever the text is, it is read or refused; and what is read is written
// and read alike.
func FuzzRead(f *testing.F) {
	f.Add("time_s\n0\n1.5\n")
	f.Add("key,time_ms,tokens,process\nb,1,3,web-7\na,1e3,1,2\n")
	f.Add(accessLog)
	f.Add("time_ns,key\n40000000000000000,\"a,\nb\"\n")
	place := regexp.MustCompile(`^trace: invalid trace: t.csv: .`)
	f.Fuzz(func(t *testing.T, text string) {
		trace, err := Read("t.csv", strings.NewReader(text))
		if err != nil {
			testkit.Must(t, errors.Is(err, ErrInvalid) && place.MatchString(err.Error()),
				"the error names no file: %v", err)
			return
		}
		back := read(t, written(trace.Requests))
		testkit.Must(t, digest(back) == trace.Sum && reflect.DeepEqual(back, trace.Requests), "read %v\nthen %v", trace,
			back)
	})
}

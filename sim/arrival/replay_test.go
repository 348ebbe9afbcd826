package arrival

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// played is what a process gets until the end: "moment key cost", the moment in milliseconds.
func played(r *Recording, process int, start, end time.Duration) (all []string) {
	p := NewReplayer(r, process, int64(start))
	for now := p.Next(int64(start)); now < int64(end); now = p.Next(now) {
		all = append(all, fmt.Sprintf("%d %d %d", now/int64(time.Millisecond), p.Key, p.Cost))
	}
	return all
}

func milliseconds(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func TestATraceIsReplayed(t *testing.T) {
	// Given requests of processes 0 to 4, a millisecond or more apart, on a fleet of two,
	trace := &scenario.Trace{Requests: []scenario.TraceRequest{
		{At: milliseconds(10), Process: 0, Key: 7, Cost: 1},
		{At: milliseconds(10), Process: 3, Key: 8, Cost: 2},
		{At: milliseconds(20), Process: 4, Key: 9, Cost: 3},
		{At: milliseconds(30), Process: 1, Key: 7, Cost: 4},
		{At: milliseconds(50), Process: 2, Key: 5, Cost: 5},
	}}
	for _, c := range []struct {
		what     string
		repeated bool
		process  int
		from, to int
		want     []string
	}{
		{"even processes", false, 0, 0, 1000, []string{"10 7 1", "20 9 3", "50 5 5"}},
		{"odd processes", false, 1, 0, 1000, []string{"10 8 2", "30 7 4"}},
		{"a later start", false, 0, 11, 1000, []string{"20 9 3", "50 5 5"}},
		{"a start at a request", false, 0, 20, 1000, []string{"20 9 3", "50 5 5"}},
		{"a start after the end", false, 0, 51, 1000, nil},
		// The trace lasts 50 ms and the mean gap of 10 ms: the second time begins at 60 ms.
		{"again", true, 1, 0, 140, []string{"10 8 2", "30 7 4", "70 8 2", "90 7 4", "130 8 2"}},
		{"again from the second time on", true, 1, 75, 140, []string{"90 7 4", "130 8 2"}},
		{"again from the end of the first time on", true, 0, 55, 140,
			[]string{"70 7 1", "80 9 3", "110 5 5", "130 7 1"}},
	} {
		// when it is replayed,
		r := NewRecording(trace, 2, c.repeated)
		got := played(r, c.process, milliseconds(c.from), milliseconds(c.to))
		// then each gets its own.
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

func TestReplaysThatEnd(t *testing.T) {
	for _, c := range []struct {
		what      string
		requests  []scenario.TraceRequest
		processes int
		process   int
		until     time.Duration
		want      []string
	}{
		{"a trace without a length is played once",
			[]scenario.TraceRequest{{Key: 1, Cost: 1}, {Key: 2, Cost: 1}}, 1, 0, time.Hour,
			[]string{"0 1 1", "0 2 1"}},
		{"an empty trace", nil, 1, 0, time.Hour, nil},
		{"a process of which the trace knows nothing",
			[]scenario.TraceRequest{{At: time.Second, Key: 1, Cost: 1}}, 2, 1, time.Hour, nil},
		{"one request: its own moment is the length of the trace",
			[]scenario.TraceRequest{{At: milliseconds(5), Key: 1, Cost: 1}}, 1, 0, milliseconds(16),
			[]string{"5 1 1", "10 1 1", "15 1 1"}},
	} {
		got := played(NewRecording(&scenario.Trace{Requests: c.requests}, c.processes, true), c.process, 0, c.until)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: played as %q, want %q", c.what, got, c.want)
		}
	}
}

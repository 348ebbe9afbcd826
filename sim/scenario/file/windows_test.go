package file

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// TestWindowsKeepTheirKindAndOffset in a file, in JSON, and as an assignment on a command line.
func TestWindowsKeepTheirKindAndOffset(t *testing.T) {
	// Given a scenario with a limit of every kind,
	want := []lease.Limit{
		lease.Sliding(100, time.Minute), lease.Calendar(1000, 24*time.Hour, 16*time.Hour),
		lease.Calendar(7, 250*time.Millisecond, 0), lease.PerSecond(50).WithBurst(9),
	}
	s, err := Parse("s.yaml", []byte("limits: [100 in 1m, 1000 each 24h from 16h, 7 each 250ms, 50/s burst 9]"))
	testkit.Must(t, err == nil && slices.Equal(s.Limits, want), "%v: read %+v", err, s.Limits)
	// when it is written and read again, as YAML and as JSON,
	text, err := Marshal(s)
	testkit.NoErr(t, err)
	again, err := Parse("s.yaml", text)
	testkit.Check(t, err == nil && slices.Equal(again.Limits, want), "%v: wrote\n%s", err, text)
	asJSON, err := json.Marshal(s.Limits)
	testkit.NoErr(t, err)
	var read []lease.Limit
	testkit.NoErr(t, json.Unmarshal(asJSON, &read))
	// then the limits are what they were, and other limits make another hash.
	testkit.Check(t, slices.Equal(read, want), "JSON has %s", asJSON)
	for i := range want[:2] {
		other := s
		other.Limits = slices.Clone(want)
		testkit.NoErr(t, Set(&other, "limits["+string(rune('0'+i))+"]=100 each 1m from 3s"))
		testkit.Check(t, other.Limits[i] == lease.Calendar(100, time.Minute, 3*time.Second) && other.Hash() != s.Hash(),
			"set to %+v, hash %s and %s", other.Limits[i], other.Hash(), s.Hash())
	}
}

// TestTheBoundaryIsThatOfTheFirstWindow, unless a scenario says another.
func TestTheBoundaryIsThatOfTheFirstWindow(t *testing.T) {
	for text, want := range map[string][2]time.Duration{
		"limits: [9/s, 100 in 1m], workload: {kind: boundary}":                                           {2 * time.Minute, 10 * time.Millisecond},
		"limits: [100 in 1m], workload: {kind: boundary, every: 7s, within: 1s}":                         {7 * time.Second, time.Second},
		"limits: [9/s], workload: {kind: boundary}":                                                      {500 * time.Millisecond, 10 * time.Millisecond},
		"limits: [100 in 1m], workload: {kind: sync}":                                                    {500 * time.Millisecond, 0},
		"limits: [9 each 1h], groups: [{workload: {kind: boundary}}], workload: {kind: sync, every: 1s}": {2 * time.Hour, 10 * time.Millisecond},
	} {
		s, err := Parse("s.yaml", []byte("{"+text+"}"))
		testkit.NoErr(t, err)
		s = s.Defaults()
		w := s.Workload
		if own := s.Groups[0].Workload; own != nil {
			w = *own
		}
		testkit.Check(t, w.Every == want[0] && w.Within == want[1], "%s: every %v within %v", text, w.Every, w.Within)
	}
}

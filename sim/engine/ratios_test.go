package engine

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

func TestRatiosAreOfWhatTheCentralBucketAdmits(t *testing.T) {
	w := newRun(t, scenario.Scenario{Limits: []lease.Limit{lease.PerSecond(1)}})
	if got := figure(w, "false_reject_ratio") + figure(w, "swapped_ratio"); got != 0 {
		t.Errorf("of nothing %v is rejected", got)
	}
	w.centralAdmitted, w.tally.FalseRejects, w.tally.Swapped, w.tally.Admitted = 200, 3, 5, 198
	if a, b, c := figure(w, "false_reject_ratio"), figure(w, "swapped_ratio"), figure(w, "admitted_vs_central"); a != 0.015 || b != 0.025 || c != 0.99 {
		t.Errorf("the ratios are %v, %v and %v, want 0.015, 0.025 and 0.99", a, b, c)
	}
}

func TestWaitQuantilesOfKnownWaits(t *testing.T) {
	ms := func(from, to int) (all []time.Duration) {
		for n := from; n <= to; n++ {
			all = append(all, time.Duration(n)*time.Millisecond)
		}
		return all
	}
	none := func(n int) []time.Duration { return make([]time.Duration, n) }
	for _, c := range []struct {
		what          string
		waits         []time.Duration
		p50, p99, max float64
	}{
		{"nobody", nil, 0, 0, 0},
		{"nobody waited", none(10), 0, 0, 0},
		{"one", ms(7, 7), 7, 7, 7},
		{"1 to 100 ms", ms(1, 100), 50, 99, 100},
		{"1 to 160 ms", ms(1, 160), 80, 159, 160}, // 99 % are 158.4
		{"1 to 200 ms", ms(1, 200), 100, 198, 200},
		{"one of two", append(ms(4, 4), 0), 0, 4, 4},
		{"one of a hundred", append(ms(4, 4), none(99)...), 0, 0, 4},
		{"two of a hundred", append(ms(4, 5), none(98)...), 0, 4, 5},
		{"fifty of a hundred", append(ms(1, 50), none(50)...), 0, 49, 50},
		{"fifty-one of a hundred", append(ms(1, 51), none(49)...), 1, 50, 51},
	} {
		// Given admitted requests that waited so long,
		w := newRun(t, scenario.Scenario{Limits: []lease.Limit{lease.PerSecond(1)}})
		w.now = int64(time.Second)
		for _, wait := range c.waits {
			w.answer(request{p: w.processes[0], n: 1, user: -1, at: w.now - int64(wait)}, true, 1)
		}
		// then so many percent waited no longer than this, to three digits.
		for name, want := range map[string]float64{"wait_ms_p50": c.p50, "wait_ms_p99": c.p99, "wait_ms_max": c.max} {
			if got := figure(w, name); got < want || got > want*1.001 {
				t.Errorf("%s: %s is %v, want %v", c.what, name, got, want)
			}
		}
	}
}

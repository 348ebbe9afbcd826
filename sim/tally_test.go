package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
)

// verdict is one request and what was decided about it.
type verdict struct {
	key         int32
	n           int64
	central, ok bool
}

func TestFalseRejectsAndSwapsOfKnownDecisions(t *testing.T) {
	const yes, no = true, false
	for _, c := range []struct {
		what                        string
		verdicts                    []verdict
		admitted, rejected, swapped int64
	}{
		{"as one central bucket", []verdict{{0, 1, yes, yes}, {0, 5, no, no}}, 1, 0, 0},
		{"denied without need", []verdict{{0, 3, yes, no}}, 0, 3, 0},
		{"another was admitted in its place before", []verdict{{0, 3, no, yes}, {0, 2, yes, no}}, 3, 0, 2},
		{"a part of it in its place", []verdict{{0, 3, no, yes}, {0, 5, yes, no}}, 3, 2, 3},
		{"one place is taken once", []verdict{{0, 3, no, yes}, {0, 3, yes, no}, {0, 1, yes, no}}, 3, 1, 3},
		{"what comes later is no place", []verdict{{0, 3, yes, no}, {0, 3, no, yes}}, 3, 3, 0},
		{"nor is another key's", []verdict{{1, 3, no, yes}, {0, 3, yes, no}}, 3, 3, 0},
		{"of each key", []verdict{{1, 3, no, yes}, {0, 2, no, yes}, {1, 4, yes, no}, {0, 2, yes, no}}, 5, 1, 5},
	} {
		// Given requests that are decided in this order,
		got := newTally(1, 2)
		r := request{p: &process{}}
		for _, v := range c.verdicts {
			r.key, r.n, r.central = v.key, v.n, v.central
			got.decided(&r, v.ok)
		}
		// then the tokens are counted as it says.
		if got.admitted != c.admitted || got.falseRejects != c.rejected || got.swapped != c.swapped {
			t.Errorf("%s: %d admitted, %d rejected falsely, %d swapped, want %d, %d and %d", c.what, got.admitted, got.falseRejects, got.swapped, c.admitted, c.rejected, c.swapped)
		}
		// And after the warm-up nothing of it counts.
		got.reset()
		r.key, r.n, r.central = 0, 1, true
		got.decided(&r, false)
		if got.admitted != 0 || got.falseRejects != 1 || got.swapped != 0 || !slices.Equal(got.byProcess, []int64{0}) {
			t.Errorf("%s: after the warm-up there are %+v", c.what, got)
		}
	}
}

func TestRatiosAreOfWhatTheCentralBucketAdmits(t *testing.T) {
	w := newRun(t, Scenario{Limits: []lease.Limit{lease.PerSecond(1)}})
	if got := figure(w, "false_reject_ratio") + figure(w, "swapped_ratio"); got != 0 {
		t.Errorf("of nothing %v is rejected", got)
	}
	w.centralAdmitted, w.tally.falseRejects, w.tally.swapped, w.tally.admitted = 200, 3, 5, 198
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
		w := newRun(t, Scenario{Limits: []lease.Limit{lease.PerSecond(1)}})
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

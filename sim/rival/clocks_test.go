package rival

import (
	"fmt"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

func TestClocksThatAreAlikeAreAsGoodAsTheStores(t *testing.T) {
	rng := testkit.Rand(t)
	for _, name := range Names() {
		if !strings.HasSuffix(name, "_client") {
			continue
		}
		for i, limits := range someLimits {
			// Given an algorithm by the store's time, which looks at no clock,
			f := fleetOf(3, limits...)
			f.Local = func(int, int64) int64 { panic("the store has its own time") }
			all := draw(rng, f, 3000, 3)
			want := decide(start(t, strings.TrimSuffix(name, "_client"), f), all)
			// then by clocks that are right it decides alike, and by those that are off by a whole number of
			// windows, so that these begin at the same moments.
			offsets := []int64{0}
			if i == 0 {
				offsets = []int64{0, -100 * second, -500 * ms, 777 * second}
			}
			for _, offset := range offsets {
				f.Local = func(_ int, now int64) int64 { return now + offset }
				if text := difference(all, want, decide(start(t, name, f), all)); text != "" {
					t.Errorf("%s, %v, clocks %+d us off: %s", name, limits, offset, text)
				}
			}
			f.Local = nil
			if text := difference(all, want, decide(start(t, name, f), all)); text != "" {
				t.Errorf("%s, %v, without clocks: %s", name, limits, text)
			}
		}
	}
}

func TestClocksApartOpenWindowsOfTheirOwn(t *testing.T) {
	// Given clocks that are further apart than a window is long
	for _, name := range []string{"fixed_window_client", "sliding_log_client", "sliding_cells_client"} {
		f := fleetOf(4, tenPerSecond)
		f.Local = func(p int, now int64) int64 { return now + int64(p-1)*3*second }
		a := start(t, name, f)
		for round := range int64(10) {
			now := round * second
			var got []int64
			for p := range f.Processes {
				got = append(got, burst(a, now, p))
			}
			// Then each, from the slowest to the fastest, has the whole quota, in every window.
			if fmt.Sprint(got) != "[5 5 5 5]" {
				t.Errorf("%s, round %d: %v were admitted, want the quota of 5 each", name, round, got)
			}
		}
	}
}

func TestCentralClientAdmitsAheadWhatAFastClockBrings(t *testing.T) {
	// Given two processes, the second 300 ms ahead, on a bucket of 5 that refills at 10/s
	a := start(t, "central_client", ahead(300*ms, tenPerSecond))
	// When the first has spent the burst, then the second finds 3 more at the same moment.
	if first, second := burst(a, 0, 0), burst(a, 0, 1); first != 5 || second != 3 {
		t.Errorf("%d and %d were admitted at once, want 5 and 3", first, second)
	}
	// The bucket's time never goes back: it brings the first one nothing until its own clock is
	// there.
	if got := burst(a, 300*ms, 0); got != 0 {
		t.Errorf("%d were admitted for time that had been counted", got)
	}
	if got := burst(a, 400*ms, 0); got != 1 {
		t.Errorf("%d were admitted 100 ms later, want 1", got)
	}
	// However far ahead, it brings a burst at most.
	far := start(t, "central_client", ahead(3600*second, tenPerSecond))
	if first, second := burst(far, 0, 0), burst(far, 0, 1); first != 5 || second != 5 {
		t.Errorf("%d and %d were admitted at once, want 5 and 5", first, second)
	}
}

func TestAKeyThatAFastClockLeftBehindExpires(t *testing.T) {
	for _, limits := range [][]lease.Limit{{tenPerSecond}, {tenPerSecond, lease.PerSecond(1000).WithBurst(9)}, {lease.PerSecond(1000).WithBurst(9), tenPerSecond}} {
		// Given a bucket that fills in 500 ms, and was last used by a clock an hour ahead
		a := start(t, "central_client", ahead(3600*second, limits...))
		burst(a, 0, 1)
		// When nobody has come for the time that it takes to fill, then it is forgotten, whatever
		// it says.
		if got := burst(a, 500*ms-1, 0); got != 0 {
			t.Errorf("%v: %d were admitted before the key had expired", limits, got)
		}
		if got := burst(a, 1000*ms-1, 0); got != 5 {
			t.Errorf("%v: %d were admitted after the key had expired, want the burst", limits, got)
		}
	}
}

func TestALogForgetsWhatNobodyRenews(t *testing.T) {
	// Given a key that only a clock an hour ahead has written, then a window later nothing is left of
	// it.
	a := start(t, "sliding_log_client", ahead(3600*second, tenPerSecond))
	burst(a, 0, 1)
	for _, step := range []struct{ now, want int64 }{{500*ms - 1, 0}, {500 * ms, 5}, {1000 * ms, 5}} {
		if got := burst(a, step.now, 0); got != step.want {
			t.Errorf("%d were admitted at %d us, want %d", got, step.now, step.want)
		}
	}
}

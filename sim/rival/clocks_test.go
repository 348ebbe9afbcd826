package rival

import (
	"fmt"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

func TestWithRightClocksTheCallersTimeIsAsGoodAsTheStores(t *testing.T) {
	rng := testkit.Rand(t)
	for _, name := range Names() {
		if !strings.HasSuffix(name, "_client") {
			continue
		}
		for _, limits := range someLimits {
			server, client := fleetOf(3, limits...), fleetOf(3, limits...)
			server.Local = func(int, int64) int64 { panic("the store has its own time") }
			client.Local = func(_ int, now int64) int64 { return now }
			all := draw(rng, server, 3000, 3)
			want := decide(start(t, strings.TrimSuffix(name, "_client"), server), all)
			if text := difference(all, want, decide(start(t, name, client), all)); text != "" {
				t.Errorf("%s: by the store's time and by right clocks: %s", name, text)
			}
			if text := difference(all, want, decide(start(t, name, fleetOf(3, limits...)), all)); text != "" {
				t.Errorf("%s: by the store's time and without clocks: %s", name, text)
			}
		}
	}
}

func TestClocksThatAreWrongAlikeAreAsGoodAsRightOnes(t *testing.T) {
	rng := testkit.Rand(t)
	for _, name := range Names() {
		if !strings.HasSuffix(name, "_client") {
			continue
		}
		// Given clocks that are off by a whole number of windows, so that these begin at the same
		// moments
		for _, offset := range []int64{-100 * second, -500 * ms, 777 * second} {
			f := fleetOf(3, tenPerSecond)
			all := draw(rng, f, 1000, 3)
			want := decide(start(t, name, f), all)
			f.Local = func(_ int, now int64) int64 { return now + offset }
			if text := difference(all, want, decide(start(t, name, f), all)); text != "" {
				t.Errorf("%s: by right clocks, and %+d us off: %s", name, offset, text)
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

func TestClocksALittleApart(t *testing.T) {
	// Given a window of 500 ms with a quota of 5, and a second clock that is 300 ms ahead
	cases := []struct {
		name        string
		first, then int64
		want        string // at either time what the slow one is admitted, then the fast one
		because     string
	}{
		{"fixed_window_client", 100 * ms, 300 * ms, "[5 0 0 5]", "the fast one is in the next window at 300 ms"},
		{"fixed_window_client", 250 * ms, 450 * ms, "[5 5 0 0]", "the fast one is in the next window at 250 ms"},
		{"sliding_log_client", 100 * ms, 300*ms - 1, "[5 0 0 0]", "for the fast one 500 ms are not over"},
		{"sliding_log_client", 100 * ms, 300 * ms, "[5 0 0 5]", "for the fast one 500 ms are over"},
		{"sliding_cells_client", 100 * ms, 310 * ms, "[5 0 0 1]", "the fast one has left a fifth of the oldest cell"},
		{"sliding_cells_client", 100 * ms, 350 * ms, "[5 0 0 5]", "the fast one has left it"},
		{"central_client", 100 * ms, 300 * ms, "[5 3 0 2]", "300 ms refill 3 for the fast one, and 200 ms more 2"},
	}
	for _, c := range cases {
		a := start(t, c.name, ahead(300*ms, tenPerSecond))
		var got []int64
		for _, now := range []int64{c.first, c.then} {
			got = append(got, burst(a, now, 0), burst(a, now, 1))
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%s at %d and %d us: %v were admitted, want %s: %s", c.name, c.first, c.then, got, c.want, c.because)
		}
	}
}

func TestALogForgetsWhatNobodyRenews(t *testing.T) {
	// Given a key that only a clock an hour ahead has written
	for _, name := range []string{"sliding_log_client"} {
		a := start(t, name, ahead(3600*second, tenPerSecond))
		burst(a, 0, 1)
		if got := burst(a, 500*ms-1, 0); got != 0 {
			t.Errorf("%s: %d were admitted before the key had expired", name, got)
		}
		if got := burst(a, 500*ms, 0); got != 5 {
			t.Errorf("%s: %d were admitted when the key had expired, want the burst", name, got)
		}
		// Then nothing is left of the time that the other clock wrote.
		if got := burst(a, 1000*ms, 0); got != 5 {
			t.Errorf("%s: %d were admitted a window later, want the burst", name, got)
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

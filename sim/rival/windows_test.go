package rival

import (
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
)

func TestAFixedWindowAdmitsTwiceItsQuotaAcrossItsBoundary(t *testing.T) {
	// Given windows of 500 ms with a quota of 5
	a := start(t, "fixed_window", fleetOf(1, tenPerSecond))
	w := worstExcess{limit: tenPerSecond}
	// When everybody comes just before a window ends, and again just after
	for _, now := range []int64{500*ms - 1, 500 * ms} {
		got := burst(a, now, 0)
		w.admit(now, got)
		if got != 5 {
			t.Errorf("at %d us %d were admitted, want the quota", now, got)
		}
	}
	// Then ten are admitted within a microsecond: a quota more than the bound.
	if w.tokens() != 5 {
		t.Errorf("the bound is exceeded by %d, want 5", w.tokens())
	}
	if got := burst(a, 1000*ms-1, 0); got != 0 {
		t.Errorf("%d more were admitted in the second window", got)
	}
}

func TestAFixedWindowOfAFractionKeepsItsBoundaries(t *testing.T) {
	// Given windows of 10^6/3 us with a quota of 1
	a := start(t, "fixed_window", fleetOf(1, lease.PerSecond(3).WithBurst(1)))
	for window := range int64(3000) {
		first := (window*1_000_000 + 2) / 3 // the first whole microsecond in it
		last := ((window+1)*1_000_000+2)/3 - 1
		if !a.Decide(first, 0, 0, 1) {
			t.Fatalf("window %d: its first microsecond %d was refused", window, first)
		}
		if a.Decide(last, 0, 0, 1) {
			t.Fatalf("window %d: one more was admitted in its last microsecond %d", window, last)
		}
	}
}

func TestASlidingLogForgetsAnAdmissionWhenItsWindowIsOver(t *testing.T) {
	// Given 5 in any 500 ms, of which 2 were admitted at 0 and 3 at 200 ms
	a := start(t, "sliding_log", fleetOf(1, tenPerSecond))
	a.Decide(0, 0, 0, 2)
	a.Decide(200*ms, 0, 0, 3)
	for _, step := range []struct{ now, want int64 }{{500*ms - 1, 0}, {500 * ms, 2}, {700*ms - 1, 0}, {700 * ms, 3}, {1000*ms - 1, 0}, {1000 * ms, 2}} {
		if got := burst(a, step.now, 0); got != step.want {
			t.Errorf("at %d us %d were admitted, want %d", step.now, got, step.want)
		}
	}
}

func TestSlidingCellsByHand(t *testing.T) {
	// Given ten cells of 50 ms with a quota of 5, and 5 admissions in the middle of cell 0
	a := start(t, "sliding_cells", fleetOf(1, tenPerSecond))
	if got := burst(a, 25*ms, 0); got != 5 {
		t.Fatalf("%d were admitted at once", got)
	}
	steps := []struct {
		when      string
		now, want int64
	}{
		{"in cell 9 all count", 499 * ms, 0},
		{"at the start of cell 10 all still count", 500 * ms, 0},
		{"a fifth of cell 10 is worth a fifth of them", 510 * ms, 1},
		{"but not a microsecond before the next fifth", 520*ms - 1, 0},
		{"the next fifth", 520 * ms, 1},
		{"and the next two", 540 * ms, 2},
		{"in cell 11 the first are forgotten, and 4 count", 550 * ms, 1},
	}
	for _, s := range steps {
		if got := burst(a, s.now, 0); got != s.want {
			t.Errorf("%s: at %d us %d were admitted, want %d", s.when, s.now, got, s.want)
		}
	}
}

// written is one admission as the store saw it.
type written struct {
	now, local int64 // true time, and by the caller's clock
	n          int64
}

// windowModels are the definitions, over the whole record of what was admitted: how much of it counts when a request
// comes. They know nothing of counters that are kept or removed, so they hold for one process.
var windowModels = map[string]func(record []written, l lease.Limit, local int64) *big.Rat{
	"fixed_window_client": func(record []written, l lease.Limit, local int64) *big.Rat {
		k, _ := cellOf(l, 1, local)
		sum := new(big.Rat)
		for _, w := range record {
			if at, _ := cellOf(l, 1, w.local); at.Cmp(k) == 0 {
				sum.Add(sum, big.NewRat(w.n, 1))
			}
		}
		return sum
	},
	"sliding_log_client": func(record []written, l lease.Limit, local int64) *big.Rat {
		sum := new(big.Rat)
		for _, w := range record {
			if age := big.NewRat(local-w.local, 1); age.Cmp(lengthOf(l, 1)) < 0 {
				sum.Add(sum, big.NewRat(w.n, 1))
			}
		}
		return sum
	},
	"sliding_cells_client": slidingModel(10),
	"sliding_cells:3":      slidingModel(3),
	"sliding_cells:1":      slidingModel(1),
}

func slidingModel(count int64) func(record []written, l lease.Limit, local int64) *big.Rat {
	return func(record []written, l lease.Limit, local int64) *big.Rat {
		k, into := cellOf(l, count, local)
		sum := new(big.Rat)
		for _, w := range record {
			at, _ := cellOf(l, count, w.local)
			switch age := new(big.Int).Sub(k, at).Int64(); {
			case age < count:
				sum.Add(sum, big.NewRat(w.n, 1))
			case age == count:
				covered := new(big.Rat).Sub(big.NewRat(1, 1), new(big.Rat).Quo(into, lengthOf(l, count)))
				sum.Add(sum, covered.Mul(covered, big.NewRat(w.n, 1)))
			}
		}
		return sum
	}
}

// lengthOf is Burst/R/count in microseconds.
func lengthOf(l lease.Limit, count int64) *big.Rat {
	length := new(big.Rat).Mul(big.NewRat(l.Capacity(), l.Tokens), big.NewRat(int64(l.Per), 1000))
	return length.Quo(length, big.NewRat(count, 1))
}

// cellOf is the number of the cell that holds a time, and the time since its start.
func cellOf(l lease.Limit, count, at int64) (*big.Int, *big.Rat) {
	length := lengthOf(l, count)
	q := new(big.Rat).Quo(big.NewRat(at, 1), length)
	k := new(big.Int).Div(q.Num(), q.Denom()) // rounds down, below zero too
	return k, new(big.Rat).Sub(big.NewRat(at, 1), length.Mul(length, new(big.Rat).SetInt(k)))
}

func TestWindowsAgreeWithTheirDefinitions(t *testing.T) {
	rng := seeded(t)
	limits := []lease.Limit{
		tenPerSecond,
		lease.PerSecond(3).WithBurst(4),
		{Tokens: 1_000_003, Per: 7 * time.Second, Burst: 20},
		{Tokens: 5, Per: time.Hour, Burst: 3},
		{Tokens: 7, Per: 45 * time.Microsecond, Burst: 9},
	}
	for _, name := range []string{"fixed_window_client", "sliding_log_client", "sliding_cells_client", "sliding_cells:3", "sliding_cells:1"} {
		for _, limit := range limits {
			for range 10 {
				f := fleetOf(1, limit)
				offset := rng.Int64N(100*second) - 80*second
				if name == "sliding_cells:3" || name == "sliding_cells:1" {
					offset = 0
				}
				f.Local = func(_ int, now int64) int64 { return now + offset }
				a := start(t, name, f)
				var record []written
				for i, r := range draw(rng, f, 60, 3) {
					local := r.now + offset
					counts := windowModels[name](record, limit, local)
					want := counts.Add(counts, big.NewRat(r.n, 1)).Cmp(big.NewRat(limit.Capacity(), 1)) <= 0
					if got := a.Decide(r.now, 0, 0, r.n); got != want {
						t.Fatalf("%s, %v, clock %+d us: request %d %+v is %v, by the definition %v", name, limit, offset, i, r, got, want)
					}
					if want {
						record = append(record, written{r.now, local, r.n})
					}
				}
			}
		}
	}
}

// TestSlidingWindowsKeepTheBound: with the quota Burst per Burst/R, what the log admits in w is at most
// Burst*(1 + floor(w*R/Burst)), and what a cell forgets while it leaves the window is less than what has flowed in.
func TestSlidingWindowsKeepTheBound(t *testing.T) {
	rng := seeded(t)
	for _, name := range []string{"sliding_log", "sliding_cells", "sliding_cells:1", "sliding_cells:3", "leaky"} {
		for range 200 {
			limit := lease.PerSecond(1 + rng.Int64N(500)).WithBurst(1 + rng.Int64N(100))
			window := limit.TimeToFull().Microseconds()
			a := start(t, name, fleetOf(1, limit))
			w := worstExcess{limit: limit}
			var now int64
			for range 60 {
				// When requests crowd around the moments at which windows and cells end
				now += []int64{rng.Int64N(3 * window), rng.Int64N(1 + window/10), window - now%window - rng.Int64N(2), window / 10, window}[rng.IntN(5)]
				for range 1 + rng.Int64N(2*limit.Burst) {
					if a.Decide(now, 0, 0, 1) {
						w.admit(now, 1)
					}
				}
			}
			if w.tokens() > 0 {
				t.Fatalf("%s, %v: the bound is exceeded by %d", name, limit, w.tokens())
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
		{"leaky_client", 100 * ms, 300 * ms, "[5 3 0 2]", "300 ms drain 3 for the fast one, and 200 ms more 2"},
		{"gcra_client", 100 * ms, 300 * ms, "[5 3 0 2]", "likewise"},
		{"central_client", 100 * ms, 300 * ms, "[5 3 0 2]", "likewise"},
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

func TestLogsAndQueuesForgetWhatNobodyRenews(t *testing.T) {
	// Given a key that only a clock an hour ahead has written
	for _, name := range []string{"gcra_client", "sliding_log_client", "leaky_client"} {
		a := start(t, name, ahead(3600*second, tenPerSecond))
		burst(a, 0, 1)
		if got := burst(a, 500*ms-1, 0); got != 0 {
			t.Errorf("%s: %d were admitted before the key had expired", name, got)
		}
		if got := burst(a, 500*ms, 0); got != 5 {
			t.Errorf("%s: %d were admitted when the key had expired, want the burst", name, got)
		}
	}
}

func TestASlidingLogKeepsNoMoreThanABurst(t *testing.T) {
	a := start(t, "sliding_log", fleetOf(1, lease.PerSecond(1000).WithBurst(50)))
	for now := range 10 * second / 100 {
		a.Decide(now*100, 0, 0, 1)
	}
	log := a.(*guarded).Algorithm.(*slidingLog).logs[0]
	if len(log.heap) > 50 || cap(log.heap) > 128 {
		t.Errorf("the log has %d entries in room for %d, after 10,000 admissions of a burst of 50", len(log.heap), cap(log.heap))
	}
}

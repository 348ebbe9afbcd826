package rival

import (
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// naive is the definition of a window algorithm, for one key and limit: what counts of the past
// when a request comes, and how the store notes one.
type naive interface {
	counts(now, local int64) *big.Rat
	note(now, local, n int64)
}

// naiveLog is a sorted set that need not be sorted.
type naiveLog struct {
	window int64
	all    []admission
	until  int64
}

func (l *naiveLog) counts(now, local int64) *big.Rat {
	if now >= l.until {
		l.all = nil
	}
	l.all = slices.DeleteFunc(l.all, func(a admission) bool { return a.at <= local-l.window })
	var sum int64
	for _, a := range l.all {
		sum += a.n
	}
	return big.NewRat(sum, 1)
}

func (l *naiveLog) note(now, local, n int64) {
	l.all = append(l.all, admission{local, n})
	l.until = now + l.window
}

// naiveCells are the counters that the store has, by their cells. history is 0 for a fixed window.
type naiveCells struct {
	length   *big.Rat // microseconds
	history  int64
	counters map[int64]counter
}

// cell is the number of the cell that holds a time, and the time since its start.
func (c *naiveCells) cell(at int64) (int64, *big.Rat) {
	q := new(big.Rat).Quo(big.NewRat(at, 1), c.length)
	k := new(big.Int).Div(q.Num(), q.Denom()) // rounds down, below zero too
	return k.Int64(), new(big.Rat).Sub(big.NewRat(at, 1), times(c.length, new(big.Rat).SetInt(k)))
}

func (c *naiveCells) counts(now, local int64) *big.Rat {
	k, into := c.cell(local)
	sum := new(big.Rat)
	for cell, counter := range c.counters {
		switch n := big.NewRat(counter.n, 1); {
		case now >= counter.until || cell > k:
		case cell == k || cell > k-c.history:
			sum.Add(sum, n)
		case c.history > 0 && cell == k-c.history:
			covered := new(big.Rat).Sub(big.NewRat(1, 1), into.Quo(into, c.length))
			sum.Add(sum, times(covered, n))
		}
	}
	return sum
}

func (c *naiveCells) note(now, local, n int64) {
	k, _ := c.cell(local)
	if old := c.counters[k]; now < old.until {
		n += old.n
	}
	c.counters[k] = counter{k, n, now + roundedUp(times(c.length, big.NewRat(c.history+1, 1)))}
}

func roundedUp(r *big.Rat) int64 {
	up := new(big.Int).Add(r.Num(), r.Denom())
	return up.Sub(up, big.NewInt(1)).Div(up, r.Denom()).Int64()
}

func newNaive(name string, l lease.Limit) naive {
	window := times(big.NewRat(l.Capacity(), l.Tokens), big.NewRat(int64(l.Per), 1000))
	cells := func(count, history int64) naive {
		return &naiveCells{times(window, big.NewRat(1, count)), history, map[int64]counter{}}
	}
	switch name {
	case "sliding_log_client":
		return &naiveLog{window: roundedUp(window)}
	case "fixed_window_client":
		return cells(1, 0)
	case "sliding_cells_client":
		return cells(10, 10)
	case threeCells:
		return cells(3, 3)
	default:
		return cells(1, 1)
	}
}

func TestWindowsAgreeWithTheirDefinitions(t *testing.T) {
	rng := testkit.Rand(t)
	limits := []lease.Limit{
		tenPerSecond,
		lease.PerSecond(3).WithBurst(4),
		{Tokens: 1_000_003, Per: 7 * time.Second, Burst: 20},
		{Tokens: 5, Per: time.Hour, Burst: 3},
		{Tokens: 7, Per: 45 * time.Microsecond, Burst: 9},
	}
	for _, name := range []string{"fixed_window_client", "sliding_log_client", "sliding_cells_client",
		threeCells, oneCell} {
		for _, limit := range slices.Repeat(limits, 10) {
			// Given clocks that are apart by anything from nothing to some windows, and all of them wrong
			f := fleetOf(1+rng.IntN(4), limit)
			window := limit.TimeToFull().Microseconds()
			spread := 1 + rng.Int64N([]int64{1, window, 4 * window}[rng.IntN(3)])
			common := rng.Int64N(9*window) - 7*window
			offsets := make([]int64, f.Processes)
			for p := range offsets {
				offsets[p] = common + rng.Int64N(spread)
			}
			f.Local = func(p int, now int64) int64 { return now + offsets[p] }
			a, definition := start(t, name, f), newNaive(name, limit)
			for i, r := range draw(rng, f, 100, 3) {
				local := f.Local(r.p, r.now)
				counts := definition.counts(r.now, local)
				want := counts.Add(counts, big.NewRat(r.n, 1)).Cmp(big.NewRat(limit.Capacity(), 1)) <= 0
				if got := a.Decide(r.now, r.p, 0, r.n); got != want {
					t.Fatalf("%s, %v, clocks off by %v us: request %d %+v is %v, by the definition %v", name, limit,
						offsets, i, r, got, want)
				}
				if want {
					definition.note(r.now, local, r.n)
				}
			}
		}
	}
}

// TestSlidingWindowsKeepTheBound: with the quota Burst per Burst/R, what the log admits in w is at
// most Burst*(1 + floor(w*R/Burst)), and what a cell forgets while it leaves the window is less
// than what has flowed in.
func TestSlidingWindowsKeepTheBound(t *testing.T) {
	rng := testkit.Rand(t)
	for _, name := range []string{"sliding_log", "sliding_cells", oneCell, threeCells} {
		for range 200 {
			limit := lease.PerSecond(1 + rng.Int64N(500)).WithBurst(1 + rng.Int64N(100))
			window := limit.TimeToFull().Microseconds()
			a := start(t, name, fleetOf(1, limit))
			m := meterOf(limit)
			var now int64
			for range 60 {
				// When requests crowd around the moments at which windows and cells end
				now += []int64{rng.Int64N(3 * window), rng.Int64N(1 + window/10),
					window - now%window - rng.Int64N(2), window / 10, window}[rng.IntN(5)]
				for range 1 + rng.Int64N(2*limit.Burst) {
					if a.Decide(now, 0, 0, 1) {
						m.Admit(now*1000, 1)
					}
				}
			}
			x := m.ExceededBy()
			testkit.Must(t, x <= 0, "%s, %v: the bound is exceeded by %d", name, limit, x)
		}
	}
}

// Effects of wrong clocks.

func TestClocksThatAreAlikeAreAsGoodAsTheStores(t *testing.T) {
	rng := testkit.Rand(t)
	for _, name := range Names() {
		base, ok := strings.CutSuffix(name, "_client")
		if !ok {
			continue
		}
		for i, limits := range someLimits {
			// Given an algorithm by the store's time, which looks at no clock,
			f := fleetOf(3, limits...)
			f.Local = func(int, int64) int64 { panic("the store has its own time") }
			all := draw(rng, f, 3000, 3)
			want := decide(start(t, base, f), all)
			f.Local = nil
			alike(t, name+" without clocks", all, want, decide(start(t, name, f), all))
			// then by clocks that are right it decides alike, and by those that are off by a whole number of
			// windows, so that these begin at the same moments.
			for k, offset := range []int64{0, -100 * second, -500 * ms, 777 * second} {
				if i == 0 || k == 0 {
					f.Local = func(_ int, now int64) int64 { return now + offset }
					alike(t, name+" by clocks that are alike", all, want, decide(start(t, name, f), all))
				}
			}
		}
	}
}

func TestCentralClientAdmitsAheadWhatAFastClockBrings(t *testing.T) {
	// Given two processes, the second 300 ms ahead, on a bucket of 5 that refills at 10/s
	a := start(t, "central_client", apart(2, 300*ms, tenPerSecond))
	// When the first has spent the burst, then the second finds 3 more at the same moment.
	admits(t, a, 0, 0, 5)
	admits(t, a, 0, 1, 3)
	// The bucket's time never goes back: it brings the first one nothing until its own clock is there.
	admits(t, a, 300*ms, 0, 0)
	admits(t, a, 400*ms, 0, 1)
	// However far ahead, it brings a burst at most.
	far := start(t, "central_client", apart(2, 3600*second, tenPerSecond))
	admits(t, far, 0, 0, 5)
	admits(t, far, 0, 1, 5)
}

func TestAKeyThatAFastClockLeftBehindExpires(t *testing.T) {
	wide := lease.PerSecond(1000).WithBurst(9)
	for _, limits := range [][]lease.Limit{{tenPerSecond}, {tenPerSecond, wide}, {wide, tenPerSecond}} {
		// Given a bucket that fills in 500 ms, and was last used by a clock an hour ahead
		a := start(t, "central_client", apart(2, 3600*second, limits...))
		burst(a, 0, 1)
		// When no request has come for the time that it takes to fill, then it is forgotten, whatever its
		// level.
		admits(t, a, 500*ms-1, 0, 0)
		admits(t, a, 1000*ms-1, 0, 5)
	}
}

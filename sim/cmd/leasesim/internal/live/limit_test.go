package live

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/audit"
)

// seconds are admissions, or refusals, at these whole seconds.
func seconds(all ...int64) (spans []audit.Span) {
	for _, s := range all {
		at := s * int64(time.Second)
		spans = append(spans, audit.Span{Before: at, After: at + 1, N: 1})
	}
	return spans
}

// at is something that happened at a whole second.
func at(s int64) interval { return interval{s * int64(time.Second), s*int64(time.Second) + 1} }

func TestTheCentralLimiterIsExactAndLosesWhatTheFleetsDoes(t *testing.T) {
	for _, c := range []struct {
		name string
		o    Options
		h    happened
		asks []int64
		want int64
	}{
		// A window of 10 s has room again 10 s after the first admission, and not before.
		{"sliding", Options{Limit: "2 in 10s"}, happened{}, []int64{5, 6, 7, 14, 15, 15, 16, 25}, 5},
		{"calendar", Options{Limit: "2 each 10s from 5s"}, happened{}, []int64{5, 14, 14, 15, 16, 24, 25}, 5},
		{"bucket", Options{Limit: "1/s burst 2"}, happened{}, []int64{5, 5, 5, 6, 6, 9, 9, 9}, 5},
		// By a server whose clock is 3 s ahead, a period ends 3 s earlier.
		{"a clock ahead", Options{Limit: "2 each 10s"}, happened{ahead: interval{3e9, 3e9}}, []int64{5, 6, 6, 7, 7, 7}, 4},
		// What is lost is a new limiter,
		{"a loss", Options{Limit: "2 in 10s"}, happened{flush: at(7)}, []int64{5, 5, 5, 7, 7, 7}, 4},
		// or one that is used up, as it was at the start.
		{"start empty", Options{Limit: "2 in 10s", StartEmpty: true}, happened{flush: at(16)},
			[]int64{5, 14, 15, 16, 25, 26, 26, 26}, 3},
		{"an empty bucket", Options{Limit: "1/s burst 9", StartEmpty: true}, happened{}, []int64{5, 6, 6, 9, 9, 9, 9}, 4},
		// A change leaves what was admitted where it was,
		{"fewer", Options{Limit: "3 in 10s", Change: "2 in 10s@1s"}, happened{change: at(7)}, []int64{5, 5, 6, 8, 15, 15, 16, 16}, 5},
		{"a shorter window", Options{Limit: "2 in 10s", Change: "2 in 3s@1s"}, happened{change: at(7)}, []int64{5, 5, 7, 8, 8, 8}, 4},
		// and a bucket's level.
		{"a bucket", Options{Limit: "1/s burst 3", Change: "2/s burst 3@1s"}, happened{change: at(7)}, []int64{7, 7, 7, 7, 8, 8, 8}, 5},
		{"bucket to window", Options{Limit: "1/s burst 3", Change: "3 in 10s@1s"}, happened{change: at(7)}, []int64{6, 6, 7, 7, 16, 17, 17}, 6},
	} {
		// Of whom the fleet admitted does not matter: the requests do.
		got, err := c.o.central(seconds(c.asks[:2]...), seconds(c.asks[2:]...), c.h)
		testkit.NoErr(t, err)
		testkit.Check(t, got.Admitted == c.want && got.Part == 2/float64(c.want), "%s: %+v, want %d", c.name, *got, c.want)
	}
	got, err := Options{Limit: "1/s"}.central(nil, nil, happened{})
	testkit.Check(t, got == nil && err == nil, "without a request: %+v, %v", got, err)
}

func TestEachPartOfARunIsHeldToWhatWasPromisedForIt(t *testing.T) {
	const key = "k"
	for _, c := range []struct {
		name     string
		o        Options
		h        happened
		admitted []int64
		want     int64
	}{
		{"sliding", Options{Limit: "2 in 10s"}, happened{}, []int64{1, 2, 11, 12}, 0},
		{"one too many", Options{Limit: "2 in 10s"}, happened{}, []int64{1, 2, 10}, 1},
		{"overcommit", Options{Limit: "2 in 10s", Overcommit: 1}, happened{}, []int64{1, 2, 10}, 0},
		// A period goes by the server's clock,
		{"calendar", Options{Limit: "2 each 10s"}, happened{}, []int64{7, 8, 11}, 0},
		{"a clock behind", Options{Limit: "2 each 10s"}, happened{ahead: interval{-2e9, -2e9}}, []int64{7, 8, 11}, 1},
		// of which is counted only what is certain.
		{"a clock that is not known", Options{Limit: "2 each 10s"}, happened{ahead: interval{-2e9, 0}}, []int64{7, 8, 11}, 0},
		// A bucket that is lost is there once more, unless it starts empty,
		{"a loss", Options{Limit: "2 in 10s"}, happened{flush: at(3)}, []int64{1, 2, 4, 5}, 0},
		{"more than a loss", Options{Limit: "2 in 10s"}, happened{flush: at(3)}, []int64{1, 2, 4, 5, 6}, 1},
		{"long after a loss", Options{Limit: "2 in 10s"}, happened{flush: at(3)}, []int64{13, 14, 15}, 1},
		{"start empty", Options{Limit: "2 in 10s", StartEmpty: true}, happened{flush: at(3)}, []int64{1, 2, 4}, 1},
		// Before a change the one limit holds, after it the other, and across it the larger.
		{"before", Options{Limit: "2 in 10s", Change: "3 in 10s@5s"}, happened{change: at(5)}, []int64{1, 2, 3}, 1},
		{"after", Options{Limit: "2 in 10s", Change: "3 in 10s@5s"}, happened{change: at(5)}, []int64{11, 12, 13}, 0},
		{"across", Options{Limit: "2 in 10s", Change: "3 in 10s@5s"}, happened{change: at(5)}, []int64{3, 4, 6, 7}, 1},
		{"after a cut", Options{Limit: "3 in 10s", Change: "2 in 10s@5s"}, happened{change: at(5)}, []int64{11, 12, 13}, 1},
		{"across a cut", Options{Limit: "3 in 10s", Change: "2 in 10s@5s"}, happened{change: at(5)}, []int64{4, 6, 7}, 0},
		{"another window", Options{Limit: "3 in 10s", Change: "3 in 5s@5s"}, happened{change: at(5)}, []int64{3, 4, 6, 11, 12, 13, 14}, 1},
		{"bucket", Options{Limit: "1/s burst 2", Change: "2/s burst 2@5s"}, happened{change: at(5)}, []int64{4, 4, 5, 5, 5, 5}, 2},
	} {
		c.o.Key, c.o.Duration, c.o.Processes, c.o.Shape = key, 20*time.Second, 4, ShapeSteady
		err := c.o.Validate()
		testkit.Check(t, err == nil, "%s: %v", c.name, err)
		w, err := c.o.audit(seconds(c.admitted...), c.h)
		testkit.NoErr(t, err)
		testkit.Check(t, w.ExceededBy == c.want, "%s: %+v, want %d", c.name, w, c.want)
	}
}

func TestLimitsThatARunCannotHaveAreNamed(t *testing.T) {
	good := Options{Processes: 4, Limit: "1000 in 10s", Offered: 2, Shape: ShapeSteady, Duration: 30 * time.Second, Key: "k"}
	testkit.NoErr(t, good.Validate())
	for want, change := range map[string]func(*Options){
		`the limit "7 a day"`:                          func(o *Options) { o.Limit = "7 a day" },
		`the limit "5 in"`:                             func(o *Options) { o.Change = "5 in@12s" },
		`--change is "500 in 10s", must be LIMIT@TIME`: func(o *Options) { o.Change = "500 in 10s" },
		`the time less than --duration (30s)`:          func(o *Options) { o.Change = "500 in 10s@30s" },
		"--change and --flush-after are for two runs":  func(o *Options) { o.Change, o.FlushAfter = "500 in 10s@2s", time.Second },
		"--flush-after is 30s, must be 0":              func(o *Options) { o.FlushAfter = o.Duration },
		"bad usage: --ttl is 150ms, must be at least twice --target (200ms)": func(o *Options) {
			o.Target, o.TTL = 100*time.Millisecond, 150*time.Millisecond
		},
		"bad usage: --ttl is -1s, must be 2ms to 1h0m0s\nleasesim: bad usage: --overcommit is -1, must be 0 to": func(o *Options) {
			o.TTL, o.Overcommit = -time.Second, -1
		},
		"bad usage: --calls-per-second is -1, must be 1 to 1000000000": func(o *Options) { o.CallsPerSecond = -1 },
		"tokens + overcommit of as many windows as fit is":             func(o *Options) { o.Limit = "100000000 in 10s" },
	} {
		o := good
		change(&o)
		err := o.Validate()
		testkit.Check(t, errors.Is(err, ErrUsage) && strings.Contains(err.Error(), want), "%v, want %q", err, want)
	}
}

func TestARunSeesThreeWindows(t *testing.T) {
	for limit, want := range map[string]time.Duration{
		"100/s": DurationDefault, "9 in 1s": DurationDefault, "9 in 10s": 30 * time.Second, "9 each 1m": 3 * time.Minute,
		"9 each 24h": 3 * time.Minute,
	} {
		got := Options{Limit: limit}.ThreeWindows()
		testkit.Check(t, got == want, "%s: %v, want %v", limit, got, want)
	}
	got := Options{Limit: "5/s", Change: "9 in 10s@3s"}.ThreeWindows()
	testkit.Check(t, got == 30*time.Second, "of two limits: %v", got)
}

func TestWhatIsAskedOfAWindowIsPoissons(t *testing.T) {
	// Given a process that is asked for so much of a limit, when it is watched for 300 seconds,
	spread := func(limit string) float64 {
		const rate, watched = 100, 300
		var sum, squares, seconds float64
		o := Options{Limit: limit, Processes: 1, Offered: 1, Shape: ShapeSteady, Duration: watched * time.Second}
		inAChild(t, o, func(t *testing.T, c *child, answer func()) {
			answer()
			var wg sync.WaitGroup
			wg.Go(func() { c.pace(&wg, rate, 0, time.Now().Add(watched*time.Second)) })
			for last := int64(0); squares == 0 || last < rate*watched*9/10; {
				time.Sleep(time.Second)
				now := c.file.Offered().Load()
				n := float64(now - last)
				last, sum, squares, seconds = now, sum+n, squares+n*n, seconds+1
			}
			wg.Wait()
		})
		mean := sum / seconds
		return (squares/seconds - mean*mean) / mean
	}
	// then the numbers of a second are as far apart as chance makes them, and those of a bucket's even
	// load are not.
	s := spread("100 in 1s")
	testkit.Check(t, s > 0.5 && s < 2, "a window's spread is %v", s)
	s = spread("100/s")
	testkit.Check(t, s < 0.1, "a bucket's spread is %v", s)
}

func TestAnAdversaryTurnsAroundTheEndOfEveryWindow(t *testing.T) {
	const target = 100 * time.Millisecond
	began := time.Unix(1_000_003, 0)
	for _, c := range []struct {
		limit lease.Limit
		from  time.Duration // of the first end that is looked at
		turns bool
	}{
		{lease.Sliding(9, 10*time.Second), 10 * time.Second, true},
		{lease.Calendar(9, 10*time.Second, 2*time.Second), 9 * time.Second, true}, // 1,000,012
		{lease.PerSecond(9), 10 * time.Second, false},
	} {
		p := &child{limit: c.limit}
		var at []time.Duration
		last := p.turn(began, began.Add(time.Second), target)
		for ms := time.Duration(1000); ms < 15_000; ms++ {
			now := p.turn(began, began.Add(ms*time.Millisecond), target)
			if now != last {
				at, last = append(at, ms*time.Millisecond), now
			}
		}
		if !c.turns {
			testkit.Check(t, at == nil, "%v: %v", c.limit, at)
			continue
		}
		testkit.Check(t, len(at) == 2 && at[0] == c.from-target/2 && at[1] == c.from+target/2, "%v: %v", c.limit, at)
	}
}

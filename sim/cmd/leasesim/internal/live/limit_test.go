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

func TestCentralLimiterIsExact(t *testing.T) {
	for _, c := range []struct {
		name  string
		o     Options
		ahead interval
		asks  []int64
		want  int64
	}{
		// A window of 10 s has room again 10 s after the first admission, and not before.
		{"sliding", Options{Limit: "2 in 10s"}, interval{}, []int64{5, 6, 7, 14, 15, 15, 16, 25}, 5},
		{"calendar", Options{Limit: "2 each 10s from 5s"}, interval{}, []int64{5, 14, 14, 15, 16, 24, 25}, 5},
		{"bucket", Options{Limit: "1/s burst 2"}, interval{}, []int64{5, 5, 5, 6, 6, 9, 9, 9}, 5},
		// By a server whose clock is 3 s ahead, a period ends 3 s earlier.
		{"a clock ahead", Options{Limit: "2 each 10s"}, interval{3e9, 3e9}, []int64{5, 6, 6, 7, 7, 7}, 4},
	} {
		// Only the requests count, and not which of them the fleet admitted.
		got, err := central(c.o.limit(), seconds(c.asks[:2]...), seconds(c.asks[2:]...), c.ahead)
		testkit.NoErr(t, err)
		testkit.Check(t, got.Admitted == c.want && got.Part == 2/float64(c.want), "%s: %+v, want %d", c.name, *got,
			c.want)
	}
	got, err := central(lease.PerSecond(1), nil, nil, interval{})
	testkit.Check(t, got == nil && err == nil, "without a request: %+v, %v", got, err)
}

func TestAuditGoesByTheServersClockOnlyForACalendar(t *testing.T) {
	const key = "k"
	for _, c := range []struct {
		name     string
		o        Options
		ahead    interval
		admitted []int64
		want     int64
	}{
		{"sliding", Options{Limit: "2 in 10s"}, interval{}, []int64{1, 2, 11, 12}, 0},
		{"one too many", Options{Limit: "2 in 10s"}, interval{}, []int64{1, 2, 10}, 1},
		{"overcommit", Options{Limit: "2 in 10s", Overcommit: 1}, interval{}, []int64{1, 2, 10}, 0},
		// A period goes by the server's clock,
		{"calendar", Options{Limit: "2 each 10s"}, interval{}, []int64{7, 8, 11}, 0},
		{"a clock behind", Options{Limit: "2 each 10s"}, interval{-2e9, -2e9}, []int64{7, 8, 11}, 1},
		// of which is counted only what is certain.
		{"a clock that is not known", Options{Limit: "2 each 10s"}, interval{-2e9, 0}, []int64{7, 8, 11}, 0},
	} {
		c.o.Key, c.o.Duration, c.o.Processes, c.o.Shape = key, 20*time.Second, 4, ShapeSteady
		err := c.o.Validate()
		testkit.Check(t, err == nil, "%s: %v", c.name, err)
		w, err := worstOf(audit.Of(c.o.limit(), c.o.Overcommit), 1, map[int][]audit.Span{0: seconds(c.admitted...)}, c.ahead)
		testkit.NoErr(t, err)
		testkit.Check(t, w.ExceededBy == c.want, "%s: %+v, want %d", c.name, w, c.want)
	}
}

func TestLimitsThatARunCannotHaveAreNamed(t *testing.T) {
	good := Options{Processes: 4, Limit: "1000 in 10s", Offered: 2, Shape: ShapeSteady,
		Duration: 30 * time.Second, Key: "k"}
	testkit.NoErr(t, good.Validate())
	for want, change := range map[string]func(*Options){
		`--limit is "7 a day"`: func(o *Options) { o.Limit = "7 a day" },
		"bad usage: --ttl is 150ms, must be at least 200ms, two targets": func(o *Options) {
			o.Target, o.TTL = 100*time.Millisecond, 150*time.Millisecond
		},
		"must be 2ms to 1h0m0s\nleasesim: bad usage: --overcommit is -1, must be 0 to": func(o *Options) {
			o.TTL, o.Overcommit = -time.Second, -1
		},
		"--calls-per-second is -1, must be 1 to 1000000000": func(o *Options) { o.CallsPerSecond = -1 },
		"as many windows as fit is":                         func(o *Options) { o.Limit = "100000000 in 10s" },
	} {
		o := good
		change(&o)
		err := o.Validate()
		testkit.Check(t, errors.Is(err, ErrUsage) && strings.Contains(err.Error(), want), "%v, want %q", err, want)
	}
}

func TestARunSeesThreeWindows(t *testing.T) {
	for limit, want := range map[string]time.Duration{
		"100/s": DurationDefault, "9 in 1s": DurationDefault, "9 in 10s": 30 * time.Second,
		"9 each 1m":  3 * time.Minute,
		"9 each 24h": 3 * time.Minute,
	} {
		got := Options{Limit: limit}.ThreeWindows()
		testkit.Check(t, got == want, "%s: %v, want %v", limit, got, want)
	}
}

func TestTheExpectedCountOfAWindowIsPoissons(t *testing.T) {
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
		testkit.Check(t, len(at) == 2 && at[0] == c.from-target/2 && at[1] == c.from+target/2, "%v: %v", c.limit,
			at)
	}
}

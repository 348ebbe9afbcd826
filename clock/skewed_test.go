package clock_test

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// reads checks how far c has come since start.
func reads(t *testing.T, c clock.Clock, start clock.Instant, want time.Duration) {
	t.Helper()
	equal(t, "since the start", c.Now().Sub(start), want)
}

func TestSkewedOffsetMovesReadingsAndNoTimer(t *testing.T) {
	m := clock.NewManual(0)
	c := clock.NewSkewed(m, clock.Skew{Offset: -time.Hour})
	j, start := open(m), m.Now()
	c.AfterFunc(time.Second, j.noting("a"))
	reads(t, c, start, -time.Hour)
	m.Advance(time.Minute)
	reads(t, c, start, time.Minute-time.Hour)
	j.expect(t, "a@1s")
}

func TestSkewedDriftIsPartsPerMillionOfTheBase(t *testing.T) {
	for _, c := range []struct {
		ppm  int64
		base time.Duration
		want time.Duration
	}{
		{100, time.Second, time.Second + 100*time.Microsecond},
		{-100, time.Second, time.Second - 100*time.Microsecond},
		{500_000, time.Minute, 90 * time.Second},
		{-999_999, time.Second, time.Microsecond},
		{1, 999_999, 999_999},     // nearly one nanosecond gained is none
		{1, 1_000_000, 1_000_001}, // and now it is one
		{-1, 1, 0},                // a slow clock's tick comes a little late
		{-1, 1_000_000, 999_999},  //
		{200, 100 * year, 100*year + 630_720*time.Second},
	} {
		m := clock.NewManual(0)
		s := clock.NewSkewed(m, clock.Skew{DriftPPM: c.ppm})
		start := s.Now()
		m.Advance(c.base)
		equal(t, fmt.Sprintf("drift %d ppm, after %v of the base", c.ppm, c.base), s.Now().Sub(start), c.want)
	}
}

func TestSkewedStepMovesReadingsAndNoTimer(t *testing.T) {
	m := clock.NewManual(0)
	c := clock.NewSkewed(m, clock.Skew{})
	j, start := open(m), m.Now()
	c.AfterFunc(10*time.Second, j.noting("a"))
	c.AfterFunc(10*time.Second, j.noting("b"))

	m.Advance(5 * time.Second)
	c.Step(time.Hour)
	reads(t, c, start, 5*time.Second+time.Hour)
	m.Advance(5*time.Second - 1)
	j.expect(t)
	c.Step(-2 * time.Hour)
	reads(t, c, start, 10*time.Second-1-time.Hour)

	m.Advance(1)
	j.expect(t, "a@10s", "b@10s")
}

func TestSkewedSetReplacesTheOffsetAndKeepsSteps(t *testing.T) {
	m := clock.NewManual(0)
	start := m.Now()
	c := clock.NewSkewed(m, clock.Skew{Offset: time.Minute})
	j := open(m)
	c.AfterFunc(time.Second, j.noting("a"))
	c.Step(time.Hour)

	c.Set(clock.Skew{Offset: time.Second})
	reads(t, c, start, time.Hour+time.Second)

	c.Set(clock.Skew{Offset: time.Second}) // the same again: nothing happens
	reads(t, c, start, time.Hour+time.Second)

	c.Set(clock.Skew{})
	reads(t, c, start, time.Hour)

	m.Advance(time.Second)
	j.expect(t, "a@1s")
}

func TestSkewedPendingTimersFollowTheRate(t *testing.T) {
	m := clock.NewManual(0)
	c := clock.NewSkewed(m, clock.Skew{})
	j := open(m)
	var want []string
	for _, name := range strings.Split("abcdefghijkl", "") {
		c.AfterFunc(10*time.Second, j.noting(name))
		want = append(want, name+"@12s") // and in this order, after both changes
	}
	stopped := c.AfterFunc(10*time.Second, j.noting("stopped"))
	stopped.Stop()

	m.Advance(4 * time.Second)
	c.Set(clock.Skew{DriftPPM: 500_000}) // 6 s of its own time are left: 4 s of the base
	m.Advance(2 * time.Second)
	c.Set(clock.Skew{DriftPPM: -500_000}) // 3 s are left: 6 s of the base

	m.Advance(time.Minute)
	j.expect(t, want...)
}

func TestSkewedNeverReadsZeroOrLess(t *testing.T) {
	m := clock.NewManual(1000)
	c := clock.NewSkewed(m, clock.Skew{Offset: -time.Second})
	equal(t, "a second before instant 1000", c.Now(), 1)
	m.Advance(time.Second)
	equal(t, "a second later", c.Now(), 1000)
}

func TestSkewedRefusesNonsense(t *testing.T) {
	m := clock.NewManual(0)
	c := clock.NewSkewed(m, clock.Skew{})
	for _, ppm := range []int64{math.MinInt64, -1_000_000, 1_000_000, math.MaxInt64} {
		expectPanic(t, "NewSkewed", func() { clock.NewSkewed(m, clock.Skew{DriftPPM: ppm}) })
		expectPanic(t, "Set", func() { c.Set(clock.Skew{DriftPPM: ppm}) })
	}
	expectPanic(t, "AfterFunc(nil)", func() { c.AfterFunc(0, nil) })
	c.Now() // and holds no lock afterwards
}

func TestSkewedHoldsACentury(t *testing.T) {
	for _, ppm := range []int64{-999_999, -200, 0, 200, 500_000} {
		for _, offset := range []time.Duration{-100 * year, 0, 100 * year} {
			m := clock.NewManual(0)
			c := clock.NewSkewed(m, clock.Skew{Offset: offset})
			equal(t, "the offset", c.Now().Sub(m.Now()), offset)
			c.Set(clock.Skew{Offset: offset, DriftPPM: ppm})
			c.AfterFunc(100*year, func() {})
			due, _ := m.Next()
			want := new(big.Int).Mul(big.NewInt(int64(100*year)), big.NewInt(1_000_000))
			rate := big.NewInt(1_000_000 + ppm)
			want.Add(want, rate).Sub(want, big.NewInt(1)).Div(want, rate) // rounded up
			want.Add(want, big.NewInt(int64(m.Now())))
			equal(t, fmt.Sprintf("%d ppm: a timer of 100 years", ppm), int64(due), cutOff(want))
		}
	}
}

// Through random advances and changes of rate, the reading is the exact sum of
// time times rate, rounded down once; and a timer is due at the first instant
// of the base at which the reading has come as far as it asked for.
func TestSkewedIsExactOnRandomWork(t *testing.T) {
	r := testkit.Rand(t)
	million := big.NewInt(1_000_000)
	randomPPM := func() int64 {
		if r.IntN(2) == 0 {
			return r.Int64N(401) - 200
		}
		return r.Int64N(1_999_999) - 999_999
	}
	for range 200 {
		m := clock.NewManual(0)
		skew := clock.Skew{DriftPPM: randomPPM()}
		c := clock.NewSkewed(m, skew)
		start := c.Now()
		exact := new(big.Int) // millionths of a tick
		advance := func(d time.Duration) {
			m.Advance(d)
			exact.Add(exact, new(big.Int).Mul(big.NewInt(int64(d)), big.NewInt(1_000_000+skew.DriftPPM)))
		}
		check := func(what string) {
			t.Helper()
			want := new(big.Int).Div(exact, million).Int64()
			if got := int64(c.Now().Sub(start)); got != want {
				t.Fatalf("%s at %d ppm: the clock has come %d, want %d", what, skew.DriftPPM, got, want)
			}
		}
		for range 50 {
			switch r.IntN(3) {
			case 0:
				advance(time.Duration(r.Int64N(1 << r.IntN(45))))
				check("Advance")
			case 1:
				skew.DriftPPM = randomPPM()
				c.Set(skew)
				check("Set")
			case 2:
				own := time.Duration(1 + r.Int64N(1<<r.IntN(40)))
				set, fired := c.Now(), false
				c.AfterFunc(own, func() { fired = true })
				if r.IntN(2) == 0 { // change the rate on the way
					advance(time.Duration(r.Int64N(int64(own)/2 + 1)))
					skew.DriftPPM = randomPPM()
					c.Set(skew)
				}
				if due, pending := m.Next(); pending {
					if before := due.Sub(m.Now()) - 1; before > 0 {
						advance(before)
					}
					if !fired && c.Now().Sub(set) >= own {
						t.Fatalf("at %d ppm a timer of %d is late: %d have passed", skew.DriftPPM, own, c.Now().Sub(set))
					}
					advance(due.Sub(m.Now()))
				}
				testkit.Must(t, fired && c.Now().Sub(set) >= own,
					"at %d ppm a timer of %d: fired %v after %d", skew.DriftPPM, own, fired, c.Now().Sub(set))
				check("AfterFunc")
			}
		}
	}
}

// A base that fires late or twice, or too early, is asked and not believed.
func TestSkewedTimerDecidesByTicksNotByTheBasesCall(t *testing.T) {
	m := clock.NewManual(0)
	base := &eager{Manual: m}
	c := clock.NewSkewed(base, clock.Skew{})
	fired := 0
	timer := c.AfterFunc(time.Second, func() { fired++ })

	base.call() // a second early, like a call that a Reset has overtaken
	equal(t, "fired before its time", fired, 0)
	m.Advance(time.Second)
	base.call() // and once more
	equal(t, "fired", fired, 1)
	for _, d := range []time.Duration{0, time.Hour} {
		timer.Reset(d)
		timer.Stop()
		base.call() // a call that had begun when Stop came
		equal(t, "fired, with the timer stopped", fired, 1)
		_, left := m.Next()
		equal(t, "a stopped timer was left on the base", left, false)
	}
}

// eager is a manual clock whose latest timer can be made to call at any time.
type eager struct {
	*clock.Manual
	call func()
}

func (e *eager) AfterFunc(d time.Duration, f func()) clock.Timer {
	e.call = f
	return e.Manual.AfterFunc(d, f)
}

func TestSkewedOverSkewed(t *testing.T) {
	m := clock.NewManual(0)
	inner := clock.NewSkewed(m, clock.Skew{Offset: time.Hour, DriftPPM: 500_000})
	outer := clock.NewSkewed(inner, clock.Skew{Offset: -time.Hour, DriftPPM: -500_000})
	j, start := open(m), m.Now()
	outer.AfterFunc(3*time.Second, j.noting("a"))
	m.Advance(4 * time.Second)
	reads(t, outer, start, 3*time.Second)
	j.expect(t, "a@4s")
}

func TestSkewedOverABaseThatIsSetBackStandsStill(t *testing.T) {
	m := clock.NewManual(0)
	base := clock.NewSkewed(m, clock.Skew{})
	c := clock.NewSkewed(base, clock.Skew{})
	start := c.Now()
	m.Advance(time.Second)
	reads(t, c, start, time.Second)
	base.Step(-time.Minute)
	reads(t, c, start, time.Second)
	m.Advance(time.Second)
	reads(t, c, start, 2*time.Second)

	// A timer waits for the ticks that it was promised: of the first ten
	// seconds, the clock only noticed that they ended a minute back.
	j := open(m)
	c.AfterFunc(10*time.Second, j.noting("a"))
	base.Step(-time.Minute)
	m.Advance(time.Minute)
	j.expect(t, "a@20s")
}

func TestSkewedOverTheSystemClockInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.NewSkewed(clock.System(), clock.Skew{Offset: -20 * year, DriftPPM: -500_000})
		own, base := c.Now(), time.Now()
		fired := make(chan struct{})
		c.AfterFunc(time.Second, func() { close(fired) })
		<-fired
		reads(t, c, own, time.Second)
		equal(t, "a second at half speed", time.Since(base), 2*time.Second)
	})
}

// The rate changes under the timers.
func TestSkewedIsSafeForConcurrentUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.NewSkewed(clock.System(), clock.Skew{})
		check := hammer(t, c, func(worker, i int) {
			c.Set(clock.Skew{DriftPPM: int64(worker*100 - i)})
			c.Step(time.Duration(worker - i))
		})
		<-time.After(time.Second)
		synctest.Wait()
		check()
	})
}

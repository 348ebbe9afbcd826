package clock_test

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
)

func TestSkewedMovesReadingsAndNoTimer(t *testing.T) {
	m := clock.NewManual(0)
	c := clock.NewSkewed(m, -time.Hour)
	j, start := open(m), m.Now()
	reads := func(want time.Duration) {
		t.Helper()
		equal(t, "since the start", c.Now().Sub(start), want)
	}
	c.AfterFunc(10*time.Second, j.noting("a"))
	reads(-time.Hour)
	m.Advance(5 * time.Second)
	c.Step(3 * time.Hour)
	reads(5*time.Second + 2*time.Hour)
	m.Advance(5*time.Second - 1)
	j.expect(t)
	c.Step(-2 * time.Hour)
	reads(10*time.Second - 1)
	m.Advance(1)
	j.expect(t, "a@10s")
}

func TestSkewedStaysOnTheScale(t *testing.T) {
	m := clock.NewManual(1000)
	c := clock.NewSkewed(m, -time.Second)
	equal(t, "a second before instant 1000", c.Now(), 1)
	m.Advance(time.Second)
	equal(t, "a second later", c.Now(), 1000)
	for range 10 {
		c.Step(100 * year)
	}
	equal(t, "a thousand years later", c.Now(), clock.Instant(1<<63-1))
}

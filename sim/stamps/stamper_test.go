//go:build linux || darwin || freebsd || openbsd || dragonfly || solaris

package stamps

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

func newStamper(t testing.TB) *Stamper {
	t.Helper()
	s, err := NewStamper()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func trueTime(t testing.TB) int64 {
	t.Helper()
	m, err := monotonic()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestStampsEncloseTheTrueTime(t *testing.T) {
	rounds := 200_000
	if testing.Short() {
		rounds = 20_000
	}
	s := newStamper(t)
	slack := int64(s.Slack())
	for range rounds {
		earlier := trueTime(t)
		before := s.Before()
		now := trueTime(t)
		after := s.After()
		later := trueTime(t)

		if before > now || now > after {
			t.Fatalf("%d lies outside [%d, %d]", now, before, after)
		}
		// A stamp of minus or plus infinity would pass that. A stamp may be off by the slack and no more.
		if before < earlier-slack || after > later+slack+1 {
			t.Fatalf("[%d, %d] reaches more than %d ns beyond [%d, %d]", before, after, slack, earlier, later)
		}
	}
	t.Logf("slack %d ns", slack)
}

func TestSlackIsTheWidthOfAnInstant(t *testing.T) {
	s := stamperOf(func() int64 { return 1000 }, 20, 50)
	if s.Before() != 1020 || s.After() != 1051 || s.Slack() != 31 {
		t.Errorf("[%d, %d] with slack %d", s.Before(), s.After(), s.Slack())
	}
}

// twoClocks are a cheap and an exact reading of one time that advances by random steps, at a distance.
type twoClocks struct {
	rng      *rand.Rand
	now      int64
	distance func(now int64) int64
}

func (c *twoClocks) step() { c.now += c.rng.Int64N(200) }

func (c *twoClocks) cheap() int64 {
	c.step()
	defer c.step()
	return c.now
}

func (c *twoClocks) exact() (int64, error) {
	c.step()
	defer c.step()
	return c.now + c.distance(c.now), nil
}

func TestCalibrationNeverMissesTheDistance(t *testing.T) {
	rng := testkit.Rand(t)
	for range 500 {
		distance := rng.Int64N(1e15) - 5e14
		c := &twoClocks{rng: rng, distance: func(int64) int64 { return distance }}

		low, high, err := calibrate(c.cheap, c.exact, 1+rng.IntN(300))

		if err != nil || low > distance || distance > high {
			t.Fatalf("[%d, %d] does not hold %d, error %v", low, high, distance, err)
		}
	}
}

func TestCalibrationNarrowsDown(t *testing.T) {
	c := &twoClocks{rng: testkit.Rand(t), distance: func(int64) int64 { return 42 }}
	once, _, _ := calibrate(c.cheap, c.exact, 1)
	low, high, err := calibrate(c.cheap, c.exact, calibrations)
	if err != nil || high-low > 100 || low < once-600 {
		t.Errorf("[%d, %d] after %d rounds, error %v", low, high, calibrations, err)
	}
}

func TestCalibrationNoticesClocksThatDriftApart(t *testing.T) {
	c := &twoClocks{rng: testkit.Rand(t), distance: func(now int64) int64 { return now / 10 }}
	if low, high, err := calibrate(c.cheap, c.exact, calibrations); err == nil {
		t.Errorf("a clock that gains 10 %% is accepted, in [%d, %d]", low, high)
	}
}

func TestCalibrationPassesOnAFailure(t *testing.T) {
	broken := errors.New("broken")
	_, _, err := calibrate(func() int64 { return 0 }, func() (int64, error) { return 0, broken }, 3)
	if !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

func BenchmarkBeforeAndAfter(b *testing.B) {
	s := newStamper(b)
	var span time.Duration
	for b.Loop() {
		before := s.Before()
		span = time.Duration(s.After() - before)
	}
	_ = span
}

func BenchmarkClockGettime(b *testing.B) {
	for b.Loop() {
		trueTime(b)
	}
}

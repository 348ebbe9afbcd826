package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// TestOneCentralLimiterOfAWindowAdmitsExactlyWhatItPromises: with a request in every millisecond,
// the first ones of each window or period.
func TestOneCentralLimiterOfAWindowAdmitsExactlyWhatItPromises(t *testing.T) {
	for _, c := range []struct {
		limits string
		want   int64 // in 3.5 s
		fixed  int64 // by a fixed window
	}{
		{"100/s burst 50", 399, 350}, // the burst, and what has flowed in by the last request
		{"100 in 1s", 400, 400},
		{"100 in 700ms", 500, 500},
		{"100 in 1s, 150/s burst 50", 400, 400}, // 50 at once, and 50 more in the 333 ms after
		{"100 each 1s", 400, 400},
		{"100 each 1s from 400ms", 500, 500}, // four boundaries within
		{"100 each 1s from 600ms", 400, 400}, // three
		{"100 each 1s from 400ms, 250 each 1h", 250, 250},
	} {
		s := scene(t, "duration: 3.5s, limits: [%s], rivals: [central, fixed_window]", c.limits)
		s.Workload = regularly(time.Millisecond, 3500*time.Millisecond)
		run := simulate(t, s)
		got := []int64{run.books.centralAdmitted, run.books.rivals[0].tally.Admitted,
			run.books.rivals[1].tally.Admitted}
		testkit.Check(t, slices.Equal(got, []int64{c.want, c.want, c.fixed}),
			"%s: %v are admitted, want %d, by fixed windows %d",
			c.limits, got, c.want, c.fixed)
		testkit.Check(t, run.books.rivals[0].audit.ExceededBy() == 0, "%s: the central limiter exceeds its bound",
			c.limits)
	}
}

// TestPeriodsAreThoseOfTheServersClock: since 1970, and not since the start of the run.
func TestPeriodsAreThoseOfTheServersClock(t *testing.T) {
	start := time.UnixMicro(serverStart).UTC()
	for _, offset := range []time.Duration{0, 7 * time.Second, 59 * time.Second} {
		at := fromStart([]lease.Limit{lease.Calendar(5, time.Minute, offset), lease.PerSecond(5)})[0].Offset
		boundary := start.Add(at)
		testkit.Check(t, boundary.Second() == int(offset.Seconds()) && boundary.Nanosecond() == 0 && at >= 0 &&
			at < time.Minute,
			"periods from %v on begin at %v, %v after the start", offset, boundary, at)
	}
}

// TestTheFleetUsesCalendarsUp: at three times the load of a limit, the fleet admits nearly all of each
// period, and never more. TestAWindowAdmitsNearlyWhatACentralLogDoes has sliding windows.
func TestTheFleetUsesCalendarsUp(t *testing.T) {
	for limits, part := range map[string]float64{
		"1000 each 10s from 3s": 0.99, "2000 each 10s, 400 in 2s": 0.90,
	} {
		f := figures(simulate(t, scene(t, `duration: 60s, warmup: 20s, limits: [%s], policy: {fallback: deny},
			groups: [{count: 8}], workload: {kind: poisson, load: 3}`, limits)))
		testkit.Check(t, f.BoundExceededBy.Worst == 0 && f.AdmittedVsCentral.Mean >= part &&
			f.AdmittedVsCentral.Mean <= 1.03,
			"%s: %.4f of a central limiter's, want %.2f; the bound is exceeded by %v", limits,
			f.AdmittedVsCentral.Mean, part, f.BoundExceededBy.Worst)
	}
}

package hybrid_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// reserve is a reservation that is OK.
func reserve(t *world, l *hybrid.Limiter, key string, estimate int64) *hybrid.Reservation {
	t.Helper()
	r, err := l.Reserve(t.Context(), key, estimate)
	must(t, err == nil && r.OK(), "%d not reserved: %+v, %v", estimate, r.Result(), err)
	return r
}

// The first of Settle and Cancel counts. Of ten tokens, with a token an hour:
func TestAReservationIsSettledOnce(t *testing.T) {
	settle := func(n int64) func(*world, *hybrid.Reservation) {
		return func(t *world, r *hybrid.Reservation) { noErr(t, r.Settle(n)) }
	}
	cancel := func(_ *world, r *hybrid.Reservation) { r.Cancel() }
	abandon := func(*world, *hybrid.Reservation) {}
	for name, c := range map[string]struct {
		estimate int64
		end      func(*world, *hybrid.Reservation)
		left     int64
		refunded int64
		charged  int64
	}{
		"abandoned":                  {6, abandon, 4, 0, 0},
		"cancelled":                  {6, cancel, 10, 0, 0},
		"settled with the estimate":  {6, settle(6), 4, 0, 0},
		"settled with less":          {6, settle(2), 8, 4, 0},
		"settled with nothing":       {6, settle(0), 10, 6, 0},
		"settled with more":          {6, settle(9), 1, 0, 3},
		"settled with more than is":  {6, settle(15), -5, 0, 9},
		"nothing, settled with some": {0, settle(3), 7, 0, 3},
		"settled with a negative cost": {6, func(t *world, r *hybrid.Reservation) {
			isErr(t, r.Settle(-1), hybrid.ErrInvalidN)
		}, 4, 0, 0},
	} {
		bubbleOf(t, name, func(t *world) {
			l := t.process(hourly)
			r := reserve(t, l, "k", c.estimate)
			c.end(t, r)
			if name != "abandoned" && name != "settled with a negative cost" {
				r.Cancel() // which comes too late
				noErr(t, r.Settle(100))
				noErr(t, r.Settle(0))
			}
			time.Sleep(5 * time.Second)
			st := conserved(t, l)
			equal(t, t.state("k").Levels[0], c.left, "left")
			check(t, st.Refunded == c.refunded && st.Charged == c.charged, "%+v", st)
		})
	}
}

// A settlement owes no more than Policy.MaxOvershoot bursts of each key, and says so.
func TestASettlementOwesNoMoreThanItsBound(t *testing.T) {
	for name, c := range map[string]struct {
		bursts, actual, owed int64 // of a burst of ten, all of it taken
		err                  error
	}{
		"as much as may be":     {0, 110, 100, nil},
		"more":                  {0, 111, 100, hybrid.ErrOvershoot},
		"all that there is":     {0, math.MaxInt64, 100, hybrid.ErrOvershoot},
		"a bound of one":        {1, 25, 10, hybrid.ErrOvershoot},
		"a bound of a thousand": {1000, 10_010, 10_000, nil},
	} {
		bubbleOf(t, name, func(t *world) {
			l := t.start(by(hybrid.Policy{MaxOvershoot: c.bursts}, hourly))
			err := reserve(t, l, "k", 10).Settle(c.actual)
			if c.err == nil {
				noErr(t, err)
			} else {
				says(t, "Settle", err, c.err, fmt.Sprint(c.actual), "estimate 10", fmt.Sprint(c.owed), "key k")
			}
			time.Sleep(time.Second)
			equal(t, t.state("k").Levels[0], -c.owed, "left")
			equal(t, l.Stats().Charged, c.owed, "charged")
		})
	}
	// Of several keys each has its own bound.
	bubble(t, func(t *world) {
		l := t.start(bursts(map[string]int64{"small": 10, "large": 1000}))
		r, err := joined(l, "small", "large", "large").Reserve(t.Context(), 10)
		must(t, err == nil && r.OK(), "%v", err)
		isErr(t, r.Settle(10+500), hybrid.ErrOvershoot)
		time.Sleep(time.Second)
		equal(t, t.state("small").Levels[0], -100, "left of the small one")
		equal(t, t.state("large").Levels[0], 1000-20-1000, "left of the large one")
	})
}

// Use beyond the estimate is owed: no process is granted anything before the rate has paid for it.
func TestWhatWasUsedBeyondAReservationIsOwed(t *testing.T) {
	bubble(t, func(t *world) {
		limit := hybrid.PerSecond(10)
		ls := t.fleet(2, of(limit))
		noErr(t, reserve(t, ls[0], "k", 4).Settle(4+26)) // the bucket has 6
		time.Sleep(ttl)
		owed := 20 - int64(ttl*10/time.Second)
		for _, l := range ls {
			r, err := l.Take(t.Context(), "k", 1)
			least := time.Duration(owed)*time.Second/10 - time.Second/10
			check(t, err == nil && !r.OK && r.RetryAfter > least, "%+v, %v", r, err)
		}
		time.Sleep(2*time.Second - ttl)
		check(t, drain(ls[0], "k")+drain(ls[1], "k") <= 1, "granted before all was paid")
	})
}

// A reservation that was cancelled is worth what the bucket has not refilled since, whenever that
// is, and whatever has become of its key in this process.
func TestACancelledReservationIsWorthWhatWasNotRefilled(t *testing.T) {
	for name, c := range map[string]struct {
		limit hybrid.Limit
		after time.Duration
		worth int64
	}{
		"at once":                     {hourly, 0, 6},
		"in use":                      {hourly, 200 * time.Millisecond, 6},
		"after its lease":             {hourly, time.Second, 6},
		"at rest":                     {hourly, 10 * time.Second, 6},
		"after an hour":               {hourly, time.Hour, 5},
		"when two thirds are back":    {hybrid.PerSecond(1).WithBurst(10), 4 * time.Second, 2},
		"when everything is refilled": {hybrid.PerSecond(1).WithBurst(10), 20 * time.Second, 0},
	} {
		bubbleOf(t, name, func(t *world) {
			l := t.process(c.limit)
			r := reserve(t, l, "k", 6)
			time.Sleep(c.after)
			// Take the remaining tokens now, so that the full worth of the reservation shows.
			n := drain(l, "k")
			r.Cancel()
			time.Sleep(time.Second)
			st := conserved(t, l)
			back := drain(l, "k") - int64(time.Second*time.Duration(c.limit.Tokens)/c.limit.Per)
			check(t, back >= c.worth-1 && back <= c.worth,
				"%d are back, want %d (%d were left): %+v", back, c.worth, n, st)
		})
	}
}

// Tokens that were taken from the pool of a key which has gone to rest since are not put into that
// of its next use, which the bucket knows nothing of.
func TestAReservationOutlivesThePoolItCameFrom(t *testing.T) {
	bubble(t, func(t *world) {
		// Given a reservation of all that the first call has left in the pool,
		l := t.start(by(hybrid.Policy{MinBatch: 8}, hybrid.PerSecond(5).WithBurst(40)))
		must(t, l.Allow("k"), "denied")
		r := reserve(t, l, "k", l.Stats().Held)
		equal(t, l.Stats().Held, 0, "held")
		time.Sleep(20 * time.Second)
		equal(t, l.Stats().InUse, 0, "in use")
		// when it is cancelled after another first call, in a bucket that is full by then,
		must(t, l.AllowN("k", 40), "denied")
		r.Cancel()
		// then it is worth nothing.
		equal(t, drain(l, "k"), 0, "admitted of what had been refilled long ago")
		time.Sleep(ttl)
		check(t, drain(l, "k") <= 2, "admitted more than was refilled")
		conserved(t, l)
	})
}

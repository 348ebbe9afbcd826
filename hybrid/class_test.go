package hybrid_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// classes is a configuration with these shares for the classes from 1 on.
func classes(shares []float64, l ...hybrid.Limit) hybrid.Config {
	cfg := of(l...)
	cfg.Priorities = shares
	return cfg
}

// A class is a handle for the same key; there are as many as Config.Priorities says, and class 0.
func TestClassesAreHandlesOfOneKey(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(classes([]float64{0.2, 0.5}, hybrid.PerHour(100)))
		k := l.Key("k")
		for p := -1; p <= 3; p++ {
			c := k.Class(p)
			must(t, c.Name() == "k" && c.Allow(), "class %d is denied, of %q", p, c.Name())
		}
		check(t, k.Class(2).Class(0).Allow() && k.Class(1).Class(2).Allow(), "denied")
		st := conserved(t, l)
		check(t, st.Admitted == 7 && st.Keys == 3 && st.InUse == 3 && st.Calls >= 3, "%+v", st)
	})
	bubble(t, func(t *world) {
		l := t.process(hybrid.PerHour(100))
		check(t, l.Key("k").Class(1).Allow(), "denied")
		equal(t, l.Stats().Keys, 1, "keys")
	})
}

// SetLimits and Reset of a key are at once true of all its classes, Refund of a class is of its own
// tokens, and Close and Shutdown end them.
func TestALimitersMethodsReachItsClasses(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(classes([]float64{0.1}, hybrid.PerHour(100)))
		low := l.Key("k").Class(1)
		must(t, low.AllowN(80), "denied")
		low.Refund(80)
		time.Sleep(ttl)
		must(t, low.AllowN(80) && !low.AllowN(80), "denied")
		noErr(t, l.Reset(t.Context(), "k"))
		check(t, low.AllowN(80), "denied after a reset")
		// Used tokens stay used, so there are 20 of 1,000 left: class 1 leaves 100.
		noErr(t, l.SetLimits(t.Context(), "k", hybrid.PerHour(1000)))
		r, err := low.Take(t.Context(), 1)
		check(t, err == nil && !r.OK && r.Limit == hybrid.PerHour(1000) && r.Remaining == 0, "%+v, %v", r, err)
		// Nor does a class wait for its time to ask again when the limits are others.
		must(t, !low.Allow(), "admitted")
		noErr(t, l.SetLimits(t.Context(), "k", hybrid.PerSecond(1000)))
		time.Sleep(100 * time.Millisecond) // 100 tokens
		check(t, low.Allow(), "denied as before, with limits that are no more")
		noErr(t, l.Close())
		_, err = low.Take(t.Context(), 1)
		isErr(t, err, hybrid.ErrClosed)
		_, err = l.Key("new").Class(1).Take(t.Context(), 1)
		isErr(t, err, hybrid.ErrClosed)
	})
	bubble(t, func(t *world) {
		cfg := classes([]float64{0.1}, hybrid.PerSecond(1000))
		cfg.Policy.MinBatch = 50
		l := t.start(cfg)
		low := l.Key("k").Class(1)
		must(t, low.Allow() && l.Allow("k") && l.Stats().Held > 50, "%+v", l.Stats())
		noErr(t, l.Reset(t.Context(), "k"))
		t.has("k", 1000, 0) // with what both held
		low.AllowN(60)
		low.Refund(50)
		noErr(t, l.Shutdown(t.Context()))
		st := conserved(t, l)
		check(t, st.Held == 0 && st.Burnt == 0 && st.Returned > 50 && st.Refunded == 50, "%+v", st)
		check(t, !low.Allow(), "admitted after Shutdown")
	})
	bubble(t, func(t *world) {
		// Tokens of a class cannot be given back while the store is away, and Shutdown says so.
		cfg := classes([]float64{0.1}, hybrid.PerSecond(1000))
		cfg.Policy.MinBatch = 50
		l := t.start(cfg)
		must(t, l.Key("k").Class(1).Allow() && l.Stats().Held > 0, "%+v", l.Stats())
		t.every(away)
		isErr(t, l.Shutdown(t.Context()), hybrid.ErrUnavailable)
	})
}

// A wrong share is refused with its index and its bound.
func TestSharesOfClassesAreValidated(t *testing.T) {
	bubble(t, func(t *world) {
		for text, cfg := range map[string]hybrid.Config{
			"Priorities[1] is 0.5, must be below 1 and above the previous one (0.5)": classes(
				[]float64{0.5, 0.5}, hourly),
			"Priorities[1] is 0.4":           classes([]float64{0.5, 0.4}, hourly),
			"Priorities[0] is 1":             classes([]float64{1}, hourly),
			"Priorities[0] is -0.1":          classes([]float64{-0.1}, hourly),
			"leaves class 1 nothing":         classes([]float64{0.95}, hourly),
			"Priorities[0] is NaN, must be ": classes([]float64{math.NaN()}, hourly),
		} {
			_, err := hybrid.New(t, cfg)
			says(t, "New", err, hybrid.ErrInvalidConfig, text)
		}
		t.start(classes([]float64{0, 0.5, 0.9}, hourly))
		cfg := classes([]float64{0.5}, hybrid.Blocked) // which leaves every class nothing
		cfg.Name = "blocked"
		t.start(cfg)
	})
}

// take takes tokens one by one until there are none, and counts them.
func take(k *hybrid.Key) (n int64) {
	for k.Allow() {
		n++
	}
	return n
}

// A class gets what is above its share of the burst and nothing of what is below, in whichever
// process, while the classes before it go on; a larger request than that exceeds its burst.
func TestAClassStopsAtItsShareAndThoseBeforeGoOn(t *testing.T) {
	bubble(t, func(t *world) {
		limit := hybrid.PerHour(1).WithBurst(100)
		ls := t.fleet(2, classes([]float64{0.3, 0.6}, limit))
		class := func(i, p int) *hybrid.Key { return ls[i].Key("k").Class(p) }
		has := int64(100)
		stopsAt := func(p int, left int64) {
			t.Helper()
			r, err := class(0, p).Peek(t.Context())
			check(t, err == nil && r.OK && r.Remaining == has-left, "%+v, %v", r, err)
			_, err = class(0, p).Take(t.Context(), limit.Burst-left+1)
			isErr(t, err, hybrid.ErrExceedsBurst)
			has -= take(class(0, p)) + take(class(1, p))
			equal(t, has, left, fmt.Sprint("left by class ", p))
			r, err = class(1, p).Take(t.Context(), 1)
			check(t, err == nil && !r.OK && r.Remaining == 0 && r.RetryAfter > 59*time.Minute, "%+v, %v", r, err)
		}
		stopsAt(2, 60)
		stopsAt(1, 30)
		stopsAt(0, 0)
		// Returned tokens are for class 0 first.
		time.Sleep(29*time.Hour + time.Minute)
		check(t, !class(0, 1).Allow() && !class(0, 2).Allow(), "a class had what it is to leave")
		equal(t, take(class(1, 0)), 29, "tokens of class 0")
	})
}

// The promise holds for all classes together, whatever they ask for; and where class 0 asks for
// less than the rate, it has hardly a denial, however much the other classes ask for.
func TestClassesTogetherKeepThePromiseAndTheFirstGoesOn(t *testing.T) {
	bubble(t, func(t *world) {
		limit := hybrid.PerSecond(1000).WithBurst(500)
		bound := newMeter(limit)
		ls := t.fleet(3, classes([]float64{0.25, 0.5}, limit))
		const span = 10 * time.Second
		var asked, admitted [3]atomic.Int64
		// In each process class 0 asks for 200 a second, and each of the others for 1,000.
		together(3*len(ls), func(i int) {
			p := i % 3
			k, rnd := ls[i/3].Key("k").Class(p), rand.New(rand.NewPCG(uint64(i), 7))
			gap := float64(time.Millisecond)
			if p == 0 {
				gap *= 5
			}
			pause := func() { time.Sleep(time.Duration(rnd.ExpFloat64() * gap)) }
			for end := time.Now().Add(span); time.Now().Before(end); pause() {
				asked[p].Add(1)
				if bound.admitIf(k.TryAllow()) {
					admitted[p].Add(1)
				}
			}
		})()
		bound.check(t)
		share := func(p int) float64 { return float64(admitted[p].Load()) / float64(asked[p].Load()) }
		all := admitted[0].Load() + admitted[1].Load() + admitted[2].Load()
		what := fmt.Sprintf("%.3f of class 0, %.3f of 1, %.3f of 2, %d in all", share(0), share(1), share(2), all)
		check(t, share(0) >= 0.99, "class 0 was denied: %s", what)
		check(t, share(1) < 0.5 && share(2) < share(1), "a later class was not denied first: %s", what)
		check(t, all >= 10_000, "the classes leave too much: %s", what)
	})
}

// reserve is a reservation that is OK.
func reserve(t *world, l *hybrid.Limiter, key string, estimate int64) *hybrid.Reservation {
	t.Helper()
	r, err := l.Key(key).Reserve(t.Context(), estimate)
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
		"nothing, settled with some": {0, settle(3), 7, 0, 2},
		"nothing, settled with that": {0, settle(0), 10, 1, 0},
		"nothing, cancelled":         {0, cancel, 10, 0, 0},
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

// A caller that cannot guess a cost reserves 0 each second and settles 500, under a limit of 1,000 a minute: a
// key that owes denies that, so the limit holds but for one cost in each of its windows.
func TestAKeyThatOwesDeniesAReservationOfNothing(t *testing.T) {
	const cost, minutes = 500, 10
	for _, limit := range []hybrid.Limit{
		hybrid.PerMinute(1000), hybrid.Sliding(1000, time.Minute), hybrid.Calendar(1000, time.Minute, 0),
	} {
		for name, reserve := range map[string]func(*world, *hybrid.Limiter) (*hybrid.Reservation, error){
			"one key": func(t *world, l *hybrid.Limiter) (*hybrid.Reservation, error) {
				return l.Key("k").Reserve(t.Context(), 0)
			},
			"two keys": func(t *world, l *hybrid.Limiter) (*hybrid.Reservation, error) {
				return joined(l, "k", "other").Reserve(t.Context(), 0)
			},
			"two keys with a number each": func(t *world, l *hybrid.Limiter) (*hybrid.Reservation, error) {
				return joined(l, "other", "k").ReserveEach(t.Context(), 1, 0)
			},
		} {
			bubbleOf(t, fmt.Sprint(limit, ", ", name), func(t *world) {
				// Given two processes, of which one comes when the other has used the key for half of the time,
				l, used, asked := t.process(limit), int64(0), int64(0)
				for second := range minutes * 60 {
					if second == minutes*30 {
						l = t.process(limit)
					}
					// when each second something of an unknown cost begins, and has cost 500 at once,
					r, err := reserve(t, l)
					noErr(t, err)
					if asked++; r.OK() {
						used += cost
						noErr(t, r.Settle(cost))
					}
					// then nothing is denied that costs nothing,
					check(t, l.AllowN("k", 0), "AllowN(0) is denied by a key that owes")
					time.Sleep(time.Second)
				}
				// and the limit holds, but for one overshoot in a minute.
				check(t, used <= (minutes+1)*(1000+cost), "%d tokens used in %d minutes, %d asked", used, minutes, asked)
				check(t, used >= (minutes-1)*1000, "only %d tokens used in %d minutes", used, minutes)
			})
		}
	}
	// With Policy.Shadow the denial is counted, and the reservation is OK.
	bubble(t, func(t *world) {
		l := t.start(by(hybrid.Policy{Shadow: true}, hourly))
		noErr(t, reserve(t, l, "k", 0).Settle(50))
		time.Sleep(time.Second)
		r := reserve(t, l, "k", 0)
		check(t, r.Result().Shadowed && l.Stats().Shadowed == 1, "%+v, %+v", r.Result(), l.Stats())
	})
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
	})
}

package hybrid_test

import (
	"math"
	"math/rand/v2"
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
func TestWhatIsDoneToALimiterIsDoneToItsClasses(t *testing.T) {
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
		l := t.start(classes([]float64{0.1}, hybrid.PerSecond(1000)))
		must(t, l.Key("k").Class(1).Allow(), "denied")
		time.Sleep(ttl)
		t.every(away)
		l.Key("k").Class(1).AllowN(100)
		isErr(t, l.Shutdown(within(t, time.Second)))
	})
}

// A wrong share is refused with its index and its bound.
func TestSharesOfClassesAreValidated(t *testing.T) {
	bubble(t, func(t *world) {
		for text, cfg := range map[string]hybrid.Config{
			"Priorities[1] is 0.5, must be below 1 and above the one before it (0.5)": classes(
				[]float64{0.5, 0.5}, hourly),
			"Priorities[1] is 0.4":           classes([]float64{0.5, 0.4}, hourly),
			"Priorities[0] is 1":             classes([]float64{1}, hourly),
			"Priorities[0] is -0.1":          classes([]float64{-0.1}, hourly),
			"leaves nothing to class 1":      classes([]float64{0.95}, hourly),
			"Priorities[0] is NaN, must be ": classes([]float64{math.NaN()}, hourly),
		} {
			_, err := hybrid.New(t, cfg)
			says(t, "New", err, hybrid.ErrInvalidConfig, text)
		}
		t.start(classes([]float64{0, 0.5, 0.9}, hourly))
	})
}

// Classes come into being, are used and end while others do the same, and no token is lost by that.
func TestClassesBeginAndEndAtAnyTime(t *testing.T) {
	seeds(t, 20, func(t *world, seed uint64) {
		limit := hybrid.PerSecond(1000).WithBurst(100)
		l := t.start(classes([]float64{0.1, 0.4}, limit))
		together(12, func(i int) {
			rnd := rand.New(rand.NewPCG(seed, uint64(i)))
			for range 50 {
				time.Sleep(time.Duration(rnd.Int64N(int64(5 * time.Millisecond))))
				k := l.Key(string(rune('a' + rnd.IntN(3)))).Class(rnd.IntN(4) - 1)
				switch rnd.IntN(20) {
				case 0:
					_ = k.WaitN(t.Context(), 1+rnd.Int64N(20))
				case 1:
					_ = l.Reset(t.Context(), k.Name())
				case 2:
					_ = l.SetLimits(t.Context(), k.Name(), limit.WithBurst(50+rnd.Int64N(100)))
				case 3:
					conserved(t, l)
				case 4:
					if rnd.IntN(20) == 0 {
						noErr(t, l.Shutdown(t.Context()))
					}
				default:
					k.AllowN(1 + rnd.Int64N(5))
				}
			}
		})()
		noErr(t, l.Shutdown(t.Context()))
		st := conserved(t, l)
		check(t, st.Held == 0 && st.InUse == 0 && st.Waiting == 0, "%+v", st)
	})
}

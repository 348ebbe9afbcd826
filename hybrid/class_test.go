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
		// What only a class holds cannot be given back while the store is away, and Shutdown says so.
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
	everywhere(t, func(t *world) {
		limit := hybrid.PerHour(1).WithBurst(100)
		ls := t.fleet(2, classes([]float64{0.3, 0.6}, limit))
		class := func(i, p int) *hybrid.Key { return ls[i].Key("k").Class(p) }
		sum := int64(0)
		stopsAt := func(p int, left int64) {
			t.Helper()
			r, err := class(0, p).Peek(t.Context())
			noErr(t, err)
			_, err = class(0, p).Take(t.Context(), limit.Burst-left+1)
			isErr(t, err, hybrid.ErrExceedsBurst)
			for i := range ls {
				sum += take(class(i, p))
			}
			check(t, sum <= 100-left && (!t.virtual() || sum == 100-left),
				"class %d had the bucket down to %d", p, 100-sum)
			check(t, !t.virtual() || r.OK && r.Remaining == 100-left-map[int]int64{2: 0, 1: 40, 0: 70}[p], "%+v", r)
			r, err = class(0, p).Peek(t.Context())
			check(t, err == nil && (!t.virtual() || !r.OK && r.Remaining == 0), "%+v, %v", r, err)
			r, err = class(1, p).Take(t.Context(), 1)
			check(t, err == nil && (!t.virtual() || !r.OK && r.Remaining == 0 && r.RetryAfter > 59*time.Minute),
				"%+v, %v", r, err)
		}
		stopsAt(2, 60)
		stopsAt(1, 30)
		stopsAt(0, 0)
		// Returned tokens are for class 0 first.
		if !t.virtual() {
			return
		}
		time.Sleep(29*time.Hour + time.Minute)
		check(t, !class(0, 1).Allow() && !class(0, 2).Allow(), "a class had what it is to leave")
		equal(t, take(class(1, 0)), 29, "tokens of class 0")
	})
}

// The promise holds for all classes together, whatever they ask for; and where class 0 asks for
// less than the rate, it has hardly a denial, however much the other classes ask for.
func TestClassesTogetherKeepThePromiseAndTheFirstGoesOn(t *testing.T) {
	inVirtualTime(t, func(t *world) {
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

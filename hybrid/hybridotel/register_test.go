package hybridotel_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

// hourly gets nothing back while a test runs; steady is leased ahead.
var hourly, steady = hybrid.PerHour(1).WithBurst(100), hybrid.PerSecond(1000)

// ttl is how long a lease lasts with default settings.
const ttl = 400 * time.Millisecond

// config is a Limiter "api" with these limits.
func config(limits ...hybrid.Limit) hybrid.Config { return hybrid.Config{Name: "api", Limits: limits} }

// warm has l hold tokens for the key "k".
func (t *world) warm(l *hybrid.Limiter) {
	t.Helper()
	for range 500 {
		must(t, l.Allow("k"), "denied")
		time.Sleep(2 * time.Millisecond)
	}
	must(t, l.Stats().Held > 0, "nothing is held")
}

// A counter stands still where the count falls, because a reader would take that for a restart, and
// is exact again once the count is higher.
func TestACounterNeverFalls(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(config(hourly))
		admitted := func(want float64) {
			t.Helper()
			t.says(map[string]float64{"tokens.requested{limiter=api result=admitted source=lease}": want})
		}
		r, err := l.Key("k").Reserve(t.Context(), 10)
		noErr(t, err)
		admitted(10)
		r.Cancel()
		must(t, l.Stats().Admitted == 0, "%+v", l.Stats())
		admitted(10)
		must(t, l.AllowN("k", 4), "denied")
		admitted(10)
		must(t, l.AllowN("k", 40), "denied")
		admitted(44)
		// A Join that one key denies takes back what another has counted as admitted.
		other := t.startOn(memory.New(nil), config(hybrid.Blocked))
		must(t, !l.Join(l.Key("k"), other.Key("none")).AllowN(20), "admitted")
		admitted(44)
		must(t, l.Allow("k"), "denied")
		admitted(45)
	})
}

// The limits in force are reported while a key in use has them, and what they denied from then on.
func TestTheLimitsInForce(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(config(hybrid.PerSecond(5)))
		for range 8 {
			l.Allow("k")
		}
		t.says(map[string]float64{
			"limit.rate{limit=5/s limiter=api}":                 5,
			"limit.burst{limit=5/s limiter=api}":                5,
			"limit.keys{limit=5/s limiter=api}":                 1,
			"limit.denied{limit=5/s limiter=api result=denied}": 3,
		}, "limit")
		noErr(t, l.SetLimits(t.Context(), "k", hybrid.PerMinute(120).WithBurst(7)))
		l.Allow("k")
		time.Sleep(10 * time.Millisecond)
		metrics := t.metrics()
		_, still := metrics["limit.rate{limit=5/s limiter=api}"]
		check(t, !still && metrics["limit.rate{limit=120/m burst 7 limiter=api}"] == 2 &&
			metrics["limit.denied{limit=5/s limiter=api result=denied}"] == 3, "%v", metrics)
	})
}

// Limiters with one name are reported as one, a Limiter that is registered twice counts once, and no
// counter falls when one of them is unregistered.
func TestLimitersOfOneName(t *testing.T) {
	bubble(t, func(t *world) {
		one, two := t.startOn(t.store, config(hourly)), t.startOn(memory.New(nil), config(hourly))
		unnamed := t.startOn(t.store, hybrid.Config{Limits: []hybrid.Limit{hourly}})
		first, again, second := t.Register(one), t.Register(one), t.Register(two)
		t.Register(unnamed)
		must(t, one.AllowN("k", 5) && two.AllowN("k", 7) && unnamed.AllowN("k", 9), "denied")
		says := func(admitted, keys float64) {
			t.Helper()
			want := map[string]float64{
				"tokens.requested{limiter=api result=admitted source=lease}": admitted,
				"tokens.requested{result=admitted source=lease}":             9,
			}
			if keys > 0 {
				want["keys{limiter=api state=active}"] = keys
				want["limit.burst{limit=1/h burst 100 limiter=api}"] = 100
			}
			t.says(want, "tokens.requested", "keys{limiter", "limit.burst{limit=1/h burst 100 limiter")
		}
		says(12, 2)
		first()
		first() // which does nothing
		says(12, 2)
		again()
		says(12, 1)
		must(t, one.AllowN("k", 1) && two.AllowN("k", 1), "denied")
		says(13, 1)
		second()
		t.says(nil, "tokens.requested{limiter")
		t.Register(one) // with the 5 that were counted of it, and the 6 that it has
		says(13+6, 1)
	})
}

// A closed Limiter reports its counts, also if it is registered only then.
func TestAClosedLimiter(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.startOn(t.store, config(steady))
		t.warm(l)
		noErr(t, l.Shutdown(t.Context()))
		t.Register(l)
		t.says(map[string]float64{
			"tokens.requested{limiter=api result=admitted source=lease}": 500,
			"keys{limiter=api state=active}":                             0,
			"tokens.held{limiter=api}":                                   0,
		}, "tokens.held", "tokens.lost")
	})
}

// Register, requests and collections may come at the same time.
func TestCollectionsAtTheSameTime(t *testing.T) {
	w := newWorld(t)
	var all sync.WaitGroup
	for i := range 4 {
		l := w.startOn(w.Telemetry.Store(memory.New(nil)), hybrid.Config{
			Name: fmt.Sprint("l", i%2), Limits: []hybrid.Limit{steady},
		})
		all.Go(func() {
			for range 50 {
				unregister := w.Register(l)
				for range 20 {
					l.Allow("k")
				}
				unregister()
			}
		})
		all.Go(func() {
			for range 50 {
				_ = w.Wait(context.Background(), l.Key("k"))
				w.metrics()
			}
		})
	}
	all.Wait()
}

// Config.Attributes are of every metric and every span.
func TestAttributesOfTheConfig(t *testing.T) {
	w := newWorld(t, attribute.String("region", "north"))
	l := w.start(config(hourly))
	noErr(t, w.Wait(t.Context(), l.Key("k")))
	_, err := l.Peek(t.Context(), "k")
	noErr(t, err)
	for name := range w.metrics() {
		check(t, strings.Contains(name, "region=north"), "%s", name)
	}
	testkit.Eventually(t, "three spans have ended", func() bool { return len(w.spans.Ended()) >= 3 })
	for _, s := range w.spans.Ended() {
		check(t, said(s, "region") == "north", "%s has %v", s.Name(), s.Attributes())
	}
}

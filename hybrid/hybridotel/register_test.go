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
	"github.com/yuzhi-go/yuzhi/lease"
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

// balances checks that the metrics of the Limiter "api" say where each leased token is.
func (t *world) balances() {
	t.Helper()
	of := t.metrics()
	leased, sum := of["tokens.leased{limiter=api}"], 0.
	for _, name := range []string{"requested{limiter=api result=admitted source=lease}", "returned{limiter=api}",
		"lost{limiter=api reason=void}", "lost{limiter=api reason=expired}", "held{limiter=api}"} {
		sum += of["tokens."+name]
	}
	check(t, leased == sum && leased > 0, "%v were leased, and are found in %v places: %v", leased, sum, of)
}

// Requested tokens are reported by result, and refused requests by reason.
func TestRequestsByResult(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(config(hourly))
		t.says(nil, "tokens", "requests", "lease")
		for range 3 {
			must(t, l.Allow("k"), "denied")
		}
		must(t, !l.AllowN("k", 98) && !l.AllowN("k", 101) && !l.Allow(""), "admitted")
		time.Sleep(time.Second)
		t.says(map[string]float64{
			"tokens.requested{limiter=api result=admitted source=lease}": 3,
			"tokens.requested{limiter=api result=denied}":                98,
			"tokens.awaited{limiter=api}":                                3,
			"tokens.leased{limiter=api}":                                 3,
			"requests.refused{limiter=api reason=invalid}":               2,
			"lease.calls{limiter=api}":                                   4,
			"lease.round_trips{limiter=api}":                             4,
		}, "tokens", "requests", "lease")
		t.balances()
	})
	bubble(t, func(t *world) { // with Policy.Shadow
		c := config(hourly)
		c.Policy.Shadow = true
		l := t.start(c)
		must(t, l.AllowN("k", 100) && l.AllowN("k", 7), "denied")
		t.says(map[string]float64{
			"tokens.requested{limiter=api result=admitted source=lease}":    100,
			"tokens.requested{limiter=api result=shadowed}":                 7,
			"limit.denied{limit=1/h burst 100 limiter=api result=shadowed}": 7,
		}, "tokens.requested", "limit.denied")
	})
	bubble(t, func(t *world) { // without the store
		l := t.start(config(steady))
		t.warm(l)
		t.store.fails(lease.ErrUnavailable)
		time.Sleep(2 * ttl)
		before, admitted := l.Stats(), 0
		for l.Allow("k") {
			admitted++
		}
		must(t, admitted > 0 && before.Fallback == 0, "%d were admitted, %+v", admitted, before)
		t.says(map[string]float64{
			"tokens.requested{limiter=api result=admitted source=lease}":    float64(before.Admitted),
			"tokens.requested{limiter=api result=admitted source=fallback}": float64(admitted),
			"tokens.requested{limiter=api result=denied}":                   1,
		}, "tokens.requested")
		t.balances()
	})
	bubble(t, func(t *world) { // limits that cannot be used, and a table that is full
		c := config(steady)
		c.KeysMax, c.Policy.MinBatch = 1, 2
		c.LimitsFor = func(key string) []hybrid.Limit {
			if key == "bad" {
				return []hybrid.Limit{{Tokens: -1}}
			}
			return nil
		}
		l := t.start(c)
		must(t, !l.Allow("bad"), "admitted")
		must(t, !l.Allow("bad"), "admitted")
		must(t, l.Allow("k"), "denied")
		must(t, !l.AllowN("another", 5), "admitted")
		t.says(map[string]float64{
			"requests.refused{limiter=api reason=misconfigured}": 2,
			"tokens.requested{limiter=api result=denied}":        5,
			"tokens.crowded{limiter=api}":                        5,
		}, "requests.refused", "tokens.crowded", "tokens.requested{limiter=api result=denied}")
	})
}

// Each leased token is somewhere: admitted, given back, lost for a reason, or held.
func TestWhereTheTokensAre(t *testing.T) {
	bubble(t, func(t *world) {
		c := config(steady)
		c.Policy.MinBatch = 50
		l := t.start(c)
		must(t, l.Allow("k"), "denied")
		t.says(map[string]float64{
			"tokens.leased{limiter=api}": 50,
			"tokens.held{limiter=api}":   49,
		}, "tokens.leased", "tokens.held", "tokens.returned", "tokens.lost")
		t.store.forgets()
		time.Sleep(ttl)
		t.says(map[string]float64{"tokens.lost{limiter=api reason=void}": 49}, "tokens.lost", "tokens.held")
		t.balances()
		time.Sleep(2 * ttl)
		t.warm(l)
		held := float64(l.Stats().Held)
		t.store.fails(lease.ErrUnavailable)
		time.Sleep(2 * ttl)
		t.says(map[string]float64{
			"tokens.lost{limiter=api reason=void}":    49,
			"tokens.lost{limiter=api reason=expired}": held,
		}, "tokens.lost", "tokens.held")
		t.balances()
		t.store.fails(nil)
		time.Sleep(2 * ttl)
		t.warm(l)
		time.Sleep(time.Minute)
		st := l.Stats()
		must(t, st.Returned > 0, "nothing was given back")
		t.says(map[string]float64{
			"tokens.returned{limiter=api}": float64(st.Returned),
		}, "tokens.returned", "tokens.held")
		t.balances()
	})
}

// Settlements of another amount than the estimate are reported.
func TestSettlements(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(config(hourly))
		settled := func(actual int64) {
			t.Helper()
			r, err := l.Reserve(t.Context(), "k", 10)
			noErr(t, err)
			noErr(t, r.Settle(actual))
		}
		settled(4)
		settled(25)
		l.Refund("k", 2)
		time.Sleep(time.Second)
		t.says(map[string]float64{
			"tokens.refunded{limiter=api}": 8,
			"tokens.charged{limiter=api}":  15,
		}, "tokens.refunded", "tokens.charged")
		t.balances()
	})
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
		r, err := l.Reserve(t.Context(), "k", 10)
		noErr(t, err)
		admitted(10)
		r.Cancel()
		must(t, l.Stats().Admitted == 0, "%+v", l.Stats())
		admitted(10)
		must(t, l.AllowN("k", 4), "denied")
		admitted(10)
		must(t, l.AllowN("k", 40), "denied")
		admitted(44)
		t.balances()
		// A Join that one key denies takes back what another has counted as admitted.
		other := t.startOn(memory.New(nil), config(hybrid.Blocked))
		must(t, !l.Join(l.Key("k"), other.Key("none")).AllowN(20), "admitted")
		admitted(44)
		must(t, l.Allow("k"), "denied")
		admitted(45)
	})
}

// Keys are reported by state, with their calls and failures.
func TestKeysByStateAndTheirCalls(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(config(steady))
		keys := func(resting, active, degraded float64) {
			t.Helper()
			t.says(map[string]float64{
				"keys{limiter=api state=resting}":  resting,
				"keys{limiter=api state=active}":   active,
				"keys{limiter=api state=degraded}": degraded,
			}, "keys")
		}
		keys(0, 0, 0)
		must(t, l.AllowN("a", 900) && l.AllowN("b", 900), "denied")
		keys(0, 2, 0)
		t.says(nil, "lease.failures")
		t.store.fails(lease.ErrUnavailable)
		time.Sleep(ttl)
		l.Allow("a")
		time.Sleep(time.Millisecond)
		st := l.Stats()
		must(t, st.Degraded == 1 || st.Degraded == 2, "%+v", st)
		keys(float64(st.Keys-st.InUse), float64(st.InUse-st.Degraded), float64(st.Degraded))
		t.says(map[string]float64{
			"lease.failures{limiter=api}": float64(st.Errors),
			"lease.calls{limiter=api}":    float64(st.Calls),
		})
		must(t, st.Errors > 0 && st.Calls > st.Errors, "%+v", st)
		t.store.fails(nil)
		for range 100 {
			l.Allow("a")
			l.Allow("b")
			time.Sleep(10 * time.Millisecond)
		}
		keys(0, 2, 0)
	})
	bubble(t, func(t *world) {
		l := t.start(config(hourly))
		must(t, l.AllowN("a", 90) && l.AllowN("b", 90), "denied")
		time.Sleep(3 * time.Second)
		t.says(map[string]float64{"keys{limiter=api state=resting}": 2}, "keys")
	})
}

// Waiting requests are reported, and the time of a round trip.
func TestWaitingRequests(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(config(hybrid.PerSecond(10)))
		release := t.store.holds()
		var waits sync.WaitGroup
		for range 3 {
			waits.Go(func() { noErr(t, l.Wait(t.Context(), "k")) })
		}
		time.Sleep(30 * time.Millisecond)
		t.says(map[string]float64{"requests.waiting{limiter=api}": 3}, "requests.waiting", "lease.rtt",
			"tokens.requested")
		release()
		waits.Wait()
		t.says(map[string]float64{
			"lease.rtt{limiter=api}":                                     0.03,
			"tokens.requested{limiter=api result=admitted source=lease}": 3,
		}, "requests.waiting", "lease.rtt", "tokens.requested")
	})
}

// The limits in force are reported while a key in use has them, and by limit what they denied.
func TestTheLimitsInForce(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(config(hybrid.PerSecond(5), hourly))
		t.says(nil, "limit")
		for range 8 {
			l.Allow("a")
			l.Allow("b")
		}
		t.says(map[string]float64{
			"limit.rate{limit=5/s limiter=api}":                 5,
			"limit.burst{limit=5/s limiter=api}":                5,
			"limit.keys{limit=5/s limiter=api}":                 2,
			"limit.denied{limit=5/s limiter=api result=denied}": 6,
			"limit.rate{limit=1/h burst 100 limiter=api}":       1. / 3600,
			"limit.burst{limit=1/h burst 100 limiter=api}":      100,
			"limit.keys{limit=1/h burst 100 limiter=api}":       2,
		}, "limit")
		noErr(t, l.SetLimits(t.Context(), "a", hybrid.PerMinute(120).WithBurst(7)))
		noErr(t, l.SetLimits(t.Context(), "b", hybrid.PerMinute(120).WithBurst(7)))
		l.Allow("a")
		l.Allow("b")
		time.Sleep(10 * time.Millisecond)
		t.says(map[string]float64{
			"limit.rate{limit=120/m burst 7 limiter=api}":       2,
			"limit.burst{limit=120/m burst 7 limiter=api}":      7,
			"limit.keys{limit=120/m burst 7 limiter=api}":       2,
			"limit.denied{limit=5/s limiter=api result=denied}": 6,
		}, "limit.rate", "limit.burst", "limit.keys", "limit.denied{limit=5/s")
		// A limit that is in force for no key in use is no longer there, but for what it has denied.
		metrics := t.metrics()
		_, still := metrics["limit.rate{limit=5/s limiter=api}"]
		denied, ever := metrics["limit.denied{limit=5/s limiter=api result=denied}"]
		check(t, !still && ever && denied == 6, "%v", metrics)
	})
}

// The limits that Stats merges are reported as one.
func TestManyLimitsAreReportedAsFew(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(hybrid.Config{Name: "api", LimitsFor: func(key string) []hybrid.Limit {
			return []hybrid.Limit{hybrid.PerHour(int64(len(key)))}
		}})
		key := make([]byte, 100)
		for i := range key {
			key[i] = 'x'
			l.AllowN(string(key[:i+1]), int64(i+1))
			l.Allow(string(key[:i+1]))
		}
		t.says(map[string]float64{
			"limit.keys{limit=other limiter=api}":                 100 - 64,
			"limit.denied{limit=other limiter=api result=denied}": 100 - 64,
		}, "limit.rate{limit=other", "limit.burst{limit=other", "limit.keys{limit=other")
		check(t, len(t.metrics()) < 400, "%d series", len(t.metrics()))
	})
}

// Another process with other limits under the same version is a conflict.
func TestConflictsAreReported(t *testing.T) {
	bubble(t, func(t *world) {
		other := t.startOn(&struct{ lease.Store }{t.store}, config(hybrid.PerSecond(500)))
		must(t, other.Allow("k"), "denied")
		l := t.start(config(steady))
		l.Allow("k")
		time.Sleep(10 * time.Millisecond)
		t.says(map[string]float64{"conflicts{limiter=api}": 1}, "conflicts")
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
		t.balances()
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

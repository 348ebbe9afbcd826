package faults

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

const (
	size    = 3   // processes in a fleet
	perEach = 500 // requests per second and process: three times the limit, all told
	// callTimeout leaves a slack machine time to answer.
	callTimeout = 250 * time.Millisecond
)

// limit is what the fleets share.
var limit = hybrid.PerSecond(500)

// ordinary is how the fleets are configured.
func ordinary(p hybrid.Policy) hybrid.Config {
	return hybrid.Config{Limits: []hybrid.Limit{limit}, Policy: p, CallTimeout: callTimeout}
}

// mode is a fleet with one of the fallbacks. All modes suffer one and the same outage, on a key
// each.
type mode struct {
	*Fleet
	name     string
	fallback hybrid.Fallback
	ears     ears
	load     *Load

	began   time.Duration  // the outage, by Fleet.Now
	settled time.Duration  // the holdings are spent and the mode is what decides
	before  []hybrid.Stats // of each limiter, at its beginning
}

type modes []*mode

// newModes starts the fleets on addr, under load, and returns when everybody holds a lease and
// knows of the others.
func newModes(t *testing.T, addr, direct string, client func(*redis.Options)) modes {
	t.Helper()
	all := modes{
		{name: "Deny", fallback: hybrid.FallbackDeny},
		{name: "LocalShare", fallback: hybrid.FallbackLocalShare},
		{name: "AllowAll", fallback: hybrid.FallbackAllowAll},
	}
	for _, m := range all {
		m.Fleet = NewFleet(t, Options{
			Size: size, Addr: addr, Direct: direct, Client: client, Store: m.ears.put,
			Config: ordinary(hybrid.Policy{Fallback: m.fallback, StrictExpiry: true}),
		})
		m.load = m.Load(m.name, perEach)
	}
	all.eventually(t, "everybody knows of everybody", func(m *mode) bool {
		return !slices.ContainsFunc(m.ears, func(e *ear) bool {
			active,
				_ := e.weights()
			return active != size
		})
	})
	return all
}

// eventually waits until cond was true once for every mode.
func (all modes) eventually(t *testing.T, what string, cond func(*mode) bool) {
	t.Helper()
	left := slices.Clone(all)
	testkit.Eventually(t, what, func() bool {
		left = slices.DeleteFunc(left, cond)
		return len(left) == 0
	})
}

// outage is a way to take the store away from all processes at once.
type outage struct {
	inject, cure func()
	says         string // the error that everybody must hear contains it
	is           error  // and wraps this; nil means lease.ErrUnavailable
}

// suffer is every row that takes the store away: given fleets under load, it goes and comes back.
// What each mode promises meanwhile and afterwards is checked, and what users saw is logged.
func (all modes) suffer(t *testing.T, o outage) {
	t.Helper()
	if o.is == nil {
		o.is = lease.ErrUnavailable
	}
	for _, m := range all {
		for _, e := range m.ears {
			e.forget()
		}
		m.began = m.Now()
		m.before = m.each()
	}
	// when the store goes away
	o.inject()
	all.eventually(t, "the mode decides", (*mode).decides)
	// and stays away for another thousand requests of each fleet, and until everybody has heard why
	all.eventually(t, "a thousand requests without a store, and an error", func(m *mode) bool {
		s := m.Seen(m.name, m.settled, m.Now())
		return s.Admitted+s.Denied >= 1000 && !slices.ContainsFunc(m.ears,
			func(e *ear) bool { return !e.heardOf(o.is, o.says) })
	})
	for _, m := range all {
		m.checkOutage(t)
	}
	o.cure()
	// then every fleet is back at its rate
	fleets := make([]*Fleet, len(all))
	for i, m := range all {
		fleets[i] = m.Fleet
	}
	for i, took := range AwaitRecovery(t, limit.Tokens, fleets...) {
		all[i].load.Stop()
		t.Logf("%s: %d/s again after %v", all[i].name, limit.Tokens, took.After.Round(time.Millisecond))
		took.CheckInTime(t, all[i].State(all[i].name).Config.TTL)
	}
	for _, m := range all {
		m.checkAfter(t)
	}
}

// decides reports whether the holdings are spent and the mode alone decides: every limiter knows
// that the store is away and holds nothing, and for a third of a second nothing came but the mode's
// answer.
func (m *mode) decides() bool {
	for i, s := range m.each() {
		if s.Held > 0 || s.Errors == m.before[i].Errors || m.fallback != hybrid.FallbackDeny &&
			s.Fallback == m.before[i].Fallback {
			return false
		}
	}
	m.settled = m.Now()
	s := m.Seen(m.name, max(m.began, m.settled-time.Second/3), m.settled)
	if s.Admitted+s.Denied < perEach*size/6 {
		return false
	}
	switch m.fallback {
	case hybrid.FallbackDeny:
		return s.Admitted == 0
	case hybrid.FallbackAllowAll:
		return s.Denied == 0
	}
	return true
}

// each is the counts of every limiter.
func (m *mode) each() []hybrid.Stats {
	all := make([]hybrid.Stats, len(m.Limiters))
	for i, l := range m.Limiters {
		all[i] = l.Stats()
	}
	return all
}

// checkOutage is asked at the end of the outage, before the store is back.
func (m *mode) checkOutage(t *testing.T) {
	t.Helper()
	fallback := int64(0)
	for i, s := range m.each() {
		fallback += s.Fallback - m.before[i].Fallback
	}
	now := m.Now()
	first, seen := m.Seen(m.name, m.began, m.settled), m.Seen(m.name, m.settled, now)
	long := (now - m.settled).Seconds()
	t.Logf("%s: until it decides (%v): %d admitted, %d denied, slowest %v; then %.0f/s admitted, %.0f/s denied, %d of %d took 1 ms or more, slowest %v; %d admitted without the store in %v",
		m.name, (m.settled - m.began).Round(time.Millisecond), first.Admitted, first.Denied,
		first.Slowest.Round(time.Microsecond),
		float64(seen.Admitted)/long, float64(seen.Denied)/long, seen.Slow, seen.Admitted+seen.Denied,
		seen.Slowest.Round(time.Microsecond),
		fallback, (now - m.began).Round(time.Millisecond))
	// Nobody waits for the client.
	m.CheckNobodyWaited(m.name, m.began, now)
	switch m.fallback {
	case hybrid.FallbackDeny:
		if seen.Admitted > 0 || fallback > 0 {
			t.Errorf("Deny admitted %d without tokens, %d by fallback", seen.Admitted, fallback)
		}
	case hybrid.FallbackAllowAll:
		if seen.Denied > 0 || fallback < seen.Admitted {
			t.Errorf("AllowAll denied %d, and admitted %d, of which %d are counted", seen.Denied,
				seen.Admitted, fallback)
		}
	case hybrid.FallbackLocalShare:
		// Its own bound: each process its share of rate and burst, by the active weight that it heard
		// last.
		bound := 0.0
		for _, e := range m.ears {
			_, least := e.weights()
			bound += (float64(limit.Tokens)*(now-m.began).Seconds() + float64(limit.Capacity())) / float64(least)
		}
		t.Logf("LocalShare: bound of the local shares %.0f", bound)
		if fallback == 0 || float64(fallback) > bound {
			t.Errorf("LocalShare admitted %d without the store, its bound is %.0f", fallback, bound)
		}
	}
	sent, _, _ := m.ears.sum()
	// They probe some five times a second and process; one call for every tenth request would be a
	// storm.
	if asked := first.Admitted + first.Denied + seen.Admitted + seen.Denied; sent > asked/10+10*size {
		t.Errorf("%s: %d calls for %d requests of an outage", m.name, sent, asked)
	}
}

// checkAfter is asked when the load has ended.
func (m *mode) checkAfter(t *testing.T) {
	t.Helper()
	m.CheckConserved()
	w := m.Audit(m.name, limit, 0)
	over, fallback := w.ExceededBy, m.Stats().Fallback
	t.Logf("%s: the worst window admitted %d more than one bucket, %d were admitted without the store",
		m.name, over, fallback)
	switch {
	case m.fallback == hybrid.FallbackDeny:
		m.CheckBound(m.name, limit, 0)
		if fallback > 0 {
			t.Errorf("Deny admitted %d without tokens", fallback)
		}
	case over > fallback:
		// What the leases admitted holds (1) by itself.
		t.Errorf("%s admitted %d too many, only %d of them without the store", m.name, over, fallback)
	}
}

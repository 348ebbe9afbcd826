//go:build unix

package faults

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// killedHolding is a process that was killed while it held tokens: what they were, and how it was configured.
func killedHolding(t *testing.T, rec *stampRecord, addr string, l hybrid.Limit, p hybrid.Policy) (holding, orders) {
	t.Helper()
	o := orders{Role: "hold", Redis: addr, Record: rec.path, Limit: l, Policy: p, CallTimeout: 10 * time.Second}
	victim := launch(t, o)
	var h holding
	victim.hear("holding", &h)
	victim.kill()
	if h.Held == 0 {
		t.Fatal("it held nothing")
	}
	return h, o
}

// The bucket counts the lease of a killed process until T has passed since its last grant, by the server's clock, and
// at most two slices of T/7 longer. Then the tokens come back at the limit's rate.
func TestTheLeaseOfAKilledProcessIsForgottenAfterT(t *testing.T) {
	t.Parallel()
	// Given a process that was killed,
	server, rec := redistest.Start(t), newRecord(t)
	h, o := killedHolding(t, rec, server.Addr, hybrid.PerSecond(100), hybrid.Policy{MinBatch: 50, TTL: time.Second})
	// when time passes,
	f := newFamily(t, server.Addr)
	ttl := o.ttl().Microseconds()
	full := false
	testkit.EventuallyNil(t, func() error {
		s := f.inspect()
		if !s.Exists {
			return nil // forgotten as a whole: it was full
		}
		// then its lease is in the ledger before T,
		age := s.ServerTime - h.GrantedAt
		if age < ttl && s.Ledger < h.Held {
			t.Fatalf("%d us after the grant %d are leased, it held %d and T is %d us", age, s.Ledger, h.Held, ttl)
		}
		// the bucket never has what is leased,
		if s.Levels[0] > o.Limit.Capacity()-s.Ledger {
			t.Fatalf("level %d beside a ledger of %d", s.Levels[0], s.Ledger)
		}
		// it is not in the ledger two slices after T,
		if age > ttl*9/7+2 && s.Ledger != 0 {
			t.Fatalf("%d us after the grant %d are leased, T is %d us", age, s.Ledger, ttl)
		}
		// and in the end the bucket is full again.
		full = full || s.Levels[0] == o.Limit.Capacity()
		return unless(full, "the tokens do not come back: %+v", s)
	})
}

// Until then nobody can spend it: the others get what it did not hold, and the refill.
func TestNobodySpendsTheLeaseOfAKilledProcess(t *testing.T) {
	t.Parallel()
	// Given a process that held half of the burst and was killed,
	server, rec := redistest.Start(t), newRecord(t)
	h, o := killedHolding(t, rec, server.Addr, hybrid.PerSecond(100), hybrid.Policy{MinBatch: 50, TTL: 1500 * time.Millisecond})
	// when others take all they can get, once there was time for the rest of the bucket to fill,
	f := newFamily(t, server.Addr)
	a, b := f.limiter(o.config()), f.limiter(o.config())
	past := func(d time.Duration) bool { // d is past since the grant, by the server's clock
		s := f.inspect()
		return !s.Exists || s.ServerTime >= h.GrantedAt+d.Microseconds()
	}
	testkit.EventuallyNil(t, func() error { return unless(past(o.ttl()*2/3), "the server's clock stands still") })
	early := 0 // admissions that certainly came before the end of the lease
	for !past(o.ttl()) {
		early = len(rec.file.AppendSpans(nil))
		rec.ask(func() bool { return a.Allow("k") })
		rec.ask(func() bool { return b.Allow("k") })
	}
	// then until T has passed they have what it did not hold and no more,
	spans := rec.file.AppendSpans(nil)
	if w := worstOf(t, spans[:early], o.Limit, o.Limit.Capacity()-h.Held); w.ExceededBy > 0 {
		t.Errorf("tokens of a lease of %d were spent again before its end: %+v", h.Held, w)
	}
	// and later no more than a central bucket would give.
	for rec.ask(func() bool { return a.Allow("k") }) || rec.ask(func() bool { return b.Allow("k") }) {
	}
	if w := rec.worst(t, o.Limit); w.ExceededBy > 0 {
		t.Errorf("%+v", w)
	}
	t.Logf("held %d; before its end the others took %d", h.Held, max(0, early-int(h.Admitted)))
}

// With next to no refill every token can be told: what the killed process held is lost, once, and everything else is
// in the bucket or was admitted.
func TestTheBalanceAfterAKillIsExact(t *testing.T) {
	t.Parallel()
	// Given a process that was killed while it held some tokens of a bucket that does not refill,
	server, rec := redistest.Start(t), newRecord(t)
	h, o := killedHolding(t, rec, server.Addr, hybrid.PerHour(1).WithBurst(1000), hybrid.Policy{MinBatch: 200, TTL: time.Second})
	// when survivors take some and give back the rest,
	f := newFamily(t, server.Addr)
	a, b := f.limiter(o.config()), f.limiter(o.config())
	for range 100 {
		if !rec.ask(func() bool { return a.Allow("k") }) || !rec.ask(func() bool { return b.Allow("k") }) {
			t.Fatal("denied")
		}
	}
	for _, l := range []*hybrid.Limiter{a, b} {
		if err := l.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// and the bucket has forgotten it,
	testkit.EventuallyNil(t, func() error {
		s := f.inspect()
		return unless(s.Ledger == 0, "%d leased", s.Ledger)
	})
	// then it has what was neither admitted, nor lost with the killed one, nor burnt by a survivor.
	s, sa, sb := f.inspect(), a.Stats(), b.Stats()
	admitted := h.Admitted + sa.Admitted + sb.Admitted
	if want := o.Limit.Capacity() - admitted - h.Held - h.Burnt - sa.Burnt - sb.Burnt; s.Levels[0] != want || s.Ledger != 0 {
		t.Errorf("level %d, want %d, ledger %d; lost %d, survivors %+v, %+v", s.Levels[0], want, s.Ledger, h.Held, sa, sb)
	}
}

// Kills under load, each followed by a new process as a supervisor would start it.
func TestAFleetKeepsTheBoundWhileProcessesAreKilled(t *testing.T) {
	t.Parallel()
	const processes, kills = 4, 2
	// Given a fleet under twice the load that the limit admits,
	server, rec := redistest.Start(t), newRecord(t)
	limit := hybrid.PerSecond(2000).WithBurst(1000)
	o := orders{Role: "load", Redis: server.Addr, Record: rec.path, Limit: limit, Offered: 2 * limit.Rate() / processes}
	f := newFamily(t, server.Addr)
	ps := f.launch(processes, o)
	for i := range kills {
		// when processes are killed and replaced,
		f.admits(rec, limit.Tokens/2)
		ps[i].kill()
		ps[i] = f.launch(1, o)[0]
	}
	// then the fleet goes on as before,
	f.admits(rec, limit.Tokens/2)
	f.finish(ps)
	// no window exceeds the bound, and the leases of the dead are forgotten.
	w := rec.worst(t, limit)
	t.Logf("admitted %d, nearest to the bound: %d of %.0f", sum(rec.file.AppendSpans(nil)), w.Admitted, w.Bound)
	if w.ExceededBy > 0 {
		t.Errorf("%+v", w)
	}
	testkit.EventuallyNil(t, func() error {
		s := f.inspect()
		return unless(s.Ledger == 0, "%d still leased", s.Ledger)
	})
}

//go:build unix

package faults

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// killedHolding is a process of f that was killed while it held tokens: what they were, and how it
// was configured.
func (f *family) killedHolding(l hybrid.Limit, p hybrid.Policy) (holding, orders) {
	f.t.Helper()
	o := orders{Role: "hold", Limit: l, Policy: p, CallTimeout: 10 * time.Second}
	victim := f.child(o)
	var h holding
	victim.hear("holding", &h)
	victim.kill()
	if h.Held == 0 {
		f.t.Fatal("it held nothing")
	}
	return h, o
}

// TestRow30TheLeaseOfAKilledProcessIsForgottenAfterT: the bucket counts it until T has passed since
// its last grant, by the server's clock, and at most two slices of T/7 longer. Then the tokens come
// back at the limit's rate.
func TestRow30TheLeaseOfAKilledProcessIsForgottenAfterT(t *testing.T) {
	t.Parallel()
	// Given a process that was killed,
	f := newFamily(t)
	h, o := f.killedHolding(hybrid.PerSecond(100), hybrid.Policy{MinBatch: 50, TTL: time.Second})
	// when time passes,
	ttl := o.ttl().Microseconds()
	full := false
	testkit.Eventually(t, "the return of the tokens", func() bool {
		s := f.State(key)
		if !s.Exists {
			return true // forgotten as a whole: it was full
		}
		// then its lease is in the ledger before T,
		age := s.ServerTime - h.GrantedAt
		if age < ttl && s.Ledger < h.Held {
			t.Fatalf("%d us after the grant %d are leased, it held %d and T is %d us", age, s.Ledger, h.Held,
				ttl)
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
		return full
	})
}

// TestRow30NobodySpendsTheLeaseOfAKilledProcess: until T has passed the others get what it did not
// hold, and the refill.
func TestRow30NobodySpendsTheLeaseOfAKilledProcess(t *testing.T) {
	t.Parallel()
	// Given a process that held half of the burst and was killed,
	f := newFamily(t)
	h, o := f.killedHolding(hybrid.PerSecond(100), hybrid.Policy{MinBatch: 50, TTL: 1500 * time.Millisecond})
	// when others take all they can get, once there was time for the rest of the bucket to fill,
	a, b := f.limiter(o), f.limiter(o)
	past := func(d time.Duration) bool { // d is past since the grant, by the server's clock
		s := f.State(key)
		return !s.Exists || s.ServerTime >= h.GrantedAt+d.Microseconds()
	}
	testkit.Eventually(t, "two thirds of T", func() bool { return past(o.ttl() * 2 / 3) })
	early := 0 // admissions that certainly came before the end of the lease
	for !past(o.ttl()) {
		early = len(f.spans())
		f.stamp(func() bool { return a.Allow(key) })
		f.stamp(func() bool { return b.Allow(key) })
	}
	// then until T has passed they have what it did not hold and no more,
	if w := worstOf(t, f.spans()[:early], o.Limit, o.Limit.Capacity()-h.Held); w.ExceededBy > 0 {
		t.Errorf("tokens of a lease of %d were spent again before its end: %+v", h.Held, w)
	}
	// and later no more than a central bucket would give.
	for f.stamp(func() bool { return a.Allow(key) }) || f.stamp(func() bool { return b.Allow(key) }) {
	}
	if w := f.worst(t, o.Limit); w.ExceededBy > 0 {
		t.Errorf("%+v", w)
	}
	t.Logf("held %d; before its end the others took %d", h.Held, max(0, early-int(h.Admitted)))
}

// TestRow30TheBalanceAfterAKillIsExact: with next to no refill every token can be told. What the
// killed process held is lost, once, and everything else is in the bucket or was admitted.
func TestRow30TheBalanceAfterAKillIsExact(t *testing.T) {
	t.Parallel()
	// Given a process that was killed while it held some tokens of a bucket that does not refill,
	f := newFamily(t)
	h, o := f.killedHolding(hybrid.PerHour(1).WithBurst(1000), hybrid.Policy{MinBatch: 200, TTL: time.Second})
	// when survivors take some and give back the rest,
	a, b := f.limiter(o), f.limiter(o)
	for range 100 {
		if !f.stamp(func() bool { return a.Allow(key) }) || !f.stamp(func() bool { return b.Allow(key) }) {
			t.Fatal("denied")
		}
	}
	f.Shutdown()
	// and the bucket has forgotten it,
	f.awaitEmptyLedger()
	// then it has what was neither admitted, nor lost with the killed one, nor burnt by a survivor.
	s, survivors := f.State(key), f.Stats()
	want := o.Limit.Capacity() - h.Admitted - survivors.Admitted - h.Held - h.Burnt - survivors.Burnt
	if s.Levels[0] != want || s.Ledger != 0 {
		t.Errorf("level %d, want %d, ledger %d; lost %d, survivors %+v", s.Levels[0], want, s.Ledger, h.Held,
			survivors)
	}
}

// underLoad is a fleet of child processes that are asked for twice what the limit admits.
const inFleet = 4

func (f *family) underLoad(p hybrid.Policy) (hybrid.Limit, orders, []*process) {
	limit := hybrid.PerSecond(2000).WithBurst(1000)
	o := orders{Role: "load", Limit: limit, Offered: 2 * limit.Rate() / inFleet, Policy: p}
	return limit, o, f.children(inFleet, o)
}

// TestRow30AFleetKeepsTheBoundWhileProcessesAreKilled: under load, each followed by a new process
// as a supervisor would start it.
func TestRow30AFleetKeepsTheBoundWhileProcessesAreKilled(t *testing.T) {
	t.Parallel()
	const kills = 2
	// Given a fleet under load,
	f := newFamily(t)
	limit, o, ps := f.underLoad(hybrid.Policy{})
	for i := range kills {
		// when processes are killed and replaced,
		f.awaitAdmitted(limit.Tokens / 2)
		ps[i].kill()
		ps[i] = f.children(1, o)[0]
	}
	// then the fleet goes on as before,
	f.awaitAdmitted(limit.Tokens / 2)
	f.finish(ps...)
	// no window exceeds the bound, and the leases of the dead are forgotten.
	w := f.worst(t, limit)
	t.Logf("admitted %d, nearest to the bound: %d of %.0f", f.admitted(), w.Admitted, w.Bound)
	if w.ExceededBy > 0 {
		t.Errorf("%+v", w)
	}
	f.awaitEmptyLedger()
}

package lease

import (
	"testing"
	"time"
)

func TestSteadyDemandMakesAboutOneCallPerTarget(t *testing.T) {
	// given a limit with room, and a process that uses a tenth of it
	l := PerSecond(10_000)
	d := newDriver(t, l)
	h := d.client(Policy{}, l, random(1000, 1))
	// when it has run for a while
	d.run(2 * time.Second)
	denied := h.denied
	d.run(10 * time.Second)
	// then it makes about 1/tau calls a second, never above 2/tau, and serves everybody
	if n := h.callsIn(10 * time.Second); n < 70 || n > 200 {
		t.Errorf("%d calls in ten seconds, 1/tau would be 100", n)
	}
	if h.denied != denied {
		t.Errorf("%d of %d requests denied, with room for ten times as many", h.denied-denied, h.admitted)
	}
	// and the next lease is there before the last one is empty
	if missed := h.Pool.Missed(); missed > h.admitted/200 {
		t.Errorf("%d of %d requests found the pool empty", missed, h.admitted)
	}
	if burnt := h.Account().Burnt; burnt > 0 {
		t.Errorf("%d tokens of leases in use ran out: renewal came too late", burnt)
	}
}

func TestIdleHolderGivesBackAndFallsSilent(t *testing.T) {
	l := PerSecond(10_000)
	d := newDriver(t, l)
	h := d.client(Policy{}, l, random(1000, 2))
	d.run(3 * time.Second)
	if h.Pool.Held() == 0 {
		t.Fatal("nothing is held while busy")
	}
	// when the demand ends
	h.arrival = Never
	d.run(time.Second)
	calls := len(h.calls)
	d.run(time.Hour)
	// then everything is given back, at once, and nobody calls any more
	if len(h.calls) != calls {
		t.Errorf("%d calls in an idle hour", len(h.calls)-calls)
	}
	a := h.Account()
	if a.Held != 0 || a.Burnt != 0 || d.bucket.state.ring.ledger() != 0 {
		t.Errorf("idle: %+v, ledger %d", a, d.bucket.state.ring.ledger())
	}
}

func TestLocallyDeniedRequestsMakeNoCalls(t *testing.T) {
	// given a hundred times the demand that the limit admits
	l := PerSecond(10).WithBurst(1)
	d := newDriver(t, l)
	h := d.client(Policy{}, l, random(1000, 3))
	d.run(20 * time.Second)
	// then what the limit has is used, and there is at most one call for each token
	if h.admitted < 195 || h.denied < 15_000 {
		t.Errorf("admitted %d, denied %d", h.admitted, h.denied)
	}
	if len(h.calls) > 2*int(h.admitted) {
		t.Errorf("%d calls for %d tokens", len(h.calls), h.admitted)
	}
	// and none before the delay of the reply before it has ended
	h.ask()
	if until := h.deniedUntil; until > d.now {
		if call, next := h.due(d.now, needs{waiting: 5}); call || next > until {
			t.Errorf("a call within the delay: %v, next look %v after its end", call, next.Sub(until))
		}
	} else {
		t.Error("the last shortfall left no delay")
	}
}

func TestSlowKeyAsksForExactlyWhatWaits(t *testing.T) {
	// given one request every two seconds
	l := PerSecond(100)
	d := newDriver(t, l)
	h := d.client(Policy{}, l, steady(0.5))
	d.run(7 * time.Second)
	for range 5 {
		before := len(h.calls)
		d.run(2 * time.Second)
		if len(h.calls) != before+1 || h.last.Want != 1 || h.last.Waiting != 1 || h.Pool.Held() != 0 {
			t.Errorf("%d calls for one request, wanting %d with %d waiting; holds %d", len(h.calls)-before, h.last.Want, h.last.Waiting, h.Pool.Held())
		}
	}
}

func TestContendedHolderGivesBackBeyondTheNextTarget(t *testing.T) {
	// given a holder with a large lease and little use for it
	l := PerSecond(1000)
	d := newDriver(t, l)
	h := d.client(Policy{MinBatch: 200}, l, steady(500))
	d.run(1010 * time.Millisecond)
	h.reviewAt = d.now.Add(time.Hour)
	held := h.Pool.Held()
	// when others are short and a Target has passed
	for _, contended := range []bool{false, true} {
		h.heard.contended = contended
		keep := h.demand.expected(h.config.Target)
		got := h.excess(int64(keep * 3 / 2))
		// then it gives back what the next Target does not need, and only then
		if contended != (got > 0) {
			t.Errorf("contended %v: gives back %d of %v (held %d)", contended, got, keep*3/2, held)
		}
	}
}

func TestLeaseInUseIsRenewedBeforeItsDeadline(t *testing.T) {
	// given far more tokens than the demand needs, so that no watermark asks for more
	l := PerSecond(10_000)
	d := newDriver(t, l)
	h := d.client(Policy{MinBatch: 2000}, l, steady(30))
	d.run(30 * time.Second)
	// then nothing of what is in use runs out
	if a := h.Account(); a.Burnt > 0 {
		t.Errorf("%+v", a)
	}
	if n := h.callsIn(10 * time.Second); n > 200 {
		t.Errorf("%d calls in ten seconds", n)
	}
}

func TestBreakerSendsOneProbeAtATime(t *testing.T) {
	l := PerSecond(1000)
	d := newDriver(t, l)
	h := d.client(Policy{Fallback: FallbackDeny}, l, random(500, 4))
	d.run(2 * time.Second)
	// when the store is away for ten seconds
	d.down = true
	d.run(10 * time.Second)
	probes := h.callsIn(10 * time.Second)
	// then it is probed, with at most T between two probes on average, and nobody waits
	if probes < 10 || probes > 200 {
		t.Errorf("%d probes in ten seconds, T is %v", probes, h.config.TTL)
	}
	gaps := map[time.Duration]bool{}
	for i := 1; i < len(h.calls); i++ {
		gaps[h.calls[i].Sub(h.calls[i-1])] = true
	}
	if len(gaps) < probes/2 {
		t.Errorf("%d different gaps between %d probes: no jitter", len(gaps), probes)
	}
	// and two T after it is back the rate is too
	d.down = false
	d.run(2*h.config.TTL + d.rtt)
	before := h.admitted
	d.run(time.Second)
	if h.admitted-before < 450 {
		t.Errorf("%d of 500 requests admitted after recovery", h.admitted-before)
	}
}

func TestFallbackModes(t *testing.T) {
	for _, c := range []struct {
		mode        Fallback
		least, most int64 // admitted in ten seconds of outage, of a thousand requests
	}{
		{FallbackDeny, 0, 0}, {FallbackLocalShare, 95, 112}, {FallbackAllowAll, 1000, 1000},
	} {
		// given a process that has the limit to itself
		l := PerSecond(10)
		d := newDriver(t, l)
		h := d.client(Policy{Fallback: c.mode}, l, nil)
		h.request()
		h.ask()
		d.run(50 * time.Millisecond)
		// when the store fails and requests go on
		d.down = true
		d.run(2 * time.Second)
		h.Refuse(1)
		h.ask()
		d.run(10 * time.Millisecond)
		if !h.Degraded() {
			t.Fatal("not degraded after a failed call")
		}
		admitted := int64(0)
		for range 1000 {
			d.now = d.now.Add(10 * time.Millisecond)
			if h.takeFallback(d.now, 1) {
				admitted++
			}
		}
		// then each mode admits what it says, and owes all of it
		if admitted < c.least || admitted > c.most {
			t.Errorf("mode %d admitted %d, want %d to %d", c.mode, admitted, c.least, c.most)
		}
		d.down = false
		h.tick = d.now
		d.run(5 * time.Second)
		if h.last.Debt != admitted && admitted > 0 || h.debt != 0 {
			t.Errorf("mode %d: admitted %d without a grant, reported %d, %d left", c.mode, admitted, h.last.Debt, h.debt)
		}
	}
}

func TestColdStartDecidesBeforeTheFirstReply(t *testing.T) {
	for _, mode := range []ColdStart{ColdStartDeny, ColdStartAllow} {
		d := newDriver(t, PerSecond(10))
		h := d.client(Policy{ColdStart: mode}, PerSecond(10), nil)
		if got := h.takeFallback(d.now, 3); got != (mode == ColdStartAllow) {
			t.Errorf("mode %d: %v", mode, got)
		}
	}
}

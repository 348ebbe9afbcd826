package protocol

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

func TestSteadyDemandMakesAboutOneCallPerTarget(t *testing.T) {
	// given a limit with room, and a process that uses a tenth of it
	d, h := alone(t, lease.PerSecond(10_000), lease.Policy{}, random(1000, 1))
	// when it has run for a while
	d.run(2 * time.Second)
	denied := h.denied
	d.run(10 * time.Second)
	// then it makes about 1/tau calls a second, never above 2/tau, and serves everybody
	n := h.callsIn(10 * time.Second)
	testkit.Check(t, n >= 70 && n <= 200, "%d calls in ten seconds, 1/tau would be 100", n)
	testkit.Check(t, h.denied == denied, "%d of %d requests denied, with room for ten times as many",
		h.denied-denied, h.admitted)
	// and the next lease is there before the last one is empty
	missed, burnt := h.lacked(), h.Account().Burnt
	testkit.Check(t, missed <= h.admitted/200, "%d of %d requests found the pool empty", missed, h.admitted)
	testkit.Check(t, burnt == 0, "%d tokens of leases in use ran out: renewal came too late", burnt)
}

func TestIdleHolderGivesBackAndFallsSilent(t *testing.T) {
	d, h := alone(t, lease.PerSecond(10_000), lease.Policy{}, random(1000, 2))
	d.run(3 * time.Second)
	testkit.Must(t, h.Pool.Held() > 0, "nothing is held while busy")
	// when the demand ends
	h.arrival = Never
	d.run(time.Second)
	calls := len(h.calls)
	d.run(time.Hour)
	// then everything is given back, at once, and nobody calls any more
	testkit.Check(t, len(h.calls) == calls, "%d calls in an idle hour", len(h.calls)-calls)
	a, ledger := h.Account(), d.bucket.ring.ledger()
	testkit.Check(t, a.Held == 0 && a.Burnt == 0 && ledger == 0, "idle: %+v, ledger %d", a, ledger)
}

func TestLocallyDeniedRequestsMakeNoCalls(t *testing.T) {
	// given a hundred times the demand that the limit admits
	d, h := alone(t, lease.PerSecond(10).WithBurst(1), lease.Policy{}, random(1000, 3))
	d.run(20 * time.Second)
	// then what the limit has is used, and there is at most one call for each token
	testkit.Check(t, h.admitted >= 195 && h.denied >= 15_000, "admitted %d, denied %d", h.admitted, h.denied)
	testkit.Check(t, len(h.calls) <= 2*int(h.admitted), "%d calls for %d tokens", len(h.calls), h.admitted)
	// and none before the delay of the reply before it has ended
	h.ask()
	testkit.Must(t, h.deniedUntil > d.now, "the last shortfall left no delay")
	call, next := h.due(d.now, needs{waiting: 5})
	testkit.Check(t, !call && next <= h.deniedUntil, "a call within the delay: %v, next look %v after its end",
		call, next.Sub(h.deniedUntil))
}

func TestSlowKeyAsksForExactlyWhatWaits(t *testing.T) {
	// given one request every two seconds
	d, h := alone(t, lease.PerSecond(100), lease.Policy{}, steady(0.5))
	d.run(7 * time.Second)
	for range 5 {
		before := len(h.calls)
		d.run(2 * time.Second)
		calls := len(h.calls) - before
		testkit.Check(t, calls == 1 && h.last.Want == 1 && h.last.Waiting == 1 && h.Pool.Held() == 0,
			"%d calls for one request, wanting %d with %d waiting; holds %d", calls, h.last.Want, h.last.Waiting,
			h.Pool.Held())
	}
}

func TestLeaseInUseIsRenewedBeforeItsDeadline(t *testing.T) {
	// given far more tokens than the demand needs, so that no watermark asks for more
	d, h := alone(t, lease.PerSecond(10_000), lease.Policy{MinBatch: 2000}, steady(30))
	d.run(30 * time.Second)
	// then nothing of what is in use runs out
	testkit.Check(t, h.Account().Burnt == 0, "%+v", h.Account())
	n := h.callsIn(10 * time.Second)
	testkit.Check(t, n <= 200, "%d calls in ten seconds", n)
}

func TestFallbackModes(t *testing.T) {
	for _, c := range []struct {
		mode        lease.Fallback
		least, most int64 // admitted in ten seconds of outage, of a thousand requests
	}{
		{lease.FallbackDeny, 0, 0}, {lease.FallbackLocalShare, 95, 112}, {lease.FallbackAllowAll, 1000, 1000},
	} {
		// given a process that has the limit to itself
		d, h := alone(t, lease.PerSecond(10), lease.Policy{Fallback: c.mode}, nil)
		// when the store fails and requests go on
		h.degrade()
		admitted := int64(0)
		for range 1000 {
			h.Refuse(1)
			h.ask()
			d.run(10 * time.Millisecond)
			if h.takeFallback(d.now, 1, 1) > 0 {
				admitted++
			}
		}
		// then each mode admits what it says, and owes all of it
		testkit.Check(t, admitted >= c.least && admitted <= c.most, "mode %d admitted %d, want %d to %d", c.mode,
			admitted, c.least, c.most)
		d.down = false
		h.tick = d.now
		d.run(5 * time.Second)
		testkit.Check(t, (admitted == 0 || h.last.Debt == admitted) && h.debt == 0,
			"mode %d: admitted %d without a grant, reported %d, %d left", c.mode, admitted, h.last.Debt, h.debt)
	}
}

// The local share is there when fallbackAt says so, also after the holder has taken another id:
// whoever asks again at that time would otherwise ask for ever.
func TestTheLocalShareIsThereAtTheTimeThatItNames(t *testing.T) {
	// given a holder that is alone, and a store that is away
	d, h := alone(t, lease.PerSecond(1000), lease.Policy{}, nil)
	h.degrade()
	testkit.Must(t, h.takeFallback(d.now, 100, 100) > 0, "the fallback gives nothing")
	// when it goes on under another id and wants nearly all of the share
	h.rename("other")
	for asked := 0; h.takeFallback(d.now, 990, 990) == 0; asked++ {
		at, ok := h.fallbackAt(d.now, 990)
		testkit.Must(t, ok && at > d.now && asked <= 2,
			"refused, and the time to ask again is %v from now (%v), the %d. time", at.Sub(d.now), ok, asked+1)
		d.now = at
	}
	// then it has waited for what was missing
	more, ok := h.fallbackAt(d.now, 1001)
	testkit.Check(t, !ok, "more than the burst is there at %v", more)
}

func TestAStoreThatFailsNowAndThenGivesOneLocalBurst(t *testing.T) {
	// given a process alone on 10/s with a burst of 100, whose every second call fails
	d, h := alone(t, lease.PerSecond(10).WithBurst(100), lease.Policy{}, nil)
	now, admitted := d.now, int64(0)
	for seq := int64(1); now.Sub(d.now) < 20*time.Second; seq += 2 {
		r := *h.Build(now, seq, 0)
		var g lease.Grant
		testkit.NoErr(t, d.bucket.Call(int64(now)/1000, &r, &g))
		h.Accept(now, &g)
		h.Build(now, seq+1, 0)
		h.Fail(now, lease.ErrUnavailable)
		// when it takes all that the fallback gives, each time
		for h.takeFallback(now, 1, 1) > 0 {
			admitted++
		}
		now = now.Add(100 * time.Millisecond)
	}
	// then that is one local burst and the rate, not a burst for every failure
	most := int64(100 + 10*20)
	testkit.Check(t, admitted <= most && admitted >= most*9/10,
		"the fallback admitted %d in 20 s, want about %d", admitted, most)
}

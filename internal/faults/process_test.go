//go:build unix

package faults

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// TestRow30TheBalanceAfterAKillIsExact: with next to no refill every token can be counted. The
// killed process's holding is lost, once, and everything else is in the bucket or was admitted.
func TestRow30TheBalanceAfterAKillIsExact(t *testing.T) {
	t.Parallel()
	// Given a process that was killed while it held some tokens of a bucket that does not refill,
	f := newFamily(t)
	o := orders{Role: "hold", Limit: hybrid.PerHour(1).WithBurst(1000), CallTimeout: 10 * time.Second,
		Policy: hybrid.Policy{MinBatch: 200, TTL: time.Second, StrictExpiry: true}}
	victim := f.child(o)
	var held hybrid.Stats
	victim.hear("holding", &held)
	victim.kill()
	// when survivors take some and give back the rest,
	a, b := f.add(o.config(), f.store).Key(key), f.add(o.config(), f.store).Key(key)
	for range 100 {
		testkit.Must(t, a.Allow() && b.Allow(), "denied")
	}
	f.shutdown()
	// and the bucket has forgotten the lease, then its level is the burst minus the tokens admitted,
	// lost with the killed process, and burnt by survivors.
	s, survivors := f.settled(), f.stats()
	want := o.Limit.Capacity() - held.Admitted - survivors.Admitted - held.Held - held.Burnt - survivors.Burnt
	testkit.Check(t, held.Held > 0 && s.Levels[0] == want, "level %d, want %d; %+v, survivors %+v", s.Levels[0],
		want, held, survivors)
}

// TestRow32AStarvedProcessServesEveryKeyAndDoesNotSpin: a process that has one CPU, and shares it with
// goroutines that never pause and a garbage collector that never rests, still serves every key, makes no more
// calls than an undisturbed one, is silent when it is idle, and ends on shutdown.
func TestRow32AStarvedProcessServesEveryKeyAndDoesNotSpin(t *testing.T) {
	testkit.LongOnly(t)
	t.Parallel()
	// Given a process with one CPU (at first nothing is served from its burst: that would even out all
	// differences),
	f := newFamily(t)
	limit := hybrid.PerSecond(200).WithBurst(1000)
	p := f.child(orders{
		Role: "starved", Limit: limit, Offered: 2 * limit.Rate(),
		Policy:      hybrid.Policy{TTL: 2 * time.Second, StartEmpty: true, StrictExpiry: true},
		CallTimeout: 10 * time.Second,
	}, "GOMAXPROCS=1")
	// when its keys are under load until each is served, then idle, and it shuts down under load,
	var s starved
	p.hear("starved", &s)
	r := f.finish(p)[0]
	// then it makes at most two calls in a Target and key, and none when it is idle,
	bound := starvedKeys * (s.Seconds*20 + 5)
	testkit.Check(t, float64(s.Calls) <= bound, "%d calls, at most %.0f are due", s.Calls, bound)
	testkit.Check(t, s.IdleCalls == 0 && s.IdleCPUSeconds <= 0.05, "not idle: %+v", s)
	// and leaves nothing behind.
	testkit.Check(t, r.Shutdown && r.Stats.Held == 0, "after Shutdown: %+v", r)
}

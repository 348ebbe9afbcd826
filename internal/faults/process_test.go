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

// underLoad starts child processes under twice the limit's load, and returns when they have
// admitted some. All spend no lease that has ended, however long the machine has stopped them; the
// first does so only if firstStrict.
func (f *family) underLoad(limit hybrid.Limit, firstStrict bool) (orders, []*process) {
	f.t.Helper()
	const processes = 4
	o := orders{Role: "load", Limit: limit, Offered: 2 * limit.Rate() / processes}
	o.Policy.StrictExpiry = firstStrict
	ps := f.children(1, o)
	o.Policy.StrictExpiry = true
	ps = append(ps, f.children(processes-1, o)...)
	f.awaitMore(limit.Tokens / 2)
	return o, ps
}

// limits are those of the tests of processes under load.
var limits = map[string]hybrid.Limit{"a bucket": hybrid.PerSecond(2000).WithBurst(1000), "a window": window}

// TestRow30AFleetKeepsTheBoundWhileProcessesAreKilled: under load, each followed by a new process
// as a supervisor would start it. A window is charged the holding of a killed process when its lease
// ends, as if it had been spent.
func TestRow30AFleetKeepsTheBoundWhileProcessesAreKilled(t *testing.T) {
	testkit.LongOnly(t)
	each(t, limits, func(t *testing.T, limit hybrid.Limit) {
		// Given a fleet under load,
		f := newFamily(t)
		o, ps := f.underLoad(limit, true)
		for i := range 2 {
			// when processes are killed and replaced, then the fleet goes on as before,
			ps[i].kill()
			ps[i] = f.children(1, o)[0]
			f.awaitMore(2 * limit.Tokens)
		}
		f.finish(ps...)
		// no window exceeds the bound, and the leases of the dead are forgotten.
		w := f.worst(t, limit)
		testkit.Check(t, w.ExceededBy == 0, "%+v", w)
		f.settled()
	})
}

// TestRow29AFleetKeepsTheBoundWhileOneOfItIsStopped: a process that is stopped until its lease has
// ended spends none of it with StrictExpiry, and at most its holding without.
func TestRow29AFleetKeepsTheBoundWhileOneOfItIsStopped(t *testing.T) {
	testkit.LongOnly(t)
	type story struct {
		limit  hybrid.Limit
		strict bool
	}
	stories := map[string]story{}
	for name, limit := range limits {
		stories[name+", strict"], stories[name+", not strict"] = story{limit, true}, story{limit, false}
	}
	each(t, stories, func(t *testing.T, c story) {
		// Given a fleet under load,
		f := newFamily(t)
		_, ps := f.underLoad(c.limit, c.strict)
		for range 2 {
			// when one of it is stopped until its lease has ended, and goes on,
			ps[0].stop()
			f.outlastLeases()
			ps[0].resume()
			f.awaitMore(c.limit.Tokens)
		}
		stopped := f.finish(ps...)[0]
		// then no window exceeds the bound by more than it may.
		w, allowed := f.worst(t, c.limit), int64(0)
		if !c.strict {
			allowed = stopped.MostHeld
		}
		testkit.Check(t, w.ExceededBy <= allowed, "exceeded by more than %d: %+v", allowed, w)
	})
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

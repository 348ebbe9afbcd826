//go:build unix

package faults

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// holder starts a process that holds tokens, and returns when it does.
func (f *family) holder(o orders) (*process, holding) {
	f.t.Helper()
	o.Role = "hold"
	p := f.child(o)
	var h holding
	p.hear("holding", &h)
	testkit.Must(f.t, h.Held > 0, "it holds nothing")
	return p, h
}

// holds returns orders for processes that lease at least batch tokens at a time, and spend no lease
// that has ended.
func holds(l hybrid.Limit, batch int64, ttl time.Duration) orders {
	policy := hybrid.Policy{MinBatch: batch, TTL: ttl, StrictExpiry: true}
	return orders{Limit: l, Policy: policy, CallTimeout: 10 * time.Second}
}

// TestRow30TheLeaseOfAKilledProcessIsForgottenAfterT: the bucket counts it until T has passed since
// its last grant, by the server's clock, and at most two slices of T/7 longer. Then the tokens come
// back at the limit's rate.
func TestRow30TheLeaseOfAKilledProcessIsForgottenAfterT(t *testing.T) {
	testkit.LongOnly(t)
	t.Parallel()
	// Given a process that was killed while it held tokens,
	f, o := newFamily(t), holds(hybrid.PerSecond(100), 50, time.Second)
	victim, h := f.holder(o)
	victim.kill()
	// when time passes,
	ttl := o.ttl().Microseconds()
	full := false
	testkit.Eventually(t, "the return of the tokens", func() bool {
		s := f.state(key)
		if !s.Exists {
			return true // forgotten as a whole: it was full
		}
		age := s.ServerTime - h.GrantedAt
		// then its lease is in the ledger before T,
		testkit.Must(t, age >= ttl || s.Ledger >= h.Held,
			"%d us after the grant %d are leased, it held %d and T is %d us", age, s.Ledger, h.Held, ttl)
		// the bucket's level never contains leased tokens,
		testkit.Must(t, s.Levels[0] <= o.Limit.Capacity()-s.Ledger, "a level beside the ledger: %+v", s)
		// it is not in the ledger two slices after T, which may have grown,
		most := s.Config.TTL.Microseconds()*9/7 + 2
		testkit.Must(t, age <= most || s.Ledger == 0, "%d us after the grant, at most %d us: %+v", age, most, s)
		// and in the end the bucket is full again.
		full = full || s.Levels[0] == o.Limit.Capacity()
		return full
	})
}

// TestRow30NobodySpendsTheLeaseOfAKilledProcess: until T has passed the others get the rest of the
// bucket, and the refill.
func TestRow30NobodySpendsTheLeaseOfAKilledProcess(t *testing.T) {
	testkit.LongOnly(t)
	t.Parallel()
	// Given a process that held half of the burst and was killed,
	f, o := newFamily(t), holds(hybrid.PerSecond(100), 50, 1500*time.Millisecond)
	victim, h := f.holder(o)
	victim.kill()
	// when others take all they can get, once there was time for the rest of the bucket to fill,
	a, b := f.limiter(o).Key(key), f.limiter(o).Key(key)
	past := func(d time.Duration) bool { // d is past since the grant, by the server's clock
		s := f.state(key)
		return !s.Exists || s.ServerTime >= h.GrantedAt+d.Microseconds()
	}
	testkit.Eventually(t, "two thirds of T", func() bool { return past(o.ttl() * 2 / 3) })
	early := 0 // admissions that certainly came before the end of the lease
	for !past(o.ttl()) {
		early = len(f.spans())
		f.stamp(a.Allow)
		f.stamp(b.Allow)
	}
	// then until T has passed they get the tokens that it did not hold, and no more,
	w := worstOf(t, f.spans()[:early], o.Limit, o.Limit.Capacity()-h.Held)
	testkit.Check(t, w.ExceededBy == 0, "tokens of a lease of %d were spent before its end: %+v", h.Held, w)
	// and later no more than a central bucket would give.
	for f.stamp(a.Allow) || f.stamp(b.Allow) {
	}
	w = f.worst(t, o.Limit)
	testkit.Check(t, w.ExceededBy == 0, "%+v", w)
}

// TestRow30TheBalanceAfterAKillIsExact: with next to no refill every token can be counted. The
// killed process's holding is lost, once, and everything else is in the bucket or was admitted.
func TestRow30TheBalanceAfterAKillIsExact(t *testing.T) {
	t.Parallel()
	// Given a process that was killed while it held some tokens of a bucket that does not refill,
	f, o := newFamily(t), holds(hybrid.PerHour(1).WithBurst(1000), 200, time.Second)
	victim, h := f.holder(o)
	victim.kill()
	// when survivors take some and give back the rest,
	a, b := f.limiter(o).Key(key), f.limiter(o).Key(key)
	for range 100 {
		testkit.Must(t, f.stamp(a.Allow) && f.stamp(b.Allow), "denied")
	}
	f.shutdown()
	// and the bucket has forgotten the lease, then its level is the burst minus the tokens admitted,
	// lost with the killed process, and burnt by survivors.
	s, survivors := f.settled(), f.stats()
	want := o.Limit.Capacity() - h.Admitted - survivors.Admitted - h.Held - h.Burnt - survivors.Burnt
	testkit.Check(t, s.Levels[0] == want, "level %d, want %d; survivors %+v", s.Levels[0], want, survivors)
}

// steady is the limit of most tests of processes under load.
var steady = hybrid.PerSecond(2000).WithBurst(1000)

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

// TestRow30AFleetKeepsTheBoundWhileProcessesAreKilled: under load, each followed by a new process
// as a supervisor would start it.
func TestRow30AFleetKeepsTheBoundWhileProcessesAreKilled(t *testing.T) {
	testkit.LongOnly(t)
	t.Parallel()
	// Given a fleet under load,
	f := newFamily(t)
	o, ps := f.underLoad(steady, true)
	for i := range 2 {
		// when processes are killed and replaced, then the fleet goes on as before,
		ps[i].kill()
		ps[i] = f.children(1, o)[0]
		f.awaitMore(o.Limit.Tokens / 2)
	}
	f.finish(ps...)
	// no window exceeds the bound, and the leases of the dead are forgotten.
	w := f.worst(t, o.Limit)
	testkit.Check(t, w.ExceededBy == 0, "%+v", w)
	f.settled()
}

// TestRow29AStoppedProcessSpendsItsLeaseLateWithoutStrictExpiryOnly: a process was stopped until
// the bucket forgot its lease, and others have spent its tokens meanwhile. With StrictExpiry it
// spends nothing of it, without it at most its holding.
func TestRow29AStoppedProcessSpendsItsLeaseLateWithoutStrictExpiryOnly(t *testing.T) {
	testkit.LongOnly(t)
	each(t, map[string]bool{"strict": true, "not strict": false}, func(t *testing.T, strict bool) {
		// Given a process that holds a good part of the burst,
		f, o := newFamily(t), holds(hybrid.PerSecond(100), 50, time.Second)
		o.Policy.StrictExpiry = strict
		stopped, h := f.holder(o)
		// when it is stopped until its lease is forgotten and the bucket full again,
		stopped.stop()
		stopped.tell("spend") // when it goes on
		testkit.Eventually(t, "a full bucket", func() bool {
			s := f.state(key)
			return !s.Exists || s.Ledger == 0 && s.Levels[0] == o.Limit.Capacity()
		})
		// and goes on just after another has taken all tokens,
		o.Policy.StrictExpiry = true
		other := f.limiter(o)
		took := int64(0)
		for f.stamp(other.Key(key).Allow) {
			took++
		}
		stopped.resume()
		var late int64
		stopped.hear("spent", &late)
		r := f.finish(stopped)[0]
		// then it admits nothing of its holding, and all windows keep the bound;
		w := f.worst(t, o.Limit)
		t.Logf("held %d, spent %d late; the other took %d; a window exceeded the bound by %d", h.Held, late, took,
			w.ExceededBy)
		if strict {
			testkit.Check(t, late == 0 && w.ExceededBy == 0, "%d tokens spent after their deadline, %+v", late, w)
		} else { // late with some, at most with its holding.
			testkit.Check(t, late > 0 && max(late, w.ExceededBy) <= h.Held, "%d of %d, %+v", late, h.Held, w)
		}
		st := other.Stats() // its tokens are admitted, or burnt on a machine that stalled
		testkit.Check(t, st.Leased >= o.Limit.Capacity() && h.Held+h.Admitted <= r.Stats.Leased && r.Shutdown,
			"the other took %d of a full bucket: %+v; %+v", took, st, r)
	})
}

// TestRow29AFleetKeepsTheBoundWhileOneOfItIsStopped: the same under load, again and again.
func TestRow29AFleetKeepsTheBoundWhileOneOfItIsStopped(t *testing.T) {
	testkit.LongOnly(t)
	each(t, map[string]bool{"strict": true, "not strict": false}, func(t *testing.T, strict bool) {
		// Given a fleet under load,
		f := newFamily(t)
		o, ps := f.underLoad(steady, strict)
		for range 2 {
			// when one of it is stopped until its lease has ended, and goes on,
			ps[0].stop()
			f.outlastLeases()
			ps[0].resume()
			f.awaitMore(o.Limit.Tokens / 2)
		}
		stopped := f.finish(ps...)[0]
		// then no window exceeds the bound; without StrictExpiry, by at most the holding of the stopped
		// one.
		w, allowed := f.worst(t, o.Limit), int64(0)
		if !strict {
			allowed = stopped.MostHeld
		}
		t.Logf("the worst window exceeds the bound by %d, the stopped process held %d at most", w.ExceededBy,
			stopped.MostHeld)
		testkit.Check(t, w.ExceededBy <= allowed, "exceeded by more than %d: %+v", allowed, w)
	})
}

// TestRow32AStarvedProcessServesEveryKeyAndDoesNotSpin: a process that has one CPU, and shares it
// with goroutines that never pause and a garbage collector that never rests, still serves every
// key, makes no more calls than an undisturbed one, is silent when it is idle, and ends on
// shutdown.
func TestRow32AStarvedProcessServesEveryKeyAndDoesNotSpin(t *testing.T) {
	testkit.LongOnly(t)
	t.Parallel()
	// Given a process with one CPU,
	f := newFamily(t)
	limit := hybrid.PerSecond(200).WithBurst(1000)
	p := f.child(orders{
		Role: "starved", Limit: limit, Offered: 2 * limit.Rate(),
		Policy:      hybrid.Policy{TTL: 2 * time.Second, StartEmpty: true, MaxBatch: 40, StrictExpiry: true},
		CallTimeout: 10 * time.Second,
	}, "GOMAXPROCS=1")
	// (The burst is far larger than the refill of a long stall. At first nothing is served from it:
	// that would even out all differences.) When its keys are under load, then idle, and it shuts down
	// under load,
	var s starved
	p.hear("starved", &s)
	r := f.finish(p)[0]
	t.Logf("%+v; %+v", s, r)
	// then every key is served and none more than its limit,
	for k, n := range s.Admitted {
		testkit.Check(t, n >= enough, "key %d is starved, shares of %v", k, s.Admitted)
		testkit.Check(t, s.ExceededBy[k] == 0, "key %d exceeded its limit by %d", k, s.ExceededBy[k])
	}
	// it makes at most two calls in a Target and key,
	bound := starvedKeys * (s.Seconds*20 + 5)
	testkit.Check(t, float64(s.Calls) <= bound, "%d calls, at most %.0f are due", s.Calls, bound)
	// it has its scheduler, its connections and the batches under way, and no pile of goroutines,
	testkit.Check(t, s.Goroutines <= 30, "%d goroutines beside those of the load", s.Goroutines)
	// it does nothing when it is idle,
	testkit.Check(t, s.IdleCalls == 0 && s.IdleCPUSeconds <= 0.05*s.IdleSeconds, "not idle: %+v", s)
	// and it leaves nothing behind.
	testkit.Check(t, r.Shutdown && r.Stats.Held == 0, "after Shutdown: %+v", r)
}

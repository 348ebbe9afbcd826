package faults

import (
	"slices"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

func TestRow27AServerClockAnHourAheadIsOneRefillToTheCap(t *testing.T) {
	for _, c := range []struct {
		name  string
		limit hybrid.Limit
		extra int64 // min(B, R*d)
	}{
		{"less than it takes to fill", hybrid.PerHour(100).WithBurst(400), 100},
		{"more than it takes to fill", hybrid.PerHour(100).WithBurst(50), 50},
	} {
		t.Run(c.name, func(t *testing.T) {
			// Given a bucket that two processes have used up,
			server, clock := startWithClock(t)
			f := server.fleet(2, patient(c.limit, denying))
			f.drain(0, key)
			f.drain(1, key)
			// when the clock jumps ahead,
			clock.step(time.Hour)
			// then the refill of that time is there once, up to the burst. (A denied process asks again
			// within a T; a new process asks at once.)
			more := server.fleet(1, patient(c.limit, denying))
			got := more.drain(0, key)
			testkit.Check(t, got <= c.extra+f.refilled(), "%d admitted, at most %d are allowed", got, c.extra)
			f.checkBound(key, c.limit, 0)
		})
	}
}

func TestRow27AServerClockAnHourAheadUnderLoadCostsAtMostOneBurst(t *testing.T) {
	testkit.LongOnly(t)
	// Given four processes that ask for more than the rate,
	server, clock := startWithClock(t)
	f, load := server.saturated(4)
	// when the server's clock jumps an hour ahead: the bucket fills, or Redis takes it for expired,
	clock.step(time.Hour)
	f.awaitLeased(busy.Tokens)
	load.stop()
	// then no window exceeds the promise by more than one burst and the tokens held by then.
	f.checkBound(key, busy, busy.Burst+busy.Burst)
}

func TestRow28AServerClockAnHourBackNeitherStallsNorMints(t *testing.T) {
	testkit.LongOnly(t)
	// Given four processes that ask for more than the rate,
	server, clock := startWithClock(t)
	f, load := server.keeping(4)
	for _, back := range []time.Duration{time.Hour, 100 * time.Millisecond, 24 * time.Hour} {
		before, clockBefore := server.raw(), server.time()
		// when the server's clock is set back,
		clock.step(-back)
		// then the bucket counts from the new time: tokens flow again, long before the clock is where it
		// was, and the bucket is not taken for lost,
		f.awaitLeased(busy.Tokens)
		after := server.raw()
		testkit.Check(t, after.epoch == before.epoch, "%v back: %+v, %+v", back, before, after)
		testkit.Must(t, back < time.Hour || server.time().Before(clockBefore), "%v back: it has caught up", back)
	}
	load.stop()
	// and no window has more than without all that.
	f.checkBound(key, busy, 0)
}

// keeping starts a fleet under load whose bucket Redis keeps through any stall, as it starts empty.
func (s *site) keeping(size int) (*fleet, *load) {
	s.t.Helper()
	policy := strict
	policy.StartEmpty = true
	f := s.fleet(size, with(busy, policy))
	load := f.load(key, 6*int(busy.Tokens)/size)
	f.warm()
	return f, load
}

// TestRow28ALevelStaysWhenTheClockGoesBack counts tokens: a clock that goes back adds none and
// removes none.
func TestRow28ALevelStaysWhenTheClockGoesBack(t *testing.T) {
	testkit.LongOnly(t)
	// Given a bucket of which about 60 are left (the machine may stand still for longer than a lease
	// lasts),
	server, clock := startWithClock(t)
	f := server.fleet(2, patient(hourly, denying))
	f.spend(0, key, hourly.Tokens-60)
	testkit.Eventually(t, "nothing held", func() bool { return f.stats().Held == 0 })
	left := f.settled().Levels[0]
	found := left + f.stats().Burnt
	testkit.Must(t, found >= 60 && found <= 60+f.refilled(), "%d left: %+v", left, f.stats())
	// when the clock goes back an hour, in which 100 tokens would flow,
	clock.step(-time.Hour)
	// then another process finds all of them, and (W) no more.
	f.takeAll(1, left)
	f.checkBound(key, hourly, 0)
}

// oldLeasesEnd returns when leases of before the present have ended, and when that was.
func (f *fleet) oldLeasesEnd() time.Duration {
	f.t.Helper()
	longest := f.state(key).Config.TTL
	for _, tap := range f.taps {
		longest = max(longest, tap.counts().grant.LeaseMax)
	}
	until := f.now() + longest
	testkit.Eventually(f.t, "the end of the old leases", func() bool { return f.now() > until })
	return f.now()
}

// TestRow33LimitsChangedWithLeasesOut: until a T after the change the larger of the two limits
// holds, from then on the new one, exactly: leases of the old one are not renewed, so they have
// ended.
func TestRow33LimitsChangedWithLeasesOut(t *testing.T) {
	testkit.LongOnly(t)
	large, small := hybrid.PerSecond(1000), hybrid.PerSecond(50).WithBurst(20)
	type story struct{ from, to hybrid.Limit }
	each(t, map[string]story{"lowered": {large, small},
		"raised": {small, large}}, func(t *testing.T, c story) {
		// Given four processes with leases under the old limit,
		f := start(t).fleet(4, with(c.from, strict))
		load := f.load(key, 2000)
		f.warm()
		testkit.Eventually(t, "admissions", func() bool { return f.stats().Admitted > c.from.Burst+100 })
		// when one of them sets the new one,
		testkit.NoErr(t, f.limiters[0].SetLimits(t.Context(), key, c.to))
		then := f.oldLeasesEnd()
		f.awaitAdmitted(key, 50)
		load.stop()
		// then each bound holds in its time.
		f.checkBoundIn(key, large, 0, 0, then)
		f.checkBoundIn(key, c.to, 0, then, f.now())
		in := f.state(key).Config
		testkit.Check(t, in.Limits[0] == c.to && in.Version.Revision == 1, "%+v", in)
	})
}

// TestRow34RollingDeployWithTwoConfigurations: the higher version wins at every process that has
// called since, whichever of them called last, and stays when the old processes restart.
func TestRow34RollingDeployWithTwoConfigurations(t *testing.T) {
	testkit.LongOnly(t)
	t.Parallel()
	server, tape := start(t), &tape{}
	fleet := func(version int64, limit hybrid.Limit) *fleet {
		cfg := with(limit, strict)
		// Redis keeps a bucket that starts empty, and its version, through any stall.
		cfg.Version, cfg.CallTimeout, cfg.Policy.StartEmpty = version, time.Minute, true
		cfg.Policy.TTL = 400 * time.Millisecond
		f := server.fleet(2, cfg)
		tape.record(f)
		return f
	}
	before, after := hybrid.PerSecond(500), hybrid.PerSecond(100).WithBurst(50)
	// Given processes of the old version at work,
	old := fleet(1, before)
	old.load(key, 2000)
	testkit.Eventually(t, "admissions", func() bool { return old.stats().Admitted > 600 })
	// when the first process of the new version calls, and both go on,
	next := fleet(2, after)
	next.load(key, 2000)
	testkit.Eventually(t, "version 2", func() bool { return old.state(key).Config.Version.Deploy == 2 })
	then := old.oldLeasesEnd()
	old.awaitAdmitted(key, 20)
	next.awaitAdmitted(key, 20)
	follows := func(l *hybrid.Limiter) bool {
		r, err := l.Take(t.Context(), key, 1)
		return err == nil && r.Limit == after
	}
	testkit.Eventually(t, "the new limits at every process", func() bool {
		all := slices.Concat(old.limiters, next.limiters)
		return !slices.ContainsFunc(all, func(l *hybrid.Limiter) bool { return !follows(l) })
	})
	// and an old process starts once more,
	again := fleet(1, before)
	testkit.Eventually(t, "an answer for it", func() bool { return follows(again.limiters[0]) })
	// then nothing goes back to the old version.
	in := old.state(key).Config
	testkit.Check(t, in.Version.Deploy == 2 && in.Limits[0] == after, "%+v", in)
	// Each fleet alone is within the larger bound before and the smaller one after.
	old.checkBoundIn(key, before, 0, 0, then)
	old.checkBoundIn(key, after, 0, then, old.now())
	// Redis answered every call like the reference.
	old.shutdown()
	next.shutdown()
	again.shutdown()
	tape.replay(t)
	testkit.Check(t, again.stats().Conflicts == 0, "an older version is not a conflict: %+v", again.stats())
}

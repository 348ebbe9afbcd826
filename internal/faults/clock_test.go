package faults

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

func TestRow27AServerClockAnHourAheadIsOneRefillToTheCap(t *testing.T) {
	for name, c := range map[string]struct {
		limit hybrid.Limit
		extra int64 // min(B, R*d)
	}{
		"less than it takes to fill": {hybrid.PerHour(100).WithBurst(400), 100},
		"more than it takes to fill": {hybrid.PerHour(100).WithBurst(50), 50},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// Given a bucket that two processes have used up,
				f, r := stepped(t, 2, with(c.limit, denying))
				f.drain(0, key)
				f.drain(1, key)
				// when the clock jumps ahead,
				r.clock.by.Store(int64(time.Hour))
				// then the refill of that time is there once, up to the burst. (A denied process asks again
				// within a T; a new process asks at once.)
				f.add(f.cfg, r)
				got := f.drain(2, key)
				testkit.Check(t, got == c.extra, "%d admitted, want %d", got, c.extra)
				f.checkBound(key, c.limit, c.extra)
				f.close()
			})
		})
	}
}

// TestRow28ALevelStaysWhenTheClockGoesBack counts tokens: a clock that goes back adds none and removes none.
func TestRow28ALevelStaysWhenTheClockGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Given a bucket of which 60 are left,
		f, r := stepped(t, 2, with(hourly, denying))
		f.spend(0, key, hourly.Tokens-60)
		time.Sleep(time.Second)
		testkit.Must(t, f.stats().Held == 0, "%+v", f.stats())
		// when the clock goes back an hour, in which 100 tokens would flow,
		r.clock.by.Store(int64(-time.Hour))
		// then another process finds all of them, and (W) no more.
		got := f.drain(1, key)
		testkit.Check(t, got == 60, "%d admitted, want 60", got)
		f.checkBound(key, hourly, 0)
		f.close()
	})
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

// TestRow33LimitsChangedWithLeasesOut: until a TTL after the change the larger of two limits of one kind
// holds, and then the new one, exactly: leases of the old one are not renewed, so they have ended.
func TestRow33LimitsChangedWithLeasesOut(t *testing.T) {
	testkit.LongOnly(t)
	large, small := hybrid.PerSecond(1000), hybrid.PerSecond(50).WithBurst(20)
	fewer, longer := lease.Sliding(200, window.Per), lease.Sliding(window.Tokens, 2*window.Per)
	type story struct{ from, to, until hybrid.Limit }
	each(t, map[string]story{
		"lowered": {large, small, large}, "raised": {small, large, large},
		"a window, lowered": {window, fewer, window}, "a window, raised": {fewer, window, window},
		"a longer window": {from: window, to: longer}, "from a window to a bucket": {from: window, to: small},
	}, func(t *testing.T, c story) {
		// Given four processes with leases under the old limit, when one of them sets the new one,
		f := start(t).fleet(4, with(c.from, strict))
		load := f.load(key, 1000)
		f.awaitAdmitted(key, c.from.Capacity()+50)
		changed := f.now()
		testkit.NoErr(t, f.limiters[0].SetLimits(t.Context(), key, c.to))
		then := f.oldLeasesEnd()
		f.awaitAdmitted(key, c.to.Capacity()+50)
		load.stop()
		// then each bound holds in its time.
		f.checkBoundIn(key, c.from, 0, 0, changed)
		if c.until != (hybrid.Limit{}) {
			f.checkBoundIn(key, c.until, 0, 0, then)
		}
		f.checkBoundIn(key, c.to, 0, then, f.now())
		in := f.state(key).Config
		testkit.Check(t, in.Limits[0] == c.to && in.Version.Revision == 1, "%+v", in)
	})
}

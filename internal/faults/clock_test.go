package faults

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

func TestRow28AServerClockAnHourBackNeitherStallsNorMints(t *testing.T) {
	// Given four processes that ask for more than the rate,
	server, clock := startWithClock(t)
	rdb := client(t, server.Addr)
	f, load := saturated(t, 4, server.Addr)
	for _, back := range []time.Duration{time.Hour, 100 * time.Millisecond, 24 * time.Hour} {
		before, clockBefore := rawOf(t, rdb, key), serverTime(t, rdb)
		// when the server's clock is set back,
		clock.step(t, -back)
		// then the bucket counts from the new time: the rate is there again, long before the clock is
		// where it was, and the bucket is not taken for lost,
		took := f.CheckRecovers(key, busy.Tokens)
		t.Logf("%v back: the second at the rate began %v after", back, took.After)
		if after := rawOf(t, rdb, key); after.epoch != before.epoch {
			t.Errorf("%v back: %+v, %+v", back, before, after)
		}
		if back >= time.Hour && !serverTime(t, rdb).Before(clockBefore) {
			t.Fatalf("%v back: it took until the clock had caught up", back)
		}
	}
	load.Stop()
	// and no window has more than without all that.
	f.CheckBound(key, busy, 0)
}

// TestRow28ALevelStaysWhenTheClockGoesBack counts: a clock that goes back gives nothing and takes
// nothing.
func TestRow28ALevelStaysWhenTheClockGoesBack(t *testing.T) {
	// Given a bucket of which about 60 are left (the machine may stand still for longer than a lease
	// lasts),
	server, clock := startWithClock(t)
	f := NewFleet(t, Options{Size: 2, Addr: server.Addr, Config: patient(hourly, denying)})
	f.Spend(0, key, hourly.Tokens-60)
	testkit.Eventually(t, "nothing leased", func() bool {
		return f.Stats().Held == 0 &&
			f.State(key).Ledger == 0
	})
	left := f.State(key).Levels[0]
	if left+f.Stats().Burnt != 60 {
		t.Fatalf("%d left: %+v", left, f.Stats())
	}
	// when the clock goes back an hour, in which 100 tokens would flow,
	clock.step(t, -time.Hour)
	// then another process finds all of them, and (W) no more.
	f.TakeAll(1, left)
	f.CheckBound(key, hourly, 0)
}

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
			f := NewFleet(t, Options{Size: 2, Addr: server.Addr, Config: patient(c.limit, denying)})
			f.Drain(0, key)
			f.Drain(1, key)
			// when the clock jumps ahead,
			clock.step(t, time.Hour)
			// then what would have flowed in that time is there once, as far as it fits. (Who was denied
			// asks again within a T; a process that has just started asks at once.)
			more := NewFleet(t, Options{Size: 1, Addr: server.Addr, Config: patient(c.limit, denying)})
			got := more.Drain(0, key)
			t.Logf("%d admitted after the clock went an hour ahead", got)
			if refilled := int64(f.Now() / (c.limit.Per / time.Duration(c.limit.Tokens))); got > c.extra+refilled {
				t.Errorf("%d admitted, at most %d are allowed", got, c.extra)
			}
			f.CheckBound(key, c.limit, 0)
		})
	}
}

func TestRow27AServerClockAnHourAheadUnderLoadCostsAtMostOneBurst(t *testing.T) {
	// Given four processes that ask for more than the rate,
	server, clock := startWithClock(t)
	f, load := saturated(t, 4, server.Addr)
	// when the server's clock jumps an hour ahead: the bucket fills, or Redis takes it for expired,
	clock.step(t, time.Hour)
	took := f.AwaitRecovery(busy.Tokens)
	load.Stop()
	// then no window has more than one burst, and what was held by then, beyond the promise.
	t.Logf("the second at the rate began %v after; %d admitted in excess", took.After,
		f.Audit(key, busy, 0).ExceededBy)
	f.CheckBound(key, busy, busy.Burst+busy.Burst)
}

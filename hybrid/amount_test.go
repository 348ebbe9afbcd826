package hybrid_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// A bucket that cannot grant a large request may still grant a small one.
func TestALargeRequestBesideSmallOnes(t *testing.T) {
	bubbleOf(t, "one call serves each of those that wait for it and fit", func(t *world) {
		cfg := of(hybrid.PerHour(1).WithBurst(40))
		l0, l := t.start(cfg), t.start(cfg)
		must(t, l0.AllowN("k", 10), "denied")
		l0.Shutdown(t.Context())
		hold := make(chan struct{})
		t.every(verdict{late: hold})
		var got [3]bool
		wait := inTurn(3, func(i int) { got[i] = l.AllowN("k", []int64{1, 40, 1}[i]) })
		close(hold)
		wait()
		check(t, got == [3]bool{true, false, true}, "%v; %+v", got, l.Stats())
	})
	bubbleOf(t, "Allow behind a large wait makes no calls, and does not overtake it", func(t *world) {
		l := t.process(hybrid.PerSecond(10).WithBurst(100))
		l.AllowN("k", 50)
		time.Sleep(500 * time.Millisecond)
		wait := background(func() { noErr(t, l.WaitN(t.Context(), "k", 100)) })
		time.Sleep(500 * time.Millisecond)
		_, calls := t.during(func() {
			n := admits(2000, time.Millisecond, func() bool { return l.Allow("k") })
			check(t, n == 0, "Allow overtook a wait %d times", n)
		})
		check(t, calls <= 10, "%d lease calls in 2 s", calls)
		wait()
	})
}

// After a large request fell short, and while it waits for its call, a smaller one is served as
// soon as its own tokens are there.
func TestTheDelayOfALargeRequestIsNotThatOfASmallOne(t *testing.T) {
	short := func(t *world) *hybrid.Limiter {
		l := t.drained(of(hybrid.PerSecond(100)))
		time.Sleep(100 * time.Millisecond)
		must(t, !l.AllowN("k", 100), "100 of 10")
		return l
	}
	bubbleOf(t, "Wait after a denial", func(t *world) {
		d, err := waitFor(t, short(t), 250*time.Millisecond, 20)
		check(t, err == nil && d <= 110*time.Millisecond, "20 tokens are there in 100 ms: %v after %v", err, d)
	})
	bubbleOf(t, "Take after a denial", func(t *world) {
		l := short(t)
		time.Sleep(150 * time.Millisecond)
		r, err := l.Take(t.Context(), "k", 20)
		check(t, err == nil && r.OK, "the bucket has 25: %+v, %v", r, err)
	})
	bubbleOf(t, "TryAllow after denials", func(t *world) {
		l := t.start(by(hybrid.Policy{TTL: time.Minute}, hybrid.PerHour(1).WithBurst(100)))
		l.AllowN("k", 50)
		time.Sleep(10 * time.Second)
		for range 2 {
			l.AllowN("k", 100)
			synctest.Wait()
		}
		t.soon(time.Second, func() bool { return l.TryAllow("k") })
	})
	bubbleOf(t, "Wait after a cancelled wait", func(t *world) {
		l := t.drained(by(hybrid.Policy{TTL: time.Minute}, hybrid.PerSecond(10).WithBurst(1000)))
		ctx, cancel := context.WithCancel(t.Context())
		wait := background(func() { _ = l.WaitN(ctx, "k", 1000) })
		time.Sleep(time.Second)
		cancel()
		wait()
		t.lasts(0, 2*time.Second, func() { noErr(t, l.WaitN(t.Context(), "k", 20)) }) // of 10/s
	})
	bubbleOf(t, "Allow during the call", func(t *world) {
		l := t.process(hybrid.PerSecond(10).WithBurst(100))
		l.AllowN("k", 50)
		time.Sleep(500 * time.Millisecond)
		t.every(verdict{delay: 10 * time.Millisecond})
		wait := background(func() { l.AllowN("k", 100) })
		time.Sleep(5 * time.Millisecond)
		check(t, l.Allow("k"), "one token was denied, the bucket has %d", t.state("k").Levels[0])
		wait()
	})
}

// A request above the burst does not look like demand on a key that is in use.
func TestAnOversizedRequestIsNotDemand(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.process(hybrid.PerSecond(1000))
		for range 1000 {
			l.Allow("k")
			l.AllowN("k", math.MaxInt64)
			time.Sleep(10 * time.Millisecond)
			r := t.last()
			must(t, r.Want <= 120, "100 requests a second asked for %d tokens", r.Want)
		}
		check(t, l.Stats().Denied == 0 && l.Stats().Invalid == 1000, "%+v", l.Stats())
	})
}

// x/time/rate and Bucket4j: what is turned down, by whichever verb, takes nothing with it.
// Redisson: more permits than the rate are an exception and not a wait.
func TestPeerWhatIsTurnedDownTakesNothing(t *testing.T) {
	everywhere(t, func(t *world) {
		l := t.process(hourly)
		turnedDown := func(n int64, take, wait error) {
			t.Helper()
			r, err := l.Take(t.Context(), "k", n)
			check(t, errors.Is(err, take) && !r.OK && !l.AllowN("k", n), "%d: %+v, %v", n, r, err)
			isErr(t, l.WaitN(within(t, time.Minute), "k", n), wait)
			isErr(t, l.Wait(ended(), "k"), context.Canceled)
		}
		// A refused request of an unused key creates nothing;
		turnedDown(11, hybrid.ErrExceedsBurst, hybrid.ErrExceedsBurst)
		check(t, !t.remembers("k"), "the store remembers it")
		// of 6 tokens of 10 all are still there.
		must(t, l.AllowN("k", 4), "denied")
		for range 10 {
			turnedDown(11, hybrid.ErrExceedsBurst, hybrid.ErrExceedsBurst)
			turnedDown(7, nil, hybrid.ErrWouldExceedDeadline)
		}
		must(t, l.AllowN("k", 1), "denied")
		equal(t, t.left("k", hourly), 5, "left")
		equal(t, l.Stats().Admitted, 5, "admitted")
	})
}

// redis_rate: AllowN of 0 costs nothing. x/time/rate: it is true also where nothing is left. The
// answer says what is known of the key. Redisson and Bucket4j: whatever is done to a limiter that
// does not exist, it does not exist afterwards.
func TestPeerZeroCostsNothingAndCreatesNothing(t *testing.T) {
	everywhere(t, func(t *world) {
		l := t.process(hourly)
		nothing := func(key string, want hybrid.Result) {
			want.Key = key
			t.Helper()
			_, calls := t.during(func() {
				for _, take := range []func() (hybrid.Result, error){
					func() (hybrid.Result, error) { return l.Take(t.Context(), key, 0) },
					func() (hybrid.Result, error) { return l.Key(key).Take(t.Context(), 0) },
				} {
					r, err := take()
					r.ResetAfter = r.ResetAfter.Round(time.Minute) // settling lets time pass
					check(t, err == nil && (r == want || !t.virtual() && r.OK), "Take: %+v, %v, want %+v", r, err, want)
				}
				noErr(t, l.WaitN(t.Context(), key, 0))
				check(t, l.AllowN(key, 0) && l.Key(key).AllowN(0), "AllowN: denied")
			})
			check(t, calls == 0 || !t.virtual(), "%d calls", calls)
		}
		// A refund of an unused key is dropped;
		nothing("new", hybrid.Result{OK: true})
		noErr(t, l.Reset(t.Context(), "new"))
		l.Refund("new", 5)
		l.Key("new").Refund(5)
		limitsAre(t, l, "new", hourly)
		must(t, l.Allow("other"), "denied") // what might still be on its way has its turn
		check(t, l.Stats().Keys == 1 && t.callsFor("new") == 0 && !t.remembers("new"), "%+v", l.Stats())
		// of a key in use it costs nothing;
		noErr(t, l.WaitN(t.Context(), "k", 4)) // which brings it into use, as a mere draw does not
		nothing("k", hybrid.Result{OK: true, Limit: hourly, Remaining: 6, ResetAfter: 4 * time.Hour})
		equal(t, t.settled("k"), 6, "of 6 left")
		// of an empty one they are had.
		drain(l, "k")
		nothing("k", hybrid.Result{OK: true, Limit: hourly, ResetAfter: 10 * time.Hour})
		equal(t, l.Stats().Admitted, 11, "admitted")
	})
}

// Redisson's release and Bucket4j's addTokens stop at the capacity. (Redisson once counted a
// release twice, #7329.) So here, and a key at rest is woken.
func TestPeerRefundsComeBackOnceAndAreCappedAtBurst(t *testing.T) {
	everywhere(t, func(t *world) {
		for _, pause := range []time.Duration{0, 50 * time.Millisecond, ttl, 10 * ttl, time.Minute} {
			if pause > 0 && !t.virtual() {
				break
			}
			l, key := t.process(hourly), pause.String()
			must(t, l.AllowN(key, 8), "denied")
			time.Sleep(pause)
			must(t, pause < 10*ttl || l.Stats().InUse == 0, "not at rest after %v", pause)
			l.Refund(key, 2)
			l.Key(key).Refund(3)
			// The bucket has them again, and not more of them after another report.
			t.eventually("7 in the bucket", key, func(level int64) bool { return level >= 7 })
			must(t, l.Allow(key), "denied")
			equal(t, t.settled(key), 6, "in the bucket after 5 came back and 1 was taken")
			equal(t, l.Stats().Refunded, 5, "refunded")
			// Of more than were ever taken there is one burst.
			for range 5 {
				l.Refund(key, 1000)
			}
			t.eventually("a full bucket", key, func(level int64) bool { return level >= 10 })
			equal(t, t.settled(key), 10, "in the bucket after a refund of 5000, the burst is 10")
			equal(t, t.left(key, hourly), 10, "were taken after a refund of 5000, the burst is 10")
		}
	})
}

// A refund that a failed call did not take is brought as soon as the store is back, and does not
// keep its key for ever: the table has room again.
func TestARefundSurvivesAnOutage(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(hybrid.Config{Limits: limits(hourly), KeysMax: 1})
		l.AllowN("k", 8)
		time.Sleep(time.Minute)
		t.every(away)
		l.Refund("k", 5)
		time.Sleep(2 * time.Second)
		t.setJudge(nil)
		time.Sleep(time.Hour)
		t.has("k", 8, 0) // 2 + 1 + 5
		time.Sleep(100 * 24 * time.Hour)
		equal(t, l.Stats().Keys, 0, "keys in the table after 100 idle days")
		_, err := l.Take(t.Context(), "d", 1)
		noErr(t, err)
	})
}

// A reset fills the bucket up to the tokens that other processes hold. They learn of it within a TTL.
func TestAResetIsForAll(t *testing.T) {
	inVirtualTime(t, func(t *world) {
		// Given another process that holds 4 of 10, having spent 1 of 5,
		cfg := by(hybrid.Policy{MinBatch: 5}, hourly)
		other, l := t.start(cfg), t.start(cfg)
		must(t, other.Allow("k") && other.Stats().Held == 4, "%+v", other.Stats())
		// when a process resets the bucket, then it can have what the other's lease leaves.
		noErr(t, l.Reset(t.Context(), "k"))
		equal(t, drain(l, "k"), 6, "of 10 were admitted, another process holds 4")
		n := drain(other, "k")
		check(t, n >= 4 && !other.Allow("k"), "%d of the 4 held", n)
		noErr(t, l.Reset(t.Context(), "k"))
		check(t, l.Allow("k"), "denied after a reset")
		time.Sleep(afterTTL)
		check(t, other.Allow("k"), "another process is denied a TTL after the reset")
	})
}

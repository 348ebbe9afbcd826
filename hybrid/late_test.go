package hybrid_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// asks asks for a token as often, and counts what is admitted.
func asks(l *hybrid.Limiter, key string, d, every time.Duration) int {
	return admits(int(d/every), every, func() bool { return l.Allow(key) })
}

// A window counts what an outage admitted when it was admitted, of all kinds of keys: one that is in use, and
// one of which nothing was heard before the outage.
func TestAnOutageOwesOnlyWhatItsWindowsStillCount(t *testing.T) {
	for _, limit := range limits(hybrid.Sliding(100, time.Minute), hybrid.Calendar(100, time.Minute, 0),
		hybrid.PerMinute(100)) {
		for _, key := range []string{"known", "unheard"} {
			bubbleOf(t, limit.String()+" "+key, func(t *world) {
				// given 120 requests a minute, and an outage of ten minutes
				l := t.process(limit)
				asks(l, "known", 2*time.Minute, time.Second/2)
				t.every(away)
				without := asks(l, key, 10*time.Minute, time.Second/2)
				check(t, without > 500, "%d admitted without the store", without)
				// when the store is back
				t.every(verdict{})
				after := asks(l, key, time.Minute, time.Second/2)
				// then the next minute has about what it would have
				check(t, after >= 90 && after <= 120, "%d admitted in the minute after the outage", after)
			})
		}
	}
}

// A quota owes the day in which it was used.
func TestAQuotaOwesTheDayOfItsUse(t *testing.T) {
	for _, key := range []string{"known", "unheard"} {
		bubbleOf(t, key, func(t *world) { // whose time begins at midnight
			l := t.process(hybrid.Calendar(1000, 24*time.Hour, 0))
			time.Sleep(22*time.Hour + 59*time.Minute)
			asks(l, "known", time.Minute, time.Second)
			// given an outage from 23:00 to 00:30, with requests until 23:59:50 and from 00:10 to 00:20
			t.every(away)
			yesterday := asks(l, key, 59*time.Minute+50*time.Second, 5*time.Second)
			time.Sleep(10*time.Minute + 10*time.Second)
			today := asks(l, key, 10*time.Minute, time.Minute)
			time.Sleep(10 * time.Minute)
			t.every(verdict{})
			// when the store is back
			today += asks(l, key, time.Minute, time.Second)
			// then today has what today did not use
			r, err := l.Peek(t.Context(), key)
			noErr(t, err)
			check(t, yesterday > 500 && today > 60, "%d admitted yesterday, %d today", yesterday, today)
			if key == "known" {
				equal(t, r.Remaining, 1000-int64(today), "left today")
			} else { // nobody has told the process when the day ends
				check(t, r.Remaining <= 1000-int64(today) && r.Remaining >= 1000-int64(today)-int64(yesterday)/4,
					"%d are left, %d were used yesterday, %d today", r.Remaining, yesterday, today)
			}
		})
	}
}

// A settlement below the estimate credits as much as the window still counts.
func TestALateSettlementIsWorthWhatTheWindowCounts(t *testing.T) {
	for _, limit := range limits(hybrid.Sliding(1000, time.Minute), hybrid.Calendar(1000, time.Minute, 0)) {
		for _, stream := range []time.Duration{10 * time.Second, 80 * time.Second} {
			bubbleOf(t, limit.String()+" "+stream.String(), func(t *world) {
				// given 900 that were reserved, and then 100 used
				l := t.process(limit)
				long, err := l.Key("tenant").Reserve(t.Context(), 900)
				must(t, err == nil && long.OK(), "%v", err)
				time.Sleep(stream)
				hundreds := func() int { return 100 * admits(20, 0, func() bool { return l.AllowN("tenant", 100) }) }
				used := hundreds()
				noErr(t, long.Settle(100))
				time.Sleep(time.Second)
				// when all that there is is used
				used += hundreds()
				// then the window has no more than 1000
				want := 1000
				if stream < time.Minute {
					want = 900
				}
				equal(t, used, want, "used within two seconds")
			})
		}
	}
}

// A store that comes back without its data grants again soon. In an outage of D, leases may have become longer by
// D/8 at most.
func TestAnOutageThatLosesTheDataEndsSoon(t *testing.T) {
	for _, limit := range limits(hybrid.PerMinute(1000), hybrid.Calendar(1000, 24*time.Hour, 0),
		hybrid.Sliding(1000, time.Minute)) {
		for _, outage := range []time.Duration{2 * time.Second, 8 * time.Second, 15 * time.Second} {
			bubbleOf(t, limit.String()+" "+outage.String(), func(t *world) {
				// given a key in use, and an outage
				l := t.start(by(denying, limit))
				asks(l, "k", time.Second, 10*time.Millisecond)
				t.every(away)
				asks(l, "k", outage, 100*time.Millisecond)
				// when the store is back without its data
				t.loseAll()
				t.every(verdict{})
				granted := took(func() {
					for !l.Allow("k") {
						time.Sleep(10 * time.Millisecond)
					}
				})
				// then it grants after LeaseMax, an eighth of the outage, and a probe
				most := 2*ttl + outage/8 + outage/100 + 500*time.Millisecond
				t.Logf("%v after an outage of %v", granted, outage)
				check(t, granted <= most, "granted %v after an outage of %v, want at most %v", granted, outage, most)
			})
		}
	}
}

// The probe that ends an outage goes out within a TTL of the last one, though the key is polled before then.
func TestAnOutageEndsWithinATTL(t *testing.T) {
	for i := range 50 {
		bubbleOf(t, strconv.Itoa(i), func(t *world) {
			// given a key in use, and an outage
			l := t.start(by(denying, hybrid.PerMinute(1000)))
			asks(l, "k", time.Second, 10*time.Millisecond)
			t.every(away)
			asks(l, "k", 2*time.Second, 100*time.Millisecond)
			// when the store is back
			t.every(verdict{})
			_, calls := t.during(func() { asks(l, "k", ttl+20*time.Millisecond, 10*time.Millisecond) })
			// then it has had a call
			check(t, calls > 0, "no call for %v", ttl)
		})
	}
}

// A process drops its refunds of a bucket that it has forgotten: nothing says then whether the bucket still counts
// them.
func TestARefundEndsWithWhatWasHeard(t *testing.T) {
	for _, limit := range limits(hybrid.Sliding(1000, time.Minute), hybrid.PerMinute(1000)) {
		bubbleOf(t, limit.String(), func(t *world) {
			// given 900 that were reserved, and settled in an outage that outlasts all that was heard
			l := t.start(by(denying, limit))
			r, err := l.Key("k").Reserve(t.Context(), 900)
			must(t, err == nil && r.OK(), "%v", err)
			time.Sleep(time.Second)
			t.every(away)
			asks(l, "k", time.Second, 100*time.Millisecond)
			noErr(t, r.Settle(100))
			time.Sleep(5 * time.Minute)
			// when the store is back, with another bucket of the key
			t.every(verdict{})
			other := t.start(by(denying, limit))
			used := 100 * admits(20, 0, func() bool { return other.AllowN("k", 100) })
			for range 50 {
				if l.AllowN("k", 100) {
					used += 100
				}
				time.Sleep(20 * time.Millisecond)
			}
			// then it has no more than its own
			check(t, used >= 900 && used <= 1000, "%d used", used)
		})
	}
}

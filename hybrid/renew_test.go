package hybrid_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// A key with a steady demand below its limit is renewed before it runs dry: nobody waits and nobody
// is denied, at about one call per Target. A process that stops asking gives everything back within
// a few Targets, and is silent from then on.
func TestAWarmKeyIsRenewedInTheBackground(t *testing.T) {
	for _, c := range []struct {
		limit hybrid.Limit
		gap   time.Duration
	}{
		{hybrid.PerSecond(1000), 1250 * time.Microsecond},
		{hybrid.PerSecond(1000), 2 * time.Millisecond},
		{hybrid.PerSecond(10000), 125 * time.Microsecond},
		{hybrid.PerMinute(60000).WithBurst(2000), 5 * time.Millisecond},
	} {
		bubbleOf(t, c.limit.String()+" every "+c.gap.String(), func(t *world) {
			t.every(verdict{delay: time.Millisecond})
			l := t.process(c.limit)
			k := l.Key("k")
			ask := func(d time.Duration) (denied, waited int) {
				next := time.Now() // requests come when they come, however long the last one took
				for end := next.Add(d); next.Before(end); next = next.Add(c.gap) {
					time.Sleep(time.Until(next))
					ok := false
					if took(func() { ok = k.Allow() }) > 0 {
						waited++
					}
					if !ok {
						denied++
					}
				}
				return denied, waited
			}
			ask(time.Second)
			_, calls := t.during(func() {
				denied, waited := ask(10 * time.Second)
				check(t, denied == 0 && waited == 0, "%d denied, %d waited", denied, waited)
			})
			check(t, calls <= 200 && calls >= 20, "%d calls in ten seconds, want about 100 and at most 200", calls)
			must(t, l.Stats().Held != 0, "nothing is held")
			// Nobody asks any more.
			time.Sleep(time.Second)
			check(t, l.Stats().Held == 0 && l.Stats().Returned != 0 && l.Stats().Burnt == 0, "%+v", l.Stats())
			t.has("k", c.limit.Capacity(), 0)
			t.silent(time.Hour)
		})
	}
}

// After a shortfall requests are denied here until the delay that the bucket gave is over, but for
// one call in a T, should somebody have changed the limits; then the first request is admitted.
func TestTheDenialCacheEndsOnTime(t *testing.T) {
	slow := limits(hybrid.PerSecond(2), hybrid.PerMinute(6).WithBurst(3), hybrid.Every(10*time.Second))
	for _, limit := range slow {
		bubbleOf(t, limit, func(t *world) {
			l := t.drained(of(limit))
			period := limit.Per / time.Duration(limit.Tokens)
			const heartbeat = 300 * time.Millisecond // three quarters of a TTL
			_, before := t.counts()
			denied, from := int64(1), time.Now()
			// Nobody else is there, so there is no jitter.
			t.lasts(period, period*101/100, func() {
				for ; !l.Allow("k"); time.Sleep(period / 100) {
					denied++
					_, calls := t.counts()
					must(t, calls-before <= int(time.Since(from)/heartbeat), "%d calls", calls-before)
				}
			})
			equal(t, l.Stats().Denied, denied, "denied")
		})
	}
}

// onManualClock is a Limiter with a store of its own, both on a clock that nobody else moves.
func onManualClock(t *testing.T, cfg hybrid.Config) (*hybrid.Limiter, *clock.Manual) {
	manual := clock.NewManual(0)
	cfg.Clock = manual
	l, err := hybrid.New(lease.NewMemoryStore(manual), cfg)
	must(t, err == nil, "%v", err)
	return l, manual
}

// A clock that a test moves is all that decides: no goroutine has to have run meanwhile.
func TestAManualClockJustWorks(t *testing.T) {
	ctx := t.Context()
	for name, asks := range map[string]func(l *hybrid.Limiter, k *hybrid.Key) bool{
		"Take":     func(l *hybrid.Limiter, _ *hybrid.Key) bool { r, _ := l.Take(ctx, "k", 1); return r.OK },
		"Allow":    func(l *hybrid.Limiter, _ *hybrid.Key) bool { return l.Allow("k") },
		"AllowN":   func(l *hybrid.Limiter, _ *hybrid.Key) bool { return l.AllowN("k", 1) },
		"Key.Take": func(_ *hybrid.Limiter, k *hybrid.Key) bool { r, _ := k.Take(ctx, 1); return r.OK },
		"Key":      func(_ *hybrid.Limiter, k *hybrid.Key) bool { return k.Allow() },
		"Wait":     func(l *hybrid.Limiter, _ *hybrid.Key) bool { return l.Wait(ctx, "k") == nil },
	} {
		for _, events := range []hybrid.Events{{}, {Denied: func(string, int64) {}}} {
			t.Run(fmt.Sprint(name, " listened to: ", events.Denied != nil), func(t *testing.T) {
				for i := range 100 {
					l, manual := onManualClock(t, hybrid.Config{Limits: limits(hybrid.PerHour(10)), Events: events})
					k := l.Key("k")
					for k.Allow() {
					}
					more := admits(5, 0, func() bool { return k.Allow() || l.Allow("k") })
					must(t, more == 0, "more than the burst")
					// Not always all tokens are there: a call that the limiter makes while the clock
					// moves takes as long as that, and the lease that it brings has ended.
					manual.Advance(time.Hour)
					must(t, asks(l, k), "run %d: denied: %+v", i, l.Stats())
					l.Close()
				}
			})
		}
	}
}

// Calls that are held back for others to go along go when those before them are back: time may
// stand still.
func TestNobodyHangsWhileAManualClockStands(t *testing.T) {
	for i := range testkit.PlainOrRace(30, 10) {
		l, _ := onManualClock(t, of(hybrid.PerHour(100)))
		var admitted atomic.Int64
		wait := together(4, func(g int) {
			for j := range 600 {
				if l.Allow(fmt.Sprint("k", (j*7+g)%20)) {
					admitted.Add(1)
				}
			}
		})
		done := make(chan struct{})
		go func() { wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(time.Minute): // for ever
			t.Fatalf("run %d hangs: %+v", i, l.Stats())
		}
		must(t, admitted.Load() == 20*100, "run %d: %d of 2000 admitted: %+v", i, admitted.Load(), l.Stats())
		l.Close()
	}
}

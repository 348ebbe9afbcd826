package hybrid_test

import (
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// router is the store as one that knows from the start which node serves a key: always the same.
func (t *world) router() *nodesOf {
	c, only := t.cluster(), func(string, int) int { return 0 }
	c.moved.Store(&only)
	return c
}

// cutOff starts a process that has used "k" together with another one, and then lost the store. No
// probe is due for a while.
func (t *world) cutOff(cfg hybrid.Config) *hybrid.Limiter {
	t.Helper()
	other, l := t.startOn(t.router(), cfg), t.startOn(t.router(), cfg)
	for range 2 { // in line, as a key at rest does not report other holders
		noErr(t, other.Wait(t.Context(), "k"))
		noErr(t, l.Wait(t.Context(), "k"))
	}
	t.every(away)
	t.soon(time.Second, func() bool {
		r, err := l.Take(t.Context(), "k", 1)
		return err == nil && r.Source == hybrid.SourceFallback
	})
	for range 100 { // a TTL lies between two probes in the end
		l.TryAllow("k")
		time.Sleep(20 * time.Millisecond)
	}
	return l
}

func TestAnUnheardKeyIsDecidedWithoutAnEntry(t *testing.T) {
	for fallback, want := range map[hybrid.Fallback]int64{
		hybrid.FallbackDeny: 0, hybrid.FallbackLocalShare: 50, hybrid.FallbackAllowAll: 70,
	} {
		bubbleOf(t, fallback, func(t *world) {
			// Given a process that is cut off, and keys of which it has never heard
			cfg := by(hybrid.Policy{Fallback: fallback, TTL: time.Minute}, hybrid.PerMinute(100))
			var denials atomic.Int64
			cfg.Events.Denied = func(string, int64) { denials.Add(1) }
			l := t.cutOff(cfg)
			before := l.Stats()
			told := denials.Load()
			// when they are asked for by every verb that does not wait in line,
			for i := range 10 {
				key, admitted := fmt.Sprint("new ", i), int64(0)
				r, err := l.Take(t.Context(), key, 20)
				admitted += r.Taken
				check(t, err == nil && r.OK == (want > 0) && r.Source == hybrid.SourceFallback, "%+v, %v", r, err)
				r, err = l.TakeUpTo(t.Context(), key, 20)
				admitted += r.Taken
				noErr(t, err)
				for range 30 {
					if l.TryAllow(key) {
						admitted++
					}
				}
				// then the fallback decides,
				equal(t, admitted, want, "admitted of 70")
				r, err = l.Take(t.Context(), key, 1)
				check(t, err == nil && r.OK == (want == 70) && (r.OK || r.RetryAfter > 0) &&
					r.Limit == hybrid.PerMinute(100), "%+v, %v", r, err)
			}
			// all of it is counted, and no key is in use for it.
			st := conserved(t, l)
			asked, got := int64(710), st.Fallback-before.Fallback
			least := want*10 + want/70*10
			equal(t, got, least, "admitted")
			equal(t, st.Denied-before.Denied, asked-got, "denied")
			check(t, (denials.Load() > told) == (want < 70), "%d denials are told of", denials.Load()-told)
			equal(t, st.InUse, before.InUse, "in use")
			keys := 10
			if want == 0 {
				keys = 0
			}
			equal(t, st.Keys-before.Keys, keys, "keys")
			// TakeUpTo asks for no more than there can be, so that what it is denied can be counted.
			r, err := l.TakeUpTo(t.Context(), "all", math.MaxInt64)
			upTo := map[int64]int64{0: 0, 50: 50, 70: 100}[want]
			check(t, err == nil && r.Taken == upTo, "%+v, %v", r, err)
			equal(t, conserved(t, l).Denied-st.Denied, 100-upTo, "denied")
		})
	}
}

func TestAnUnheardKeyIsToldOnlyWithItsNextUse(t *testing.T) {
	bubble(t, func(t *world) {
		// Given keys that the fallback has served while the store was away
		l := t.cutOff(by(hybrid.Policy{TTL: time.Minute}, hybrid.PerMinute(100)))
		for i := range 10 {
			must(t, l.AllowN(fmt.Sprint("new ", i), 20), "denied")
		}
		// when it is back,
		t.every(verdict{})
		t.soon(5*time.Minute, func() bool {
			r, err := l.Take(t.Context(), "k", 1)
			return err == nil && r.Source != hybrid.SourceFallback
		})
		for range 10 { // the node is left alone no longer
			l.Allow("k")
			time.Sleep(100 * time.Millisecond)
		}
		// then none of them makes a call,
		equal(t, t.callsFor("new 0"), 0, "calls for an unused key")
		// one that is used tells what was admitted,
		l.AllowN("new 1", 1)
		time.Sleep(time.Second)
		b := t.state("new 1")
		check(t, b.Levels[0]+b.Ledger <= 90, "the bucket has %d and %d leased", b.Levels[0], b.Ledger)
		// and those that are not are forgotten when their shares are full.
		time.Sleep(2 * time.Minute)
		l.Allow("k")
		check(t, l.Stats().Keys <= 2, "%d keys are still there", l.Stats().Keys)
		must(t, l.Allow("new 2"), "denied")
		equal(t, t.last().Debt, 0, "owed")
	})
}

func TestAWindowOfAnUnheardKey(t *testing.T) {
	bubble(t, func(t *world) {
		// Given a process that is cut off, and a new key with a window
		l := t.cutOff(by(hybrid.Policy{TTL: time.Minute}, hybrid.Sliding(20, 10*time.Second)))
		bound := newMeter(hybrid.Sliding(10, 10*time.Second))
		// when it is asked for all the time, then its share is never more than its part of the window
		n := admits(30_000, time.Millisecond, func() bool { return bound.admitIf(l.TryAllow("new")) })
		bound.check(t)
		check(t, n >= 20, "%d admitted in 30 s", n)
	})
}

func TestShadowAndJoinsOfUnheardKeys(t *testing.T) {
	bubbleOf(t, "shadow", func(t *world) {
		l := t.cutOff(by(hybrid.Policy{
			Shadow: true, Fallback: hybrid.FallbackDeny, TTL: time.Minute,
		}, hybrid.PerMinute(100)))
		before := l.Stats()
		r, err := l.Take(t.Context(), "new", 3)
		check(t, err == nil && r.OK && r.Shadowed && l.Allow("new"), "%+v, %v", r, err)
		st := l.Stats()
		check(t, st.Shadowed-before.Shadowed == 4 && st.Denied == before.Denied && st.Invalid == 0, "%+v", st)
	})
	bubbleOf(t, "join", func(t *world) {
		l := t.cutOff(by(hybrid.Policy{TTL: time.Minute}, hybrid.PerMinute(100)))
		j := l.Join(l.Key("new 1"), l.Key("new 2"))
		before := l.Stats()
		n := admits(60, 0, j.Allow)
		st := conserved(t, l)
		check(t, n == 50 && st.Denied-before.Denied == 10,
			"%d of 60 admitted, %d denied", n, st.Denied-before.Denied)
	})
}

func TestAFloodOfNewKeysInAnOutageIsSmall(t *testing.T) {
	for _, fallback := range []hybrid.Fallback{
		hybrid.FallbackLocalShare, hybrid.FallbackAllowAll, hybrid.FallbackDeny,
	} {
		bubbleOf(t, fallback, func(t *world) {
			l := t.cutOff(by(hybrid.Policy{Fallback: fallback, TTL: 10 * time.Minute}, hybrid.PerHour(1000)))
			names := make([]string, 100_000)
			for i := range names {
				names[i] = fmt.Sprintf("a name of 24 bytes %05d", i)
			}
			before := heapInUse()
			for _, name := range names {
				l.Allow(name)
			}
			each := float64(heapInUse()-before) / float64(len(names))
			t.Logf("%.0f bytes a key", each)
			check(t, each <= testkit.PlainOrRace(300.0, 400), "%.0f bytes a key", each)
			runtime.KeepAlive(names)
		})
	}
}

// Honest keys are back soon after a flood of new ones: those make no calls.
func TestAFloodOfNewKeysDelaysNobodyAfterAnOutage(t *testing.T) {
	bubble(t, func(t *world) {
		// Given honest keys, and a flood of new ones while the store hangs
		l := t.startOn(t.router(), by(hybrid.Policy{}, hybrid.PerMinute(100)))
		honest := make([]string, 100)
		for i := range honest {
			honest[i] = fmt.Sprint("honest ", i)
			noErr(t, l.Wait(t.Context(), honest[i]))
		}
		t.hangs()
		for i := range 20_000 {
			l.TryAllow(fmt.Sprint("new ", i))
			l.TryAllow(honest[i%len(honest)])
			time.Sleep(500 * time.Microsecond)
		}
		inUse := l.Stats().InUse
		check(t, inUse < 1000, "%d keys are in use", inUse)
		// when it answers again, then the honest keys are back within 2.5 s,
		t.setJudge(nil)
		_, calls := t.during(func() {
			t.lasts(0, 2500*time.Millisecond, func() {
				for _, key := range honest {
					for {
						r, err := l.Take(t.Context(), key, 1)
						if noErr(t, err); r.Source != hybrid.SourceFallback {
							break
						}
						time.Sleep(time.Millisecond)
					}
				}
			})
		})
		// and next to no call is for the others.
		check(t, calls < 1000, "%d calls", calls)
	})
}

// A key that all processes draw seldom, and one that none has used, are split like any other: a draw says
// nothing of other processes, so the parts go by the weights that any key of the node names.
func TestKeysThatAreDrawnAreSplit(t *testing.T) {
	bubble(t, func(t *world) {
		// given ten processes that know of each other by one busy key, and draw another one now and then; each
		// has a key of its own, of which it hears last
		const n = 10
		r := t.router()
		ls := make([]*hybrid.Limiter, n)
		for i := range ls {
			ls[i] = t.startOn(r, of(hybrid.PerHour(1000)))
		}
		each := func(pause time.Duration, use func(i int)) {
			for i := range ls {
				use(i)
			}
			time.Sleep(pause)
		}
		for range 20 {
			each(20*time.Millisecond, func(i int) { noErr(t, ls[i].Wait(t.Context(), "busy")) })
		}
		for range 3 {
			each(time.Second, func(i int) { must(t, ls[i].Allow("seldom"), "denied") })
			for range 5 {
				each(20*time.Millisecond, func(i int) { noErr(t, ls[i].Wait(t.Context(), "busy")) })
			}
		}
		each(0, func(i int) { noErr(t, ls[i].Wait(t.Context(), fmt.Sprint("own ", i))) })
		// when the store is away
		t.every(away)
		admitted := map[string]int{}
		for _, key := range []string{"seldom", "never"} {
			each(0, func(i int) { admitted[key] += admits(1100, 0, func() bool { return ls[i].Allow(key) }) })
		}
		// then all of them together admit what is left of one bucket
		check(t, admitted["seldom"] <= 1000 && admitted["never"] <= 1000 && admitted["never"] >= 900,
			"%v", admitted)
	})
}

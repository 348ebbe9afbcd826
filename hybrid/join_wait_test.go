package hybrid_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

// rates gives each key its tokens per second, and all keys the same burst.
func rates(burst int64, of map[string]int64) hybrid.Config {
	return hybrid.Config{LimitsFor: func(key string) []hybrid.Limit {
		return limits(hybrid.PerSecond(of[key]).WithBurst(burst))
	}}
}

// orders are n random orders of names.
func orders(n int, names ...string) (all [][]string) {
	r := rand.New(rand.NewPCG(1, 1))
	for range n {
		r.Shuffle(len(names), func(i, k int) { names[i], names[k] = names[k], names[i] })
		all = append(all, slices.Clone(names))
	}
	return all
}

// A thousand requests that join the same keys in different orders all end, as soon as the scarcest key
// has its tokens: there is no deadlock.
func TestAThousandJoinsInDifferentOrdersEnd(t *testing.T) {
	for _, processes := range []int{1, 3} {
		bubbleOf(t, processes, func(t *world) {
			t.every(verdict{delay: time.Millisecond})
			ls := t.fleet(processes, rates(20, map[string]int64{"a": 200, "b": 220, "c": 1000}))
			order := orders(1000, "a", "b", "c")
			t.lasts(4900*time.Millisecond, 5*time.Second, together(1000, func(i int) {
				noErr(t, joined(ls[i%processes], order[i]...).Wait(t.Context()))
			}))
			for _, l := range ls {
				conserved(t, l)
			}
		})
	}
}

// A wait for several keys takes turns with the waits for one of them.
func TestAJoinTakesTurnsWithSingleWaiters(t *testing.T) {
	bubble(t, func(t *world) {
		// Given a key with a token a second, which is empty, and one that has enough,
		l := t.start(rates(10, map[string]int64{"scarce": 1, "plenty": 1000}))
		drain(l, "scarce")
		j := joined(l, "plenty", "scarce")
		// when requests for it alone and for both wait in turn,
		o := newOrder(10)
		inTurn(10, func(i int) {
			if i%2 == 0 {
				noErr(t, l.Wait(t.Context(), "scarce"))
			} else {
				noErr(t, j.Wait(t.Context()))
			}
			o.add(i)
		})()
		// then they are served in the order in which they came, one a second.
		o.check(t)
	})
}

// While a request waits for the key that has its tokens last, the others' tokens are there for all.
func TestAJoinThatWaitsHoldsNothing(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(bursts(map[string]int64{"a": 11, "rare": 5, "z": 11}))
		must(t, joined(l, "a", "rare", "z").Allow(), "denied")
		drain(l, "rare")
		time.Sleep(ttl / 2)
		asked := t.callsFor("a") + t.callsFor("z")
		wait := background(func() { noErr(t, joined(l, "a", "rare", "z").WaitN(t.Context(), 3)) })
		time.Sleep(ttl / 2)
		equal(t, t.callsFor("a")+t.callsFor("z"), asked, "calls for the keys that are not rare")
		time.Sleep(2*time.Hour - ttl)
		for _, key := range []string{"a", "z"} {
			check(t, drain(l, key) >= 10, "the request holds tokens of %s", key)
		}
		wait()
		conserved(t, l)
		// They lack tokens when the rare key has its three, after three hours. So that gets them back,
		// and has two left when the others have theirs, after five.
		t.intact(l, map[string]int64{"a": 0, "rare": 2, "z": 0})
	})
}

// Where a key is kept short by others for as long as they like, a request that joins it is served
// all the same: in the end it holds what it has.
func TestAJoinIsServedAmongWaitersOfEachKey(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(rates(5, map[string]int64{"a": 50, "b": 40, "c": 60}))
		stop := make(chan struct{})
		busy := together(60, func(i int) {
			for {
				select {
				case <-stop:
					return
				default:
					noErr(t, l.Wait(t.Context(), string(rune('a'+i%3))))
				}
			}
		})
		time.Sleep(time.Second)
		// Twenty wait for each key before it: half a second or less for each, and it comes to at most
		// four tries of three lines each.
		for range 20 {
			t.lasts(0, 6*time.Second, func() { noErr(t, joined(l, "a", "b", "c").Wait(t.Context())) })
		}
		close(stop)
		busy()
		conserved(t, l)
	})
}

// A wait that fails, for any reason, has taken nothing from any key.
func TestAFailedWaitOfAJoinTakesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(t *world, other *hybrid.Limiter, cancel func())
		want error
	}{
		"cancelled":        {func(_ *world, _ *hybrid.Limiter, cancel func()) { cancel() }, context.Canceled},
		"the other closed": {func(_ *world, l *hybrid.Limiter, _ func()) { l.Close() }, hybrid.ErrClosed},
		"the other leaves": {func(t *world, l *hybrid.Limiter, _ func()) {
			noErr(t, l.Shutdown(t.Context()))
		}, hybrid.ErrClosed},
	} {
		bubbleOf(t, name, func(t *world) {
			cfg := bursts(map[string]int64{"a": 10, "b": 10, "c": 10})
			l, other := t.start(cfg), t.startOn(memory.New(nil), cfg)
			must(t, other.AllowN("c", 8), "denied")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var err error
			wait := background(func() {
				err = l.Join(l.Key("a"), other.Key("c"), l.Key("b")).WaitN(ctx, 5)
			})
			time.Sleep(time.Minute)
			c.end(t, other, cancel)
			wait()
			isErr(t, err, c.want)
			t.intact(l, map[string]int64{"a": 10, "b": 10})
			equal(t, l.Stats().Admitted, 0, "admitted")
		})
	}
	bubbleOf(t, "a deadline", func(t *world) {
		l := t.start(bursts(map[string]int64{"a": 10, "b": 10}))
		must(t, l.AllowN("b", 8), "denied")
		t.lasts(0, 10*time.Millisecond, func() { // as it cannot be met
			isErr(t, joined(l, "a", "b").WaitN(within(t, time.Hour), 5), hybrid.ErrWouldExceedDeadline)
		})
		t.intact(l, map[string]int64{"a": 10, "b": 2})
		equal(t, l.Stats().Denied, 5, "denied, at the key that binds")
	})
	bubbleOf(t, "the store is away", func(t *world) {
		cfg := bursts(map[string]int64{"a": 10, "b": 10})
		cfg.Policy.Fallback = hybrid.FallbackDeny
		l := t.start(cfg)
		other := t.startOn(&network{inner: memory.New(nil), judge: func(*lease.Call) verdict { return away }}, cfg)
		isErr(t, l.Join(l.Key("a"), other.Key("b")).Wait(t.Context()), hybrid.ErrUnavailable)
		check(t, !l.Join(l.Key("a"), other.Key("b")).Allow(), "admitted")
		t.intact(l, map[string]int64{"a": 10})
	})
}

// A joined request waits for calls no longer than CallTimeout altogether, though it asks one key
// before the others: these have what is left of it.
func TestAJoinedTakeWaitsForOneCallTimeout(t *testing.T) {
	const timeout = 100 * time.Millisecond
	for _, rests := range []bool{false, true} {
		for delay := 10 * time.Millisecond; delay <= 200*time.Millisecond; delay += 10 * time.Millisecond {
			bubbleOf(t, fmt.Sprint("at rest ", rests, ", ", delay), func(t *world) {
				// Given a key that has denied, so that it is asked alone, and now has tokens,
				l, other := t.start(by(denying, hybrid.PerSecond(10))), t.start(by(denying, hybrid.PerSecond(20)))
				j := l.Join(l.Key("a"), other.Key("b"))
				drain(l, "a")
				time.Sleep(300 * time.Millisecond)
				if rests {
					time.Sleep(time.Minute)
					drain(l, "a")
					time.Sleep(10 * time.Second)
				}
				// when each call takes nearly as long as a request waits,
				t.every(verdict{delay: delay})
				// then both calls together take no longer than that.
				t.lasts(min(delay, timeout-timeout/16), timeout, func() { _, _ = j.Take(t.Context(), 1) })
				t.lasts(0, timeout, func() { j.AllowN(1) })
				t.lasts(0, timeout, func() { _, _ = j.TakeUpTo(t.Context(), 3) })
			})
		}
	}
}

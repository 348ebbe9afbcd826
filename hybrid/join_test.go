package hybrid_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

// bursts gives each key a burst of its own, and a token an hour.
func bursts(of map[string]int64) hybrid.Config {
	return hybrid.Config{LimitsFor: plans(func(key string) []hybrid.Limit {
		return limits(hybrid.PerHour(1).WithBurst(of[key]))
	})}
}

// joined is the keys of l with these names.
func joined(l *hybrid.Limiter, names ...string) *hybrid.Joined {
	keys := make([]*hybrid.Key, len(names))
	for i, name := range names {
		keys[i] = l.Key(name)
	}
	return l.Join(keys...)
}

// intact checks, when everything has come back, how much of each key's burst is left. A bucket that
// does not exist is full.
func (t *world) intact(l *hybrid.Limiter, left map[string]int64) {
	t.Helper()
	time.Sleep(5 * time.Second)
	conserved(t, l)
	for key, want := range left {
		if st := t.state(key); st.Exists {
			equal(t, st.Levels[0], want, "left of "+key)
		}
	}
}

// A joined request takes from every key or from none, by whatever verb.
func TestAJoinTakesFromAllKeysOrFromNone(t *testing.T) {
	verbs := map[string]func(t *world, j *hybrid.Joined) bool{
		"Allow":  func(_ *world, j *hybrid.Joined) bool { return j.Allow() },
		"AllowN": func(_ *world, j *hybrid.Joined) bool { return j.AllowN(1) },
		"TryAllow": func(_ *world, j *hybrid.Joined) bool {
			if j.TryAllow() {
				return true
			}
			time.Sleep(time.Millisecond) // for the calls that this has started
			return j.TryAllow()
		},
		"Take": func(t *world, j *hybrid.Joined) bool {
			r, err := j.Take(t.Context(), 1)
			noErr(t, err)
			return r.OK
		},
		"Wait": func(t *world, j *hybrid.Joined) bool {
			err := j.Wait(within(t, time.Second))
			check(t, err == nil || isOneOf(err, hybrid.ErrWouldExceedDeadline), "%v", err)
			return err == nil
		},
		"Reserve": func(t *world, j *hybrid.Joined) bool {
			r, err := j.Reserve(t.Context(), 1)
			noErr(t, err)
			return r.OK()
		},
		"TakeEach": func(t *world, j *hybrid.Joined) bool {
			r, err := j.TakeEach(t.Context(), 1, 1, 1)
			noErr(t, err)
			return r.OK
		},
		"ReserveEach": func(t *world, j *hybrid.Joined) bool {
			r, err := j.ReserveEach(t.Context(), 1, 1, 1)
			noErr(t, err)
			return r.OK()
		},
	}
	for name, ask := range verbs {
		bubbleOf(t, name, func(t *world) {
			// Given three keys, of which one has the fewest tokens,
			l := t.start(bursts(map[string]int64{"all": 100, "tenant": 20, "user": 5}))
			j := joined(l, "all", "tenant", "user")
			// when many ask for one of each,
			yes := admits(30, 0, func() bool { return ask(t, j) })
			// then that one decides, and the others have lost no more than what was admitted.
			equal(t, yes, 5, "admitted")
			t.intact(l, map[string]int64{"all": 95, "tenant": 15, "user": 0})
			st := l.Stats()
			most := int64(25)
			if name == "TryAllow" { // which asks a second time
				most = 55
			}
			check(t, st.Admitted == 15 && st.Denied >= 25 && st.Denied <= most, "a denial counts at one key: %+v", st)
			byLimit := int64(0)
			for _, one := range st.Limits {
				byLimit += one.Denied
			}
			equal(t, byLimit, st.Denied, "denied, by limit")
		})
	}
}

// The Result is that of the key that binds. Stats and Events count the same key.
func TestAJoinSaysWhichKeyBinds(t *testing.T) {
	bubble(t, func(t *world) {
		var denied []string
		cfg := bursts(map[string]int64{"all": 100, "tenant": 20, "user": 5})
		cfg.Events.Denied = func(key string, n int64) {
			check(t, n == 1 || n == 3, "denied %d", n)
			denied = append(denied, key)
		}
		l := t.start(cfg)
		j := joined(l, "all", "tenant", "user")
		equal(t, j.Name(), "all+tenant+user", "is the name")
		keys := l.Join(l.Key("b"), l.Key("a"), l.Key("b")).Keys()
		must(t, len(keys) == 2 && keys[0].Name() == "a" && keys[1].Name() == "b", "Keys returns %v", keys)
		// An admission reports the key with the least left of its burst,
		for left := int64(4); left >= 0; left-- {
			r, err := j.Take(t.Context(), 1)
			check(t, err == nil && r.OK && r.Key == "user" && r.Remaining == left && r.Limit.Burst == 5 &&
				r.RetryAfter == 0, "%+v, %v", r, err)
		}
		// a denial by the one that denies,
		for range 3 {
			r, err := j.Take(t.Context(), 1)
			check(t, err == nil && !r.OK && r.Key == "user" && r.RetryAfter > 50*time.Minute, "%+v, %v", r, err)
		}
		// and of several by the one with the longest wait.
		must(t, l.AllowN("all", 95), "denied")
		r, err := j.Take(t.Context(), 3)
		check(t, err == nil && !r.OK && r.RetryAfter > 2*time.Hour && r.Key == "user", "%+v, %v", r, err)
		equal(t, len(denied), 4, "denials told")
		for _, key := range denied {
			equal(t, key, "user", "denied")
		}
	})
}

// A key that has been at rest since its denial is asked first, although another key is sure to deny without a
// call: the request hears of its wait, not of the other's.
func TestAJoinAsksTheKeyThatDeniedBeforeItRested(t *testing.T) {
	bubble(t, func(t *world) {
		// Given a customer whose hour is used up, and a partner's limit that others keep empty,
		api := t.start(of(hybrid.PerSecond(90).WithBurst(5)))
		customers := t.start(of(hybrid.PerHour(40)))
		must(t, customers.AllowN("big", 40) && !customers.Allow("big"), "not used up")
		ctx, cancel := context.WithCancel(t.Context())
		others := together(8, func(int) {
			for api.Wait(ctx, "api") == nil {
			}
		})
		defer others()
		defer cancel()
		j := api.Join(api.Key("api"), customers.Key("big"))
		for range 5 {
			// when the customer asks seldom for one of each, then it hears of its hour.
			time.Sleep(3 * ttl)
			r, err := j.Take(t.Context(), 1)
			check(t, err == nil && !r.OK && r.Key == "big" && r.RetryAfter > time.Minute, "%+v, %v", r, err)
		}
	})
}

// Unused tokens of the other keys come back although they were on the way for a while: with the same
// report to the pool, and later by a call.
func TestADeniedJoinWaitsForAllKeysAtOnce(t *testing.T) {
	bubble(t, func(t *world) {
		t.every(verdict{delay: 20 * time.Millisecond})
		l := t.start(bursts(map[string]int64{"a": 10, "b": 10, "c": 10, "d": 10}))
		// Cold keys cost one round trip, however many they are.
		t.lasts(20*time.Millisecond, 22*time.Millisecond, func() {
			must(t, joined(l, "a", "b", "c", "d").AllowN(4), "denied")
		})
		t.lasts(20*time.Millisecond, 22*time.Millisecond, func() {
			must(t, !joined(l, "a", "b", "c", "d").AllowN(7), "admitted")
		})
		t.intact(l, map[string]int64{"a": 6, "b": 6, "c": 6, "d": 6})
	})
}

// An invalid join or request is an error of every method that has one, and consumes nothing.
func TestInvalidJoins(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(bursts(map[string]int64{"a": 10, "b": 5}))
		other := t.start(bursts(map[string]int64{"c": 10}))
		must(t, other.Close() == nil, "Close failed")
		many := make([]*hybrid.Key, 17)
		for i := range many {
			many[i] = l.Key(string(rune('a' + i)))
		}
		for name, c := range map[string]struct {
			j    *hybrid.Joined
			n    int64
			want error
		}{
			"no key":           {l.Join(), 1, hybrid.ErrInvalidKey},
			"a nil key":        {l.Join(l.Key("a"), nil), 1, hybrid.ErrInvalidKey},
			"an empty key":     {joined(l, "a", ""), 1, hybrid.ErrInvalidKey},
			"17 keys":          {l.Join(many...), 1, hybrid.ErrInvalidKey},
			"a negative n":     {joined(l, "a", "b"), -1, hybrid.ErrInvalidN},
			"above a burst":    {joined(l, "a", "b"), 6, hybrid.ErrExceedsBurst},
			"far above it":     {joined(l, "a", "b"), math.MaxInt64, hybrid.ErrExceedsBurst},
			"a closed limiter": {l.Join(l.Key("a"), other.Key("c")), 1, hybrid.ErrClosed},
		} {
			before := l.Stats().Invalid + other.Stats().Invalid
			check(t, !c.j.AllowN(c.n), "%s: admitted", name)
			r, err := c.j.Take(t.Context(), c.n)
			isErr(t, err, c.want)
			check(t, !r.OK, "%s: %+v", name, r)
			isErr(t, c.j.WaitN(t.Context(), c.n), c.want)
			made, err := c.j.Reserve(t.Context(), c.n)
			isErr(t, err, c.want)
			check(t, !made.OK(), "%s: reserved", name)
			made.Cancel()
			noErr(t, made.Settle(1))
			made, err = c.j.ReserveEach(t.Context(), c.n, c.n)
			check(t, isOneOf(err, c.want, hybrid.ErrInvalidN) && !made.OK(), "%s: %v", name, err)
			noErr(t, made.SettleEach(1, 1))
			if c.n == 1 {
				check(t, !c.j.Allow() && !c.j.TryAllow(), "%s: admitted", name)
			}
			check(t, l.Stats().Invalid+other.Stats().Invalid > before, "%s: not counted", name)
		}
		check(t, joined(l, "a", "b").AllowN(0), "AllowN(0) is denied")
		r, err := joined(l, "a", "b").Take(t.Context(), 0)
		check(t, err == nil && r.OK, "Take(0): %+v, %v", r, err)
		_, err = l.Join(l.Key("a")).Take(ended(), 1)
		isErr(t, err, context.Canceled)
		isErr(t, l.Join(l.Key("a")).Wait(ended()), context.Canceled)
		equal(t, l.Stats().Admitted, 0, "admitted")
		must(t, joined(l, "a", "b").AllowN(5), "nothing was to be consumed, and 5 are denied")
	})
}

// TakeEach and ReserveEach take of each key what is its own, in the order of Join: of all keys, or of none.
func TestEachKeyHasItsOwnNumber(t *testing.T) {
	ctx := context.Background()
	// taken is a Reservation of these tokens, or of none.
	for name, take := range map[string]func(t *world, j *hybrid.Joined, n ...int64) (hybrid.Result, error){
		"TakeEach": func(_ *world, j *hybrid.Joined, n ...int64) (hybrid.Result, error) {
			return j.TakeEach(ctx, n...)
		},
		"ReserveEach": func(t *world, j *hybrid.Joined, n ...int64) (hybrid.Result, error) {
			r, err := j.ReserveEach(ctx, n...)
			if err == nil {
				noErr(t, r.SettleEach(n...))
			}
			return r.Result(), err
		},
	} {
		for _, keys := range [][]string{{"requests", "words"}, {"words", "requests"}} {
			bubbleOf(t, fmt.Sprint(name, keys), func(t *world) {
				// Given a limit of 10 requests and one of 1000 words,
				l := t.start(bursts(map[string]int64{"requests": 10, "words": 1000}))
				j := joined(l, keys...)
				ask := func(requests, words int64) (hybrid.Result, error) {
					if keys[0] == "words" {
						return take(t, j, words, requests)
					}
					return take(t, j, requests, words)
				}
				admits := func(requests, words int64, ok bool, key string, taken int64) {
					t.Helper()
					r, err := ask(requests, words)
					check(t, err == nil && r.OK == ok && r.Key == key && r.Taken == taken, "%d, %d: %+v, %v",
						requests, words, r, err)
				}
				// when requests have some hundred words each, then these are taken, cold and warm,
				admits(1, 300, true, "words", 300)
				admits(2, 300, true, "words", 300)
				// where one key has too few, none is taken of the other,
				admits(1, 500, false, "words", 0)
				admits(8, 1, false, "requests", 0)
				// one that costs nothing of one key leaves that as it is,
				admits(0, 100, true, "words", 100)
				admits(7, 0, true, "requests", 7)
				// more than a burst is an error,
				_, err := ask(11, 1)
				isErr(t, err, hybrid.ErrExceedsBurst)
				_, err = ask(1, math.MaxInt64)
				isErr(t, err, hybrid.ErrExceedsBurst)
				// and in the end each key lacks what was admitted.
				t.intact(l, map[string]int64{"requests": 0, "words": 300})
				// The numbers of a key that is given twice add up.
				twice := joined(l, "words", "words")
				r, err := take(t, twice, 100, 101)
				check(t, err == nil && r.OK && r.Taken == 201, "%+v, %v", r, err)
				t.intact(l, map[string]int64{"requests": 0, "words": 99})
			})
		}
	}
}

// SettleEach charges or refunds each key by its own cost, once; Settle charges all by the same.
func TestEachKeyIsSettled(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(bursts(map[string]int64{"a": 100, "b": 100, "c": 100}))
		j := joined(l, "c", "a", "b", "a")
		r, err := j.ReserveEach(t.Context(), 10, 20, 0, 5)
		must(t, err == nil && r.OK(), "%+v, %v", r.Result(), err)
		isErr(t, r.SettleEach(1, 2, 3), hybrid.ErrInvalidN)
		isErr(t, r.SettleEach(1, 2, 3, -1), hybrid.ErrInvalidN)
		noErr(t, r.SettleEach(4, 10, 7, 30))
		noErr(t, r.SettleEach(0, 0, 0, 0))
		t.intact(l, map[string]int64{"a": 60, "b": 93, "c": 96})
		r, err = j.ReserveEach(t.Context(), 1, 1, 1, 1)
		must(t, err == nil && r.OK(), "%+v, %v", r.Result(), err)
		noErr(t, r.Settle(3))
		t.intact(l, map[string]int64{"a": 54, "b": 90, "c": 93})
		one, err := l.Key("a").Reserve(t.Context(), 10)
		noErr(t, err)
		isErr(t, one.SettleEach(1, 2), hybrid.ErrInvalidN)
		noErr(t, one.SettleEach(4))
		t.intact(l, map[string]int64{"a": 50})
	})
}

// TakeUpTo takes the same amount of every key: what the one with the fewest tokens has.
func TestTakeUpToOfAJoinTakesWhatAllHave(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(bursts(map[string]int64{"a": 100, "b": 7, "c": 30}))
		j := joined(l, "a", "b", "c", "c") // of which c is asked for twice as much
		r, err := j.TakeUpTo(t.Context(), 5)
		check(t, err == nil && r.OK && r.Taken == 5, "%+v, %v", r, err)
		r, err = j.TakeUpTo(t.Context(), 50)
		check(t, err == nil && r.OK && r.Taken == 2 && r.Key == "b", "%+v, %v", r, err)
		r, err = j.TakeUpTo(t.Context(), 50)
		check(t, err == nil && !r.OK && r.Taken == 0 && r.Key == "b" && r.RetryAfter > 0, "%+v, %v", r, err)
		r, err = j.TakeUpTo(t.Context(), 0)
		check(t, err == nil && r.OK && r.Taken == 0, "%+v, %v", r, err)
		t.intact(l, map[string]int64{"a": 93, "b": 0, "c": 16})
		equal(t, l.Stats().Admitted, 7+7+14, "admitted")
		equal(t, l.Stats().Denied, 5+7, "denied, at the key that has least")
		for range 3 {
			_, err = j.TakeUpTo(t.Context(), math.MaxInt64)
			noErr(t, err)
		}
		equal(t, l.Stats().Denied, 5+7+3*7, "denied: never more than the burst for a request")
		// A token of c is not enough for a request that needs two of it.
		must(t, l.AllowN("c", 15), "denied")
		time.Sleep(time.Second)
		r, err = joined(l, "a", "c", "c").TakeUpTo(t.Context(), 3)
		check(t, err == nil && !r.OK && r.Taken == 0 && r.Key == "c", "%+v, %v", r, err)
		joined(l, "a", "c", "c").Refund(1)
		t.intact(l, map[string]int64{"a": 94, "c": 3})
	})
}

// Where one of the Limiters only shadows, its denials do not count: the request is admitted if the
// others admit it, and says that it would have been denied.
func TestAJoinWithAShadow(t *testing.T) {
	bubble(t, func(t *world) {
		shadow, strict := bursts(map[string]int64{"s": 3}), bursts(map[string]int64{"k": 5})
		shadow.Policy.Shadow = true
		s, l := t.start(shadow), t.start(strict)
		j := s.Join(s.Key("s"), l.Key("k"))
		for i := range 5 {
			r, err := j.Take(t.Context(), 1)
			check(t, err == nil && r.OK && r.Shadowed == (i >= 3) && r.Taken == 1, "%d: %+v, %v", i, r, err)
			check(t, !r.Shadowed || r.Key == "s", "%+v", r)
		}
		equal(t, s.Stats().Shadowed, 2, "shadowed")
		check(t, !j.Allow(), "admitted although a limit that is no shadow denies")
		isErr(t, j.Wait(within(t, time.Minute)), hybrid.ErrWouldExceedDeadline)
		// Cancelling gives back what was taken, of which the shadow's part is nothing.
		noErr(t, l.ReplaceLimits(t.Context(), "k", hybrid.PerHour(1).WithBurst(5)))
		time.Sleep(time.Millisecond) // what was drawn in the moment of a reset is worth nothing
		r, err := j.Reserve(t.Context(), 2)
		check(t, err == nil && r.OK() && r.Result().Shadowed, "%+v, %v", r.Result(), err)
		r.Cancel()
		t.intact(l, map[string]int64{"k": 5})
		conserved(t, s)
		equal(t, s.Stats().Admitted, 3, "admitted by the shadow")
	})
}

// A Limiter that shadows counts what it would have denied of a request that is admitted: once, and no more than the
// other keys agree on.
func TestAShadowInAJoinCountsWhatWasAgreedOn(t *testing.T) {
	bubble(t, func(t *world) {
		shadow := of(hybrid.PerHour(1).WithBurst(5))
		shadow.Policy.Shadow = true
		s := t.start(shadow)
		l := t.start(by(hybrid.Policy{}, hybrid.PerHour(1).WithBurst(3)))
		r, err := l.Join(s.Key("s"), l.Key("k")).TakeUpTo(t.Context(), 10)
		check(t, err == nil && r.Taken == 3 && !r.Shadowed, "%+v, %v", r, err)
		equal(t, s.Stats().Shadowed+l.Stats().Denied, 0, "denied although all that the burst has was taken")
		// when one key is gathered in several tries, the shadow is asked in each
		for s.Stats().Shadowed == 0 {
			s.Allow("s")
		}
		before := s.Stats().Shadowed
		slow := t.process(hybrid.PerMinute(12).WithBurst(2))
		drain(slow, "slow")
		time.Sleep(3 * time.Second)
		noErr(t, l.Join(s.Key("s"), slow.Key("slow"), t.process(hybrid.PerSecond(100)).Key("unknown")).WaitN(t.Context(), 2))
		equal(t, s.Stats().Shadowed-before, 2, "shadowed")
	})
}

// Where one key denies most requests of a Join, the key that it shares with another Join loses
// nothing by those: all that its bucket makes is admitted.
func TestADenialByOneKeyCostsTheOthersNothing(t *testing.T) {
	const lasts, n = 10 * time.Minute, 500
	pauses := []time.Duration{250 * time.Millisecond}
	if testkit.Long(t, "one pause", "three pauses") && !testkit.RaceEnabled {
		pauses = append(pauses, 50*time.Millisecond, 700*time.Millisecond)
	}
	for _, processes := range []int{1, 3} {
		for _, pause := range pauses {
			bubbleOf(t, fmt.Sprintf("%d, %v", processes, pause), func(t *world) {
				// Given a budget, of which some is kept for the first class,
				shared := hybrid.PerMinute(18_000)
				budgets := t.fleet(processes, hybrid.Config{Limits: limits(shared), Priorities: []float64{0.3}})
				tokens := t.fleet(processes, of(hybrid.PerMinute(12_000)))
				admitted := make([]int, 2*processes)
				ask := func(i int, pause time.Duration, key string, class int) int {
					every := pause * time.Duration(processes)
					return admits(int(lasts/every), every, func() bool {
						l := tokens[i]
						return l.Join(l.Key(key), budgets[i].Key("budget").Class(class)).AllowN(n)
					})
				}
				// when the first class is asked for more than another key of the same request has,
				together(2*processes, func(i int) {
					if i < processes {
						admitted[i] = ask(i, pause, "a", 0)
					} else {
						admitted[i] = ask(i-processes, 50*time.Millisecond, "b", 1)
					}
				})()
				// then the second class has the rest.
				sum := int64(0)
				for _, times := range admitted {
					sum += int64(times) * n
				}
				most := oneBucketHas(shared, lasts) - shared.Capacity()*3/10
				check(t, sum >= most*95/100, "%d admitted of %d", sum, most)
			})
		}
	}
}

// A request that is sure to be denied, or that was denied the last time, draws nothing of the other keys.
func TestAJoinThatIsSureToBeDeniedDrawsNothing(t *testing.T) {
	for name, given := range map[string]struct {
		n     int64
		pause time.Duration
		away  bool
	}{
		"above the burst":    {n: 101, pause: 50 * time.Millisecond},
		"the store is away":  {n: 60, pause: 50 * time.Millisecond, away: true},
		"not that many":      {n: 80, pause: 50 * time.Millisecond},
		"at rest in between": {n: 80, pause: 5 * time.Second},
	} {
		bubbleOf(t, name, func(t *world) {
			scarce := t.start(by(denying, hybrid.PerHour(1).WithBurst(100)))
			plenty := t.start(of(hybrid.PerSecond(1000)))
			must(t, scarce.AllowN("scarce", 30) && plenty.Allow("plenty"), "denied")
			if given.away {
				time.Sleep(ttl)
				t.onKeys("scarce", away)
			}
			j := plenty.Join(plenty.Key("plenty"), scarce.Key("scarce"))
			for range 3 {
				j.AllowN(given.n)
				time.Sleep(given.pause)
			}
			before := plenty.Stats().Leased
			equal(t, admits(20, given.pause, func() bool { return j.AllowN(given.n) }), 0, "admitted")
			// Less than for one of them, as what was asked for before may have begun a prefetch.
			drawn := plenty.Stats().Leased - before
			check(t, drawn < given.n, "%d drawn", drawn)
		})
	}
}

// rates gives each key its tokens per second, and all keys the same burst.
func rates(burst int64, of map[string]int64) hybrid.Config {
	return hybrid.Config{LimitsFor: plans(func(key string) []hybrid.Limit {
		return limits(hybrid.PerSecond(of[key]).WithBurst(burst))
	})}
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
		l := t.start(hybrid.Config{LimitsFor: plans(func(key string) []hybrid.Limit {
			return limits(hybrid.PerMinute(1).WithBurst(map[string]int64{"a": 11, "rare": 5, "z": 11}[key]))
		})})
		must(t, joined(l, "a", "rare", "z").Allow(), "denied")
		drain(l, "rare")
		time.Sleep(ttl / 2)
		asked := t.callsFor("a") + t.callsFor("z")
		wait := background(func() { noErr(t, joined(l, "a", "rare", "z").WaitN(t.Context(), 3)) })
		time.Sleep(ttl / 2)
		equal(t, t.callsFor("a")+t.callsFor("z"), asked, "calls for the keys that are not rare")
		time.Sleep(2*time.Minute - ttl)
		for _, key := range []string{"a", "z"} {
			check(t, drain(l, key) >= 10, "the request holds tokens of %s", key)
		}
		wait()
		conserved(t, l)
		// They lack tokens when the rare key has its three, after three minutes. So that gets them back,
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
	})
}

// A wait that fails, for any reason, has taken nothing from any key.
func TestAFailedWaitOfAJoinTakesNothing(t *testing.T) {
	for name, end := range ends {
		bubbleOf(t, name, func(t *world) {
			cfg := bursts(map[string]int64{"a": 10, "b": 10, "c": 10})
			l, other := t.start(cfg), t.startOn(memory.New(nil), cfg)
			j := l.Join(l.Key("a"), other.Key("c"), l.Key("b"))
			equal(t, admits(8, 0, j.Allow), 8, "admitted of two limiters and two stores")
			must(t, other.Allow("c"), "denied") // it is the rarest, so the wait begins there
			wait := background(func() { isErr(t, j.WaitN(t.Context(), 5), hybrid.ErrClosed) })
			time.Sleep(time.Minute)
			noErr(t, end(other))
			t.lasts(0, 0, wait)
			t.intact(l, map[string]int64{"a": 2, "b": 2})
			equal(t, l.Stats().Admitted, 16, "admitted")
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
		isErr(t, l.Join(l.Key("a"), other.Key("b")).Wait(within(t, time.Second)), context.DeadlineExceeded)
		check(t, !l.Join(l.Key("a"), other.Key("b")).Allow(), "admitted")
		t.intact(l, map[string]int64{"a": 10})
		st := other.Stats()
		check(t, st.Denied == 2 && st.FallbackDenied == 1, "denied: the wait that ended, and by fallback: %+v", st)
		equal(t, l.Stats().Denied, 0, "denied by the key that has tokens")
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

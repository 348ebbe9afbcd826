package xtime_test

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/hybridtest"
	"github.com/yuzhi-go/yuzhi/hybrid/xtime"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

// limiter is the method set of *rate.Limiter, but for Reserve and ReserveN.
type limiter interface {
	Allow() bool
	AllowN(t time.Time, n int) bool
	Wait(ctx context.Context) error
	WaitN(ctx context.Context, n int) error
	Limit() rate.Limit
	Burst() int
	Tokens() float64
	TokensAt(t time.Time) float64
	SetLimit(limit rate.Limit)
	SetLimitAt(t time.Time, limit rate.Limit)
	SetBurst(burst int)
	SetBurstAt(t time.Time, burst int)
}

var (
	_ limiter = (*rate.Limiter)(nil)
	_ limiter = (*xtime.Limiter)(nil)
)

// The methods are exactly those of rate, also of a later version of x/time, without Reserve: code that
// reserves does not compile, because no method could keep its meaning.
func TestMethodsAreThoseOfRate(t *testing.T) {
	methods := func(value any) (names []string) {
		for m := range reflect.TypeOf(value).Methods() {
			names = append(names, m.Name)
		}
		return names
	}
	have, want := methods(&xtime.Limiter{}), methods(&rate.Limiter{})
	want = slices.DeleteFunc(want, func(name string) bool { return strings.HasPrefix(name, "Reserve") })
	testkit.Check(t, slices.Equal(have, want), "it has %v, rate's has %v", have, want)
}

// shared returns a key with this limit.
func shared(t *testing.T, limit hybrid.Limit) *hybrid.Key {
	t.Helper()
	l, err := hybrid.New(memory.New(nil), hybrid.Config{Limits: []hybrid.Limit{limit}})
	testkit.NoErr(t, err)
	t.Cleanup(func() { l.Close() })
	return l.Key("k")
}

// both runs body in virtual time on a rate.Limiter and on an xtime.Limiter.
func both(t *testing.T, tokens int64, burst int, body func(t *testing.T, l limiter)) {
	t.Run("rate", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { body(t, rate.NewLimiter(rate.Limit(tokens), burst)) })
	})
	t.Run("xtime", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			body(t, xtime.New(shared(t, hybrid.PerSecond(tokens).WithBurst(int64(burst)))))
		})
	})
}

func TestAllowTakesTheBurstAndThenTheRate(t *testing.T) {
	both(t, 10, 5, func(t *testing.T, l limiter) {
		for i := range 7 {
			testkit.Check(t, l.Allow() == (i < 5), "request %d", i)
		}
		time.Sleep(101 * time.Millisecond)
		testkit.Check(t, l.Allow() && !l.Allow(), "a tenth of a second brings one token")
		time.Sleep(10 * time.Second)
		testkit.Check(t, !l.AllowN(time.Now(), 6), "6 of a burst of 5")
		testkit.Check(t, l.AllowN(time.Now(), 0), "none at all")
		testkit.Check(t, l.AllowN(time.Now(), 5), "the whole burst")
		testkit.Check(t, !l.AllowN(time.Now(), 1), "one more than the burst")
	})
}

func TestWaitWaitsForItsTokens(t *testing.T) {
	both(t, 10, 5, func(t *testing.T, l limiter) {
		start := time.Now()
		testkit.NoErr(t, l.WaitN(t.Context(), 5))
		testkit.Check(t, time.Since(start) < 10*time.Millisecond, "the burst took %v", time.Since(start))
		testkit.NoErr(t, l.WaitN(t.Context(), 5))
		d := time.Since(start)
		testkit.Check(t, d >= 500*time.Millisecond && d < 520*time.Millisecond, "5 more at 10/s took %v", d)
	})
}

func TestWaitFailsAtOnceWithoutHope(t *testing.T) {
	both(t, 10, 5, func(t *testing.T, l limiter) {
		testkit.Check(t, l.AllowN(time.Now(), 5), "the burst")
		start := time.Now()
		testkit.Check(t, l.WaitN(t.Context(), 6) != nil, "6 of a burst of 5 were admitted")
		ended, end := context.WithCancel(t.Context())
		end()
		err := l.Wait(ended)
		testkit.Check(t, err == context.Canceled, "a context that has ended: %v", err)
		soon, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		err = l.WaitN(soon, 4)
		testkit.Check(t, err != nil && soon.Err() == nil, "tokens of 400 ms within 200: %v", err)
		testkit.Check(t, time.Since(start) < 10*time.Millisecond, "it took %v to say so", time.Since(start))
	})
}

func TestWaitThatIsCancelledTakesNothing(t *testing.T) {
	both(t, 10, 5, func(t *testing.T, l limiter) {
		testkit.Check(t, l.AllowN(time.Now(), 5), "the burst")
		ctx, cancel := context.WithCancel(t.Context())
		defer time.AfterFunc(250*time.Millisecond, cancel).Stop()
		err := l.WaitN(ctx, 4)
		testkit.Check(t, err == context.Canceled, "%v", err)
		time.Sleep(300 * time.Millisecond) // 5 tokens since the burst
		testkit.Check(t, l.AllowN(time.Now(), 5), "a cancelled wait took tokens")
	})
}

func TestLimitAndBurstAreReadAndSet(t *testing.T) {
	both(t, 10, 5, func(t *testing.T, l limiter) {
		is := func(limit rate.Limit, burst int) {
			t.Helper()
			testkit.Check(t, math.Abs(float64(l.Limit()/limit-1)) < 1e-6 && l.Burst() == burst,
				"%v burst %d, want %v burst %d", l.Limit(), l.Burst(), limit, burst)
		}
		is(10, 5)
		testkit.Check(t, l.Tokens() == 5 && l.TokensAt(time.Now()) == 5, "%v tokens", l.Tokens())
		l.SetBurst(20)
		is(10, 20)
		limits := []rate.Limit{100, 0.5, rate.Every(3 * time.Second), 1e6, 12.3456, rate.Limit(math.Pi)}
		for _, limit := range limits {
			l.SetLimit(limit)
			is(limit, 20)
		}
		l.SetBurstAt(time.Now(), 7)
		l.SetLimitAt(time.Now(), 50)
		is(50, 7)
		// Used tokens stay used, and the new rate fills the new burst.
		time.Sleep(10 * time.Second)
		testkit.Check(t, l.AllowN(time.Now(), 7) && !l.Allow(), "the new burst is not 7")
		time.Sleep(101 * time.Millisecond)
		testkit.Check(t, l.AllowN(time.Now(), 5) && !l.Allow(), "the new rate is not 50/s")
	})
}

func TestUnlimitedAndBlocked(t *testing.T) {
	both(t, 10, 5, func(t *testing.T, l limiter) {
		l.SetLimit(rate.Inf)
		testkit.Check(t, l.Limit() == rate.Inf, "%v", l.Limit())
		for range 2 {
			testkit.Check(t, l.AllowN(time.Now(), 1e6), "Inf denies")
		}
		testkit.NoErr(t, l.WaitN(t.Context(), 1e6))
		l.SetLimit(50)
		testkit.Check(t, l.Limit() == 50 && l.Burst() == 5, "after Inf: %v burst %d", l.Limit(), l.Burst())
		testkit.Check(t, !l.AllowN(time.Now(), 6), "50/s burst 5 admits 6")
		l.SetBurst(0)
		testkit.Check(t, l.Burst() == 0 && !l.Allow(), "a burst of 0 admits, or is %d", l.Burst())
		time.Sleep(time.Second)
		testkit.Check(t, !l.Allow(), "a burst of 0 admits after a while")
		l.SetBurst(20)
		time.Sleep(10 * time.Second)
		testkit.Check(t, l.Burst() == 20 && l.AllowN(time.Now(), 20) && !l.Allow(), "after 0: burst %d", l.Burst())
		l.SetLimit(0)
		testkit.Check(t, l.Limit() == 0 && !l.Allow(), "a limit of 0 admits, or is %v", l.Limit())
	})
}

// Before the first answer of a store there is neither a rate nor a burst.
func TestNothingIsKnownBeforeTheFirstAnswer(t *testing.T) {
	store := &hybridtest.FaultyStore{Store: memory.New(nil)}
	store.Away()
	shared, err := hybrid.New(store, hybrid.Config{Limits: []hybrid.Limit{hybrid.PerSecond(10)}})
	testkit.NoErr(t, err)
	t.Cleanup(func() { shared.Close() })
	l := xtime.New(shared.Key("k"))
	limit, burst := l.Limit(), l.Burst()
	testkit.Check(t, limit == 0 && burst == 0, "%v burst %d", limit, burst)
}

// A rate that no limit can have is refused and not turned into another one: neither by a conversion that
// overflows, nor by the least number of tokens of a window, nor by the end of Unlimited or Blocked.
func TestAChangeToNoLimitChangesNothing(t *testing.T) {
	const wraps = 1e6 / (1<<61 + 3.6e9) // 1000 times these microseconds are an hour, but for an overflow
	changes := map[string]func(l *xtime.Limiter){"a burst of -1": func(l *xtime.Limiter) { l.SetBurst(-1) }}
	for _, r := range []float64{math.NaN(), math.Inf(-1), -1e300, -1, 1e300, 1e19, 1e-300, wraps} {
		changes[fmt.Sprint("a rate of ", r)] = func(l *xtime.Limiter) { l.SetLimit(rate.Limit(r)) }
	}
	for _, given := range []hybrid.Limit{hybrid.PerSecond(10), hybrid.Sliding(60, time.Minute),
		hybrid.Calendar(60, time.Minute, 0), hybrid.Unlimited, hybrid.Blocked} {
		for what, change := range changes {
			synctest.Test(t, func(t *testing.T) {
				key := shared(t, hybrid.PerSecond(10))
				testkit.NoErr(t, key.Limiter().SetLimits(t.Context(), "k", given))
				change(xtime.New(key))
				levels, err := key.Limiter().Levels(t.Context(), "k")
				testkit.Check(t, err == nil && len(levels) == 1 && levels[0].Limit == given,
					"after %s of %v: %v, %v", what, given, levels, err)
			})
		}
	}
}

// A window stays one after SetLimit and SetBurst: its rate and its burst are one number of tokens.
func TestAWindowStaysAWindow(t *testing.T) {
	windows := []hybrid.Limit{hybrid.Sliding(60, time.Minute), hybrid.Calendar(60, time.Minute, time.Second)}
	for _, given := range windows {
		synctest.Test(t, func(t *testing.T) {
			key := shared(t, given)
			l := xtime.New(key)
			is := func(tokens int64) {
				t.Helper()
				want := given
				want.Tokens = tokens
				levels, err := key.Limiter().Levels(t.Context(), "k")
				testkit.NoErr(t, err)
				testkit.Check(t, len(levels) == 1 && levels[0].Limit.Equal(want), "%v, want %v", levels, want)
				testkit.Check(t, l.Limit() == rate.Limit(float64(tokens)/60) && l.Burst() == int(tokens),
					"%v burst %d, want %d in a minute", l.Limit(), l.Burst(), tokens)
			}
			is(60)
			l.SetBurst(90)
			is(90)
			l.SetLimit(2)
			is(120)
			l.SetLimit(0.001) // less than one in a minute
			is(1)
		})
	}
}

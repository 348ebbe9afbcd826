package xtime_test

import (
	"context"
	"math"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/xtime"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// limiter is the method set of *rate.Limiter, but for Reserve and ReserveN, whose result is a type
// of the package's own.
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

// reservation is the method set of *rate.Reservation.
type reservation interface {
	OK() bool
	Delay() time.Duration
	DelayFrom(t time.Time) time.Duration
	Cancel()
	CancelAt(t time.Time)
}

var (
	_ limiter     = (*rate.Limiter)(nil)
	_ limiter     = (*xtime.Limiter)(nil)
	_ reservation = (*rate.Reservation)(nil)
	_ reservation = (*xtime.Reservation)(nil)
)

// TestMethodSetsAreEqual: nothing is missing, also of a later version of x/time, and nothing is
// there that rate does not have.
func TestMethodSetsAreEqual(t *testing.T) {
	methods := func(value any) (names []string) {
		for m := range reflect.TypeOf(value).Methods() {
			names = append(names, m.Name)
		}
		return names
	}
	equal := func(have, want any) {
		h, w := methods(have), methods(want)
		testkit.Check(t, reflect.DeepEqual(h, w), "%T has %v, %T has %v", have, h, want, w)
	}
	equal(&xtime.Limiter{}, &rate.Limiter{})
	equal(&xtime.Reservation{}, &rate.Reservation{})
}

// made is a limiter of either kind.
type made struct {
	limiter
	reserve func(t time.Time, n int) reservation
}

// both runs body in virtual time on a rate.Limiter and on an xtime.Limiter.
func both(t *testing.T, tokens int64, burst int, body func(t *testing.T, l made)) {
	t.Run("rate", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := rate.NewLimiter(rate.Limit(tokens), burst)
			body(t, made{l, func(t time.Time, n int) reservation { return l.ReserveN(t, n) }})
		})
	})
	t.Run("xtime", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			shared, err := hybrid.New(lease.NewMemoryStore(nil), hybrid.Config{
				Limits: []hybrid.Limit{hybrid.PerSecond(tokens).WithBurst(int64(burst))},
			})
			testkit.NoErr(t, err)
			defer shared.Close()
			l := xtime.New(shared.Key("k"))
			body(t, made{l, func(t time.Time, n int) reservation { return l.ReserveN(t, n) }})
		})
	})
}

func TestAllowTakesTheBurstAndThenTheRate(t *testing.T) {
	both(t, 10, 5, func(t *testing.T, l made) {
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
	both(t, 10, 5, func(t *testing.T, l made) {
		start := time.Now()
		testkit.NoErr(t, l.WaitN(t.Context(), 5))
		testkit.Check(t, time.Since(start) < 10*time.Millisecond, "the burst took %v", time.Since(start))
		testkit.NoErr(t, l.WaitN(t.Context(), 5))
		d := time.Since(start)
		testkit.Check(t, d >= 500*time.Millisecond && d < 520*time.Millisecond, "5 more at 10/s took %v", d)
	})
}

func TestWaitFailsAtOnceWhereItIsInVain(t *testing.T) {
	both(t, 10, 5, func(t *testing.T, l made) {
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
		testkit.Check(t, err != nil && soon.Err() == nil, "what takes 400 ms cannot be had in 200: %v", err)
		testkit.Check(t, time.Since(start) < 10*time.Millisecond, "it took %v to say so", time.Since(start))
	})
}

func TestWaitThatIsCancelledTakesNothing(t *testing.T) {
	both(t, 10, 5, func(t *testing.T, l made) {
		testkit.Check(t, l.AllowN(time.Now(), 5), "the burst")
		ctx, cancel := context.WithCancel(t.Context())
		defer time.AfterFunc(250*time.Millisecond, cancel).Stop()
		err := l.WaitN(ctx, 4)
		testkit.Check(t, err == context.Canceled, "%v", err)
		time.Sleep(300 * time.Millisecond) // 5 tokens since the burst
		testkit.Check(t, l.AllowN(time.Now(), 5), "what was not waited for is gone")
	})
}

func TestReserveOfWhatIsThere(t *testing.T) {
	both(t, 10, 5, func(t *testing.T, l made) {
		r := l.reserve(time.Now(), 5)
		testkit.Check(t, r.OK() && r.Delay() == 0, "%v, %v", r.OK(), r.Delay())
		testkit.Check(t, !l.Allow(), "the reservation has taken nothing")
		over := l.reserve(time.Now(), 6)
		testkit.Check(t, !over.OK() && over.Delay() == rate.InfDuration, "%v, %v", over.OK(), over.Delay())
		over.Cancel()
		testkit.Check(t, !l.Allow(), "Cancel gave back what was not taken")
	})
}

func TestCancelBeforeTheTimeOfAReservationGivesItsTokensBack(t *testing.T) {
	both(t, 1, 5, func(t *testing.T, l made) {
		now := time.Now()
		r := l.reserve(now, 5)
		r.CancelAt(now)
		time.Sleep(200 * time.Millisecond) // the bucket has heard of it, and made no whole token
		testkit.Check(t, l.AllowN(time.Now(), 5), "they are gone")
		r.CancelAt(now)
		time.Sleep(200 * time.Millisecond)
		_, isRate := l.limiter.(*rate.Limiter) // which gives back once for every Cancel
		testkit.Check(t, l.Allow() == isRate, "the second Cancel gave back %v", !isRate)
	})
}

func TestCancelAfterTheTimeOfAReservationGivesNothingBack(t *testing.T) {
	both(t, 1, 5, func(t *testing.T, l made) {
		r := l.reserve(time.Now(), 5)
		time.Sleep(time.Millisecond)
		r.Cancel() // as a deferred one does after the work was done
		time.Sleep(200 * time.Millisecond)
		testkit.Check(t, !l.Allow(), "what was used came back")
	})
}

// TestReserveOfWhatIsNotThere is where the two differ.
func TestReserveOfWhatIsNotThere(t *testing.T) {
	both(t, 10, 5, func(t *testing.T, l made) {
		testkit.Check(t, l.AllowN(time.Now(), 5), "the burst")
		r := l.reserve(time.Now(), 1)
		_, isRate := l.limiter.(*rate.Limiter)
		if isRate {
			testkit.Check(t, r.OK() && r.Delay() == 100*time.Millisecond, "%v, %v", r.OK(), r.Delay())
		} else {
			testkit.Check(t, !r.OK() && r.Delay() == rate.InfDuration, "%v, %v", r.OK(), r.Delay())
		}
	})
}

func TestLimitAndBurstAreReadAndSet(t *testing.T) {
	both(t, 10, 5, func(t *testing.T, l made) {
		is := func(limit rate.Limit, burst int) {
			t.Helper()
			testkit.Check(t, math.Abs(float64(l.Limit()/limit-1)) < 1e-6 && l.Burst() == burst,
				"%v burst %d, want %v burst %d", l.Limit(), l.Burst(), limit, burst)
		}
		is(10, 5)
		testkit.Check(t, l.Tokens() == 5 && l.TokensAt(time.Now()) == 5, "%v tokens", l.Tokens())
		l.SetBurst(20)
		is(10, 20)
		for _, limit := range []rate.Limit{100, 0.5, rate.Every(3 * time.Second), 1e6, 12.3456, rate.Limit(math.Pi)} {
			l.SetLimit(limit)
			is(limit, 20)
		}
		l.SetBurstAt(time.Now(), 7)
		l.SetLimitAt(time.Now(), 50)
		is(50, 7)
		// What was used stays used, and the new rate fills the new burst.
		time.Sleep(10 * time.Second)
		testkit.Check(t, l.AllowN(time.Now(), 7) && !l.Allow(), "the new burst is not 7")
		time.Sleep(101 * time.Millisecond)
		testkit.Check(t, l.AllowN(time.Now(), 5) && !l.Allow(), "the new rate is not 50/s")
	})
}

func TestWhatIsUnlimitedAndWhatIsBlocked(t *testing.T) {
	both(t, 10, 5, func(t *testing.T, l made) {
		l.SetLimit(rate.Inf)
		testkit.Check(t, l.Limit() == rate.Inf, "%v", l.Limit())
		for range 2 {
			testkit.Check(t, l.AllowN(time.Now(), 1e6), "Inf denies")
		}
		testkit.NoErr(t, l.WaitN(t.Context(), 1e6))
		testkit.Check(t, l.reserve(time.Now(), 1e6).OK(), "Inf reserves nothing")
		l.SetLimit(100)
		l.SetBurst(0)
		testkit.Check(t, l.Burst() == 0 && !l.Allow(), "a burst of 0 admits, or is %d", l.Burst())
		time.Sleep(time.Second)
		testkit.Check(t, !l.Allow(), "a burst of 0 admits after a while")
		l.SetLimit(0)
		testkit.Check(t, l.Limit() == 0 && !l.Allow(), "a limit of 0 admits, or is %v", l.Limit())
	})
}

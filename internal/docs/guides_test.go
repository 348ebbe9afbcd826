package docs

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"golang.org/x/time/rate"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/xtime"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

// guides are the pages for users of other limiters.
var guides = []string{"docs/from-redis_rate.md", "docs/from-x-time-rate.md", "docs/from-redisson.md"}

// TestGuideCodeIsRun: the Go code of the migration guides is that of the functions below, which the
// tests after them run.
func TestGuideCodeIsRun(t *testing.T) {
	r := read(t)
	plain := func(code string) string { return regexp.MustCompile(`(?m)^\s+`).ReplaceAllString(code, "") }
	run := plain(r.texts["internal/docs/guides_test.go"])
	for _, page := range guides {
		blocks := r.blocks(page, "go")
		testkit.Check(t, len(blocks) > 0, "%s has no Go code", page)
		for _, b := range blocks {
			testkit.Check(t, strings.Contains(run, plain(b.text)), "%s: not in guides_test.go:\n%s", page, b.text)
		}
	}
}

// onServer runs body in a bubble, with a client of a Redis in this process whose clock is the
// bubble's. The server stands outside: a goroutine that waits for the network stops a bubble's time.
func onServer(t *testing.T, body func(t *testing.T, server *miniredis.Miniredis, client *redis.Client)) {
	server := miniredis.RunT(t)
	synctest.Test(t, func(t *testing.T) {
		server.SetTime(time.Now())
		tick := time.NewTicker(time.Millisecond)
		go func() {
			for {
				select {
				case now := <-tick.C:
					server.SetTime(now)
				case <-t.Context().Done():
					return
				}
			}
		}()
		client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
		t.Cleanup(func() {
			client.Close()
			tick.Stop()
			time.Sleep(time.Minute) // until the client gives up a connection that it was making
		})
		body(t, server, client)
	})
}

func fromRedisRate(ctx context.Context, client *redis.Client) error {
	limiter := redis_rate.NewLimiter(client)
	result, err := limiter.Allow(ctx, "user 17", redis_rate.PerSecond(10))
	if err != nil {
		return err // Redis is away, too
	}
	if result.Allowed == 0 {
		return fmt.Errorf("come back in %v", result.RetryAfter)
	}
	return nil
}

func toYuzhiFromRedisRate(ctx context.Context, client *redis.Client) error {
	limiter, err := hybrid.Redis(client, "mail", hybrid.PerSecond(10)) // one for the whole process
	if err != nil {
		return err
	}
	defer limiter.Shutdown(ctx)
	result, err := limiter.Take(ctx, "user 17", 1)
	if err != nil {
		return err // the context ended, or the arguments are wrong
	}
	if !result.OK {
		return fmt.Errorf("come back in %v", result.RetryAfter)
	}
	return nil
}

// TestGuideFromRedisRate: both admit ten requests and tell the eleventh when to come back.
func TestGuideFromRedisRate(t *testing.T) {
	type guided = func(context.Context, *redis.Client) error
	for name, f := range map[string]guided{"theirs": fromRedisRate, "ours": toYuzhiFromRedisRate} {
		t.Run(name, func(t *testing.T) {
			onServer(t, func(t *testing.T, _ *miniredis.Miniredis, client *redis.Client) {
				for i := range 11 {
					err := f(t.Context(), client)
					testkit.Check(t, (err == nil) == (i < 10), "request %d: %v", i, err)
					time.Sleep(time.Millisecond) // redis_rate's rounding denies the tenth at one instant
				}
			})
		})
	}
}

func xTime() *rate.Limiter {
	limiter := rate.NewLimiter(10, 20)
	return limiter
}

func toYuzhiFromXTime(t *testing.T, client *redis.Client) (*xtime.Limiter, error) {
	shared, err := hybrid.Redis(client, "upstream", hybrid.PerSecond(10).WithBurst(20)) // of the process
	if err != nil {
		return nil, err
	}
	limiter := xtime.New(shared.Key("upstream"))
	t.Cleanup(func() { shared.Close() })
	return limiter, nil
}

// TestGuideFromXTime: of both the burst of 20 goes through at once, and the next one waits.
func TestGuideFromXTime(t *testing.T) {
	onServer(t, func(t *testing.T, _ *miniredis.Miniredis, client *redis.Client) {
		ours, err := toYuzhiFromXTime(t, client)
		testkit.NoErr(t, err)
		for _, l := range []interface {
			AllowN(t time.Time, n int) bool
			WaitN(ctx context.Context, n int) error
		}{xTime(), ours} {
			begin := time.Now()
			testkit.Check(t, l.AllowN(begin, 20), "%T: the burst", l)
			testkit.NoErr(t, l.WaitN(t.Context(), 1))
			waited := time.Since(begin) - 100*time.Millisecond
			testkit.Check(t, waited >= 0 && waited < 10*time.Millisecond, "%T: the next one waits %v more", l, waited)
		}
	})
}

func toYuzhiFromRedisson(ctx context.Context, store lease.Store) error {
	// redisson.getRateLimiter("payments"), trySetRate(OVERALL, 10, Duration.ofSeconds(1))
	limiter, err := hybrid.New(store, hybrid.Config{Limits: []hybrid.Limit{hybrid.Sliding(10, time.Second)}})
	if err != nil {
		return err
	}
	defer limiter.Shutdown(ctx)
	payments := limiter.Key("payments")

	// acquire()
	if err := payments.Wait(ctx); err != nil {
		return err
	}

	// tryAcquire(3, Duration.ofMillis(500))
	soon, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	err = payments.WaitN(soon, 3)
	ok := err == nil
	if err != nil && !errors.Is(err, context.DeadlineExceeded) { // which hybrid.ErrWouldExceedDeadline is, too
		return err
	}

	// release(3)
	if ok {
		payments.Refund(3)
	}

	// setRate(OVERALL, 20, Duration.ofSeconds(1)), and updateRate, which keeps what was used
	if err := limiter.ReplaceLimits(ctx, "payments", hybrid.Sliding(20, time.Second)); err != nil {
		return err
	}
	return limiter.SetLimits(ctx, "payments", hybrid.Sliding(30, time.Second))
}

// TestGuideFromRedisson: the guide's calls work, and the last one's limit is in force.
func TestGuideFromRedisson(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, ctx := memory.New(nil), t.Context()
		testkit.NoErr(t, toYuzhiFromRedisson(ctx, store))
		l, err := hybrid.New(store, hybrid.Config{Limits: []hybrid.Limit{hybrid.Sliding(10, time.Hour)}})
		testkit.NoErr(t, err)
		defer l.Close()
		levels, err := l.Levels(ctx, "payments")
		testkit.Check(t, err == nil && levels[0].Limit == hybrid.Sliding(30, time.Second), "%v, %v", levels, err)
	})
}

// TestGuideARateInsteadOfASlidingWindow: a token bucket of nine tenths rate and a tenth burst,
// asked for as much as there is, admits 100 and no more in every second too.
func TestGuideARateInsteadOfASlidingWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := hybrid.PerSecond(90).WithBurst(10)
		l, err := hybrid.New(memory.New(nil), hybrid.Config{Limits: []hybrid.Limit{limit}})
		testkit.NoErr(t, err)
		defer l.Close()
		var admitted []time.Time
		for range 3000 { // 3 s, every ms
			for l.Allow("k") {
				admitted = append(admitted, time.Now())
			}
			time.Sleep(time.Millisecond)
		}
		most := 0
		for i, from := range admitted {
			n := 0
			for _, at := range admitted[i:] {
				if at.Sub(from) < time.Second {
					n++
				}
			}
			most = max(most, n)
		}
		testkit.Check(t, most > 90 && most <= 100, "%d in one second", most)
	})
}

// sideBySide is a redis_rate limiter and one of ours on one server, with the same limit of every key.
type sideBySide struct {
	theirs     *redis_rate.Limiter
	theirLimit redis_rate.Limit
	ours       *hybrid.Limiter
	server     *miniredis.Miniredis
	client     *redis.Client
}

// besides runs body with the two in a bubble.
func besides(t *testing.T, theirs redis_rate.Limit, ours hybrid.Limit,
	body func(t *testing.T, s *sideBySide)) {
	onServer(t, func(t *testing.T, server *miniredis.Miniredis, client *redis.Client) {
		limiter, err := hybrid.Redis(client, "", ours)
		testkit.NoErr(t, err)
		t.Cleanup(func() { limiter.Close() })
		body(t, &sideBySide{redis_rate.NewLimiter(client), theirs, limiter, server, client})
	})
}

// take asks both for n tokens.
func (s *sideBySide) take(t *testing.T, key string, n int) (*redis_rate.Result, hybrid.Result) {
	t.Helper()
	theirs, err := s.theirs.AllowN(t.Context(), key, s.theirLimit, n)
	testkit.NoErr(t, err)
	ours, err := s.ours.Take(t.Context(), key, int64(n))
	testkit.NoErr(t, err)
	same := int64(theirs.Allowed) == ours.Taken
	testkit.Check(t, same, "of %d redis_rate admits %d, yuzhi %d", n, theirs.Allowed, ours.Taken)
	return theirs, ours
}

// near reports whether two durations are equal but for the milliseconds by which timers of the client
// may move the bubble's clock between two calls.
func near(a, b time.Duration) bool { return (a - b).Abs() < 100*time.Millisecond }

// TestGuideRedisRateAdmitsTheSame: on one schedule of requests of several sizes both admit the same
// ones, and say the same of what is left.
func TestGuideRedisRateAdmitsTheSame(t *testing.T) {
	besides(t, redis_rate.PerHour(20), hybrid.PerHour(20), func(t *testing.T, s *sideBySide) {
		left := int64(20)
		for _, n := range []int{1, 7, 3, 8, 5, 4, 5, 1, 1} {
			theirs, ours := s.take(t, "k", n)
			left -= ours.Taken
			testkit.Check(t, ours.Remaining == left, "%d remain, want %d", ours.Remaining, left)
			if ours.Taken > 0 {
				testkit.Check(t, int64(theirs.Remaining) == left && theirs.RetryAfter == -1 && ours.RetryAfter == 0,
					"admitted: %+v and %+v", theirs, ours)
			} else { // where they differ: redis_rate says that nothing remains, and yuzhi what does
				same := theirs.Remaining == 0 && near(theirs.RetryAfter, ours.RetryAfter)
				testkit.Check(t, same, "denied: %+v and %+v", theirs, ours)
			}
			testkit.Check(t, near(theirs.ResetAfter, ours.ResetAfter), "full again: %+v and %+v", theirs, ours)
			time.Sleep(time.Millisecond)
		}
		testkit.Check(t, left == 0, "%d were left of 20", left)

		testkit.NoErr(t, s.theirs.Reset(t.Context(), "k"))
		testkit.NoErr(t, s.ours.Reset(t.Context(), "k"))
		_, ours := s.take(t, "k", 20)
		testkit.Check(t, ours.Taken == 20, "after a reset: %d", ours.Taken)
	})
}

// TestGuideRedisRateDiffers: each row of the guide's table of differences.
func TestGuideRedisRateDiffers(t *testing.T) {
	each := map[string]func(t *testing.T, s *sideBySide){
		"more than the burst": func(t *testing.T, s *sideBySide) {
			r, err := s.theirs.AllowN(t.Context(), "k", s.theirLimit, 11)
			useless := err == nil && r.Allowed == 0 && r.RetryAfter > 0
			testkit.Check(t, useless, "redis_rate names a time that does not help: %+v, %v", r, err)
			_, err = s.ours.Take(t.Context(), "k", 11)
			testkit.Check(t, errors.Is(err, hybrid.ErrExceedsBurst), "%v", err)
		},
		"a negative n": func(t *testing.T, s *sideBySide) {
			r, err := s.theirs.AllowN(t.Context(), "k", s.theirLimit, -1)
			lifted := err == nil && r.Allowed == -1 && r.Remaining == 11
			testkit.Check(t, lifted, "redis_rate lifts the key above its burst: %+v, %v", r, err)
			_, err = s.ours.Take(t.Context(), "k", -1)
			testkit.Check(t, errors.Is(err, hybrid.ErrInvalidN), "%v", err)
		},
		"a part of a token": func(t *testing.T, s *sideBySide) {
			_, ours := s.take(t, "k", 10)
			testkit.Check(t, ours.Taken == 10, "%d of the burst", ours.Taken)
			time.Sleep(1500 * time.Millisecond)
			their, err := s.theirs.AllowAtMost(t.Context(), "k", s.theirLimit, 9)
			testkit.NoErr(t, err)
			our, err := s.ours.Key("k").TakeUpTo(t.Context(), 9)
			testkit.NoErr(t, err)
			testkit.Check(t, their.Allowed == 1 && our.Taken == 1, "%+v and %+v", their, our)
			testkit.Check(t, near(their.ResetAfter, 10*time.Second), "redis_rate has taken the half, too: %+v", their)
			testkit.Check(t, near(our.ResetAfter, 9500*time.Millisecond), "yuzhi keeps the half: %+v", our)
		},
		"n of 0": func(t *testing.T, s *sideBySide) {
			r, err := s.theirs.AllowN(t.Context(), "k", s.theirLimit, 0)
			testkit.Check(t, err == nil && r.Allowed == 0 && r.Remaining == 10, "%+v, %v", r, err)
			our, err := s.ours.Take(t.Context(), "k", 0)
			testkit.Check(t, err == nil && our.OK, "%+v, %v", our, err)
		},
		"the limit goes with each call": func(t *testing.T, s *sideBySide) {
			r, err := s.theirs.Allow(t.Context(), "k", redis_rate.PerHour(2))
			testkit.Check(t, err == nil && r.Remaining == 1, "%+v, %v", r, err)
			our, err := s.ours.KeyWithLimits("k", hybrid.PerHour(2)).Take(t.Context(), 1)
			testkit.Check(t, err == nil && our.Remaining == 1, "%+v, %v", our, err)
		},
		"other keys": func(t *testing.T, s *sideBySide) {
			s.take(t, "k", 1)
			keys, err := s.client.Keys(t.Context(), "*k*").Result()
			both := slices.Contains(keys, "rate:k") && slices.Contains(keys, "yuzhi:{k}")
			testkit.Check(t, err == nil && both, "%q, %v", keys, err)
		},
		"without Redis": func(t *testing.T, s *sideBySide) {
			s.server.Close()
			_, err := s.theirs.Allow(t.Context(), "k", s.theirLimit)
			testkit.Check(t, err != nil, "redis_rate answers without a server")
			_, err = s.ours.Take(t.Context(), "k", 1)
			testkit.Check(t, err == nil, "yuzhi decides by its policy: %v", err)
		},
	}
	theirs := redis_rate.Limit{Rate: 1, Burst: 10, Period: time.Second}
	for name, differs := range each {
		t.Run(name, func(t *testing.T) { besides(t, theirs, hybrid.PerSecond(1).WithBurst(10), differs) })
	}
}

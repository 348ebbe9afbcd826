package yuzhi_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// sideBySide is a redis_rate limiter and one of ours on one real server, with the same limit of
// every key.
type sideBySide struct {
	theirs      *redis_rate.Limiter
	theirLimit  redis_rate.Limit
	ours        *hybrid.Limiter
	client      *redis.Client
	ctx         context.Context
	unreachable func() // kills the server
}

func newSideBySide(t *testing.T, theirs redis_rate.Limit, ours hybrid.Limit) *sideBySide {
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, MaxRetries: -1})
	limiter, err := hybrid.Redis(client, ours)
	testkit.NoErr(t, err)
	t.Cleanup(func() { limiter.Close(); client.Close() })
	return &sideBySide{redis_rate.NewLimiter(client), theirs, limiter, client, t.Context(), server.Kill}
}

// take asks both for n tokens, and says how many each admitted.
func (s *sideBySide) take(t *testing.T, key string, n int) (theirs, ours int64, their *redis_rate.Result, our hybrid.Result) {
	t.Helper()
	their, err := s.theirs.AllowN(s.ctx, key, s.theirLimit, n)
	testkit.NoErr(t, err)
	our, err = s.ours.Take(s.ctx, key, int64(n))
	testkit.NoErr(t, err)
	return int64(their.Allowed), our.Taken, their, our
}

// TestGuideRedisRateAdmitsTheSame: on one schedule of requests of several sizes both admit the same
// ones, and say the same of what is left. 20 an hour bring no token while the test runs.
func TestGuideRedisRateAdmitsTheSame(t *testing.T) {
	s := newSideBySide(t, redis_rate.PerHour(20), hybrid.PerHour(20))
	left := int64(20)
	for i, n := range []int{1, 7, 3, 8, 5, 4, 5, 1, 1} {
		theirs, ours, their, our := s.take(t, "k", n)
		testkit.Check(t, theirs == ours, "request %d, of %d: redis_rate admits %d, yuzhi %d", i, n, theirs, ours)
		left -= ours
		testkit.Check(t, our.Remaining == left, "%d remain, want %d", our.Remaining, left)
		if ours > 0 {
			testkit.Check(t, int64(their.Remaining) == left && their.RetryAfter == -1 && our.RetryAfter == 0,
				"admitted: %+v and %+v", their, our)
		} else { // where they differ: redis_rate says that nothing remains, and yuzhi what does
			testkit.Check(t, their.Remaining == 0, "%+v", their)
			apart := their.RetryAfter - our.RetryAfter
			testkit.Check(t, apart.Abs() < 5*time.Second, "denied: retry after %v and %v", their.RetryAfter, our.RetryAfter)
		}
		apart := their.ResetAfter - our.ResetAfter
		testkit.Check(t, apart.Abs() < 5*time.Second, "full again after %v and %v", their.ResetAfter, our.ResetAfter)
	}
	testkit.Check(t, left == 0, "%d were left of 20", left)

	testkit.NoErr(t, s.theirs.Reset(s.ctx, "k"))
	testkit.NoErr(t, s.ours.Reset(s.ctx, "k"))
	theirs, ours, _, _ := s.take(t, "k", 20)
	testkit.Check(t, theirs == 20 && ours == 20, "after a reset: %d and %d", theirs, ours)
}

// TestGuideRedisRateDiffers: each row of the guide's table of differences.
func TestGuideRedisRateDiffers(t *testing.T) {
	s := newSideBySide(t, redis_rate.PerSecond(1), hybrid.PerSecond(1))
	s.theirLimit.Burst = 10
	testkit.NoErr(t, s.ours.SetLimits(s.ctx, "k", hybrid.PerSecond(1).WithBurst(10)))

	t.Run("more than the burst", func(t *testing.T) {
		r, err := s.theirs.AllowN(s.ctx, "k", s.theirLimit, 11)
		testkit.Check(t, err == nil && r.Allowed == 0 && r.RetryAfter > 0, "redis_rate names a time that does not help: %+v, %v", r, err)
		_, err = s.ours.Take(s.ctx, "k", 11)
		testkit.Check(t, errors.Is(err, hybrid.ErrExceedsBurst), "%v", err)
	})
	t.Run("a negative n", func(t *testing.T) {
		r, err := s.theirs.AllowN(s.ctx, "negative", s.theirLimit, -1)
		testkit.Check(t, err == nil && r.Allowed == -1 && r.Remaining == 11, "redis_rate lifts the key above its burst: %+v, %v", r, err)
		_, err = s.ours.Take(s.ctx, "k", -1)
		testkit.Check(t, errors.Is(err, hybrid.ErrInvalidN), "%v", err)
	})
	t.Run("a part of a token", func(t *testing.T) {
		theirs, ours, _, _ := s.take(t, "k", 10)
		testkit.Must(t, theirs == 10 && ours == 10, "%d and %d of the burst", theirs, ours)
		time.Sleep(1500 * time.Millisecond) // a token and a half, or more on a busy machine
		their, err := s.theirs.AllowAtMost(s.ctx, "k", s.theirLimit, 9)
		testkit.NoErr(t, err)
		our, err := s.ours.TakeUpTo(s.ctx, "k", 9)
		testkit.NoErr(t, err)
		testkit.Check(t, their.Allowed >= 1 && our.Taken >= 1, "%+v and %+v", their, our)
		gone := 10*time.Second - their.ResetAfter
		testkit.Check(t, gone < time.Millisecond, "redis_rate has taken the half, too: full again after %v", their.ResetAfter)
		testkit.Check(t, our.ResetAfter < 10*time.Second-10*time.Millisecond, "yuzhi keeps the half: full again after %v", our.ResetAfter)
	})
	t.Run("n of 0", func(t *testing.T) {
		r, err := s.theirs.AllowN(s.ctx, "zero", s.theirLimit, 0)
		testkit.Check(t, err == nil && r.Allowed == 0 && r.Remaining == 10, "%+v, %v", r, err)
		our, err := s.ours.Take(s.ctx, "zero", 0)
		testkit.Check(t, err == nil && our.OK, "%+v, %v", our, err)
	})
	t.Run("the limit goes with each call", func(t *testing.T) {
		r, err := s.theirs.Allow(s.ctx, "plans", redis_rate.PerHour(2))
		testkit.Check(t, err == nil && r.Remaining == 1, "%+v, %v", r, err)
		gold := s.ours.KeyWith("plans", hybrid.PerHour(2))
		our, err := gold.Take(s.ctx, 1)
		testkit.Check(t, err == nil && our.Remaining == 1, "%+v, %v", our, err)
	})
	t.Run("other keys", func(t *testing.T) {
		keys, err := s.client.Keys(s.ctx, "*k*").Result()
		testkit.NoErr(t, err)
		has := map[string]bool{}
		for _, key := range keys {
			has[key] = true
		}
		testkit.Check(t, has["rate:k"] && has["yuzhi:{k}"], "%q", keys)
	})
	t.Run("without Redis", func(t *testing.T) {
		s.unreachable()
		_, err := s.theirs.Allow(s.ctx, "k", s.theirLimit)
		testkit.Check(t, err != nil, "redis_rate answers without a server")
		r, err := s.ours.Take(s.ctx, "new", 1)
		testkit.Check(t, err == nil, "yuzhi decides by its policy, and here denies as it has never heard of the bucket: %+v, %v", r, err)
	})
}

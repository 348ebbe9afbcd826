package yuzhi_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/xtime"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// TestGuidesNameWhatTheirPeersExport: the tables of a migration guide have a row for each exported
// name of the peer, and what they name of ours exists.
func TestGuidesNameWhatTheirPeersExport(t *testing.T) {
	ours := map[string]bool{}
	for _, folder := range []string{"hybrid", "hybrid/xtime", "hybrid/httplimit", "redisbucket", "lease"} {
		for name := range exportedNames(t, folder) {
			ours[name] = true
			_, member, _ := strings.Cut(name, ".")
			ours[member] = true
			ours[folder[strings.LastIndex(folder, "/")+1:]+"."+name] = true
		}
	}
	for page, peer := range map[string]string{
		"docs/from-redis_rate.md":  "github.com/go-redis/redis_rate/v10",
		"docs/from-x-time-rate.md": "golang.org/x/time/rate",
		"docs/from-redisson.md":    "",
	} {
		text, err := os.ReadFile(page)
		testkit.NoErr(t, err)
		theirs := map[string]bool{}
		if peer != "" {
			out, err := exec.Command("go", "list", "-f", "{{.Dir}}", peer).Output()
			testkit.NoErr(t, err)
			theirs = exportedNames(t, strings.TrimSpace(string(out)))
		}
		rows := regexp.MustCompile(`(?m)^\| (.*?) \| (.*?) \|`).FindAllStringSubmatch(string(text), -1)
		testkit.Must(t, len(rows) > 0, "%s has no table", page)
		named := map[string]bool{}
		for _, row := range rows {
			for _, span := range codeSpan.FindAllStringSubmatch(row[1], -1) {
				named[span[1]] = true
			}
			for _, span := range codeSpan.FindAllStringSubmatch(row[2], -1) {
				name := regexp.MustCompile(`^[\w.]+`).FindString(span[1])
				if regexp.MustCompile(`^(?:[a-z]+\.)?[A-Z]`).MatchString(name) && !strings.HasPrefix(name, "time.") && !strings.HasPrefix(name, "Test") {
					testkit.Check(t, ours[name] || theirs[name], "%s: there is no %s", page, name)
				}
			}
		}
		for _, name := range slices.Sorted(maps.Keys(theirs)) {
			testkit.Check(t, named[name], "%s has no row for %s", page, name)
		}
	}
}

// TestGuideCodeIsRun: the Go code of the migration guides is that of the functions below, which the
// tests beside them run.
func TestGuideCodeIsRun(t *testing.T) {
	source, err := os.ReadFile("guide_test.go")
	testkit.NoErr(t, err)
	plain := func(code string) string {
		return regexp.MustCompile(`(?m)^\s+`).ReplaceAllString(code, "")
	}
	run := plain(string(source))
	for _, page := range []string{"docs/from-redis_rate.md", "docs/from-x-time-rate.md", "docs/from-redisson.md"} {
		text, err := os.ReadFile(page)
		testkit.NoErr(t, err)
		blocks := goBlock.FindAllStringSubmatch(string(text), -1)
		testkit.Check(t, len(blocks) > 0, "%s has no Go code", page)
		for _, b := range blocks {
			testkit.Check(t, strings.Contains(run, plain(b[1])), "%s: not in guide_test.go:\n%s", page, b[1])
		}
	}
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
	limiter, err := hybrid.Redis(client, hybrid.PerSecond(10)) // one for the whole process
	if err != nil {
		return err
	}
	defer limiter.Close()
	result, err := limiter.Take(ctx, "user 17", 1)
	if err != nil {
		return err // the context ended, or the arguments are wrong
	}
	if !result.OK {
		return fmt.Errorf("come back in %v", result.RetryAfter)
	}
	return nil
}

// TestGuideFromRedisRate: ten are admitted and the eleventh is told when to come back, by both. In
// a bubble no time passes while a server of this process works, so a slow machine is no outage.
func TestGuideFromRedisRate(t *testing.T) {
	for name, f := range map[string]func(context.Context, *redis.Client) error{"theirs": fromRedisRate, "ours": toYuzhiFromRedisRate} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := miniredis.RunT(t)
				now := time.Now()
				client := redis.NewClient(&redis.Options{Addr: server.Addr()})
				defer client.Close()
				for i := range 11 {
					// At one and the same instant redis_rate's rounding denies the tenth.
					server.SetTime(now.Add(time.Duration(i) * time.Millisecond))
					err := f(t.Context(), client)
					testkit.Check(t, (err == nil) == (i < 10), "request %d: %v", i, err)
				}
			})
		})
	}
}

func xTime() *rate.Limiter {
	limiter := rate.NewLimiter(10, 20)
	return limiter
}

func toYuzhiFromXTime(client *redis.Client) (*xtime.Limiter, error) {
	shared, err := hybrid.Redis(client, hybrid.PerSecond(10).WithBurst(20)) // one for the whole process
	if err != nil {
		return nil, err
	}
	limiter := xtime.New(shared.Key("upstream"))
	return limiter, nil
}

// TestGuideFromXTime: of both the burst of 20 goes through at once, and the next one waits.
func TestGuideFromXTime(t *testing.T) {
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	ours, err := toYuzhiFromXTime(client)
	testkit.NoErr(t, err)
	for _, l := range []interface {
		AllowN(t time.Time, n int) bool
		WaitN(ctx context.Context, n int) error
	}{xTime(), ours} {
		begin := time.Now()
		testkit.Check(t, l.AllowN(begin, 20), "%T: the burst", l)
		testkit.NoErr(t, l.WaitN(t.Context(), 1))
		testkit.Check(t, time.Since(begin) >= 90*time.Millisecond, "%T: the next one after %v", l, time.Since(begin))
	}
}

func toYuzhiFromRedisson(ctx context.Context, store lease.Store) error {
	// redisson.getRateLimiter("payments"), trySetRate(OVERALL, 10, Duration.ofSeconds(1))
	limiter, err := hybrid.New(store, hybrid.Config{Limits: []hybrid.Limit{hybrid.Sliding(10, time.Second)}})
	if err != nil {
		return err
	}
	defer limiter.Close()
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
	if err := limiter.ResetTo(ctx, "payments", hybrid.Sliding(20, time.Second)); err != nil {
		return err
	}
	return limiter.SetLimits(ctx, "payments", hybrid.Sliding(30, time.Second))
}

// TestGuideFromRedisson: the guide's calls do what it says of them.
func TestGuideFromRedisson(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, ctx := lease.NewMemoryStore(nil), t.Context()
		testkit.NoErr(t, toYuzhiFromRedisson(ctx, store))
		l, err := hybrid.New(store, hybrid.Config{Limits: []hybrid.Limit{hybrid.Sliding(10, time.Hour)}})
		testkit.NoErr(t, err)
		defer l.Close()
		limits, err := l.LimitsOf(ctx, "payments")
		testkit.Check(t, err == nil && limits[0] == hybrid.Sliding(30, time.Second), "%v, %v", limits, err)

		// trySetRate: the first one wins.
		first, err := l.TrySetLimits(ctx, "k", hybrid.Sliding(10, time.Hour))
		testkit.Check(t, err == nil && first, "%v, %v", first, err)
		again, err := l.TrySetLimits(ctx, "k", hybrid.Sliding(99, time.Hour))
		testkit.Check(t, err == nil && !again, "%v, %v", again, err)
		// tryAcquire, availablePermits.
		testkit.Check(t, l.AllowN("k", 7) && !l.AllowN("k", 4), "7 of 10, and 4 more")
		r, err := l.Peek(ctx, "k")
		testkit.Check(t, err == nil && r.Remaining == 3, "%+v, %v", r, err)
		// More than the rate is an error, as there.
		_, err = l.Take(ctx, "k", 11)
		testkit.Check(t, errors.Is(err, hybrid.ErrExceedsBurst), "%v", err)
		// updateRate: max(0, new - used); setRate: full.
		testkit.NoErr(t, l.SetLimits(ctx, "k", hybrid.Sliding(8, time.Hour)))
		r, err = l.Peek(ctx, "k")
		testkit.Check(t, err == nil && r.Remaining == 1, "7 of 8 are used: %+v, %v", r, err)
		testkit.NoErr(t, l.ResetTo(ctx, "k", hybrid.Sliding(8, time.Hour)))
		r, err = l.Peek(ctx, "k")
		testkit.Check(t, err == nil && r.Remaining == 8, "%+v, %v", r, err)
		// release is capped, however often it is called.
		testkit.Check(t, l.AllowN("k", 2), "2 of 8")
		l.Refund("k", 2)
		l.Refund("k", 2)
		time.Sleep(time.Second)
		r, err = l.Peek(ctx, "k")
		testkit.Check(t, err == nil && r.Remaining == 8, "%+v, %v", r, err)
		// A wait with a timeout that is in vain says so at once.
		testkit.Check(t, l.AllowN("k", 8), "all of it")
		begin := time.Now()
		soon, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		err = l.Wait(soon, "k")
		testkit.Check(t, errors.Is(err, hybrid.ErrWouldExceedDeadline) && time.Since(begin) < time.Second, "%v after %v", err, time.Since(begin))
	})
}

// TestGuideARateInsteadOfASlidingWindow: a token bucket of nine tenths rate and a tenth burst,
// asked for as much as there is, admits 100 and no more in every second too.
func TestGuideARateInsteadOfASlidingWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := hybrid.PerSecond(90).WithBurst(10)
		l, err := hybrid.New(lease.NewMemoryStore(nil), hybrid.Config{Limits: []hybrid.Limit{limit}})
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

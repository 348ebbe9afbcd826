package hybrid_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// onRedis returns a Limiter on a real server, and the store behind it.
func onRedis(t *testing.T, addr string, cfg hybrid.Config) (*hybrid.Limiter, *redisbucket.Store) {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	store, err := redisbucket.New(rdb, redisbucket.Config{})
	noErr(t, err)
	// A machine that stalls must not turn a wait for a lease into a denial.
	cfg.CallTimeout = 30 * time.Second
	l, err := hybrid.New(store, cfg)
	noErr(t, err)
	t.Cleanup(func() {
		l.Close()
		rdb.Close()
	})
	return l, store
}

func TestATightLoopAdmitsExactlyTheBurstOnRedis(t *testing.T) {
	addr := redistest.Start(t).Addr
	for key, burst := range map[string]int64{"one": 1, "two": 2, "ten": 10, "thousand": 1000, "many": 40000} {
		// Given a full bucket that refills one token an hour,
		l, _ := onRedis(t, addr, hybrid.Config{Limits: []hybrid.Limit{hybrid.PerHour(1).WithBurst(burst)}})
		// when one goroutine asks again and again,
		for i := range burst {
			if !l.Allow(key) {
				t.Fatalf("burst %d: request %d was denied; %+v", burst, i+1, l.Stats())
			}
		}
		// then exactly the burst is admitted.
		for range 10 {
			must(t, !l.Allow(key), "burst %d: one more was admitted", burst)
		}
	}
}

func TestShutdownGivesEverythingBackToRedis(t *testing.T) {
	// Given a process that has leased more than it spent,
	l, store := onRedis(t, redistest.Start(t).Addr, hybrid.Config{Limits: []hybrid.Limit{hybrid.PerHour(1000)}})
	for range 10 {
		must(t, l.Allow("k"), "denied")
	}
	// when it shuts down,
	noErr(t, l.Shutdown(t.Context()))
	// then the bucket has everything but what was admitted.
	st, err := store.Inspect(context.Background(), "k")
	check(t, err == nil && st.Ledger == 0 && st.Levels[0] == 990,
		"level %d, ledger %d, want 990 and 0; %v", st.Levels[0], st.Ledger, err)
	s := l.Stats()
	check(t, s.Leased == s.Admitted+s.Returned && s.Admitted == 10, "%+v", s)
}

func TestNewAndAllowDoNotHangWhileRedisIsDown(t *testing.T) {
	// Given a server that has gone,
	server := redistest.Start(t)
	addr := server.Addr
	server.Kill()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	store, err := redisbucket.New(rdb, redisbucket.Config{})
	noErr(t, err)
	for cold, want := range map[hybrid.ColdStart]bool{hybrid.ColdStartDeny: false, hybrid.ColdStartAllow: true} {
		// when a Limiter is made and asked,
		l, err := hybrid.New(store, hybrid.Config{Limits: []lease.Limit{hybrid.PerSecond(10)}, Policy: hybrid.Policy{ColdStart: cold}})
		noErr(t, err)
		// then ColdStart decides.
		got := l.Allow("k")
		check(t, got == want, "ColdStart %v: Allow is %v", cold, got)
		l.Close()
	}
}

func TestNothingIsLeftRunningAfterCloseOnRedis(t *testing.T) {
	l, _ := onRedis(t, redistest.Start(t).Addr, hybrid.Config{Limits: []hybrid.Limit{hybrid.PerSecond(1000)}})
	for range 500 {
		l.Allow("k")
	}
	l.Close()
	// They end by themselves, and there is nothing else to wait for.
	for start := time.Now(); ; {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		left := strings.Count(string(stacks), "hybrid.(*scheduler)") + strings.Count(string(stacks), "redisbucket.(*Store)")
		if left == 0 {
			return
		}
		must(t, time.Since(start) <= 30*time.Second, "still running:\n%s", stacks)
		runtime.Gosched()
	}
}

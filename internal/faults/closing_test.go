package faults

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// closing is a limiter behind a proxy, with a bucket of a thousand tokens that never refills, so that every token can be
// told.
type closing struct {
	t     *testing.T
	proxy *redistest.Proxy
	fleet *Fleet
	l     *hybrid.Limiter
}

const closingBurst = 1000

// How long a lease is valid: where a test waits for its end, and where it must not come to its end.
const (
	brief = 500 * time.Millisecond
	long  = 30 * time.Second
)

func newClosing(t *testing.T, ttl time.Duration) *closing {
	t.Helper()
	testkit.Eventually(t, "the end of what earlier tests started", func() bool { return len(running()) == 0 })
	server := redistest.Start(t)
	c := &closing{t: t, proxy: redistest.NewProxy(t, server.Addr)}
	c.fleet = NewFleet(t, Options{
		Size: 2, Addr: c.proxy.Addr, Direct: server.Addr,
		Config: hybrid.Config{
			Limits: []hybrid.Limit{hybrid.PerHour(1).WithBurst(closingBurst)}, CallTimeout: 30 * time.Second,
			// Nothing is given back unasked while the test is at it.
			Policy: hybrid.Policy{Fallback: hybrid.FallbackDeny, MinBatch: 100, TTL: ttl, Target: ttl / 3},
		},
		Client: func(o *redis.Options) { o.ReadTimeout = 2 * time.Second },
	})
	c.l = c.fleet.Limiters[0]
	// Redis must know the scripts: "NOSCRIPT" is a reply that could be held back too.
	other := c.fleet.Limiters[1]
	if !other.Allow("another key") {
		t.Fatal("denied")
	}
	must(t, other.Shutdown(t.Context()))
	return c
}

// leasing has a request wait for a lease whose reply is held back, and returns once Redis has granted it. answer says
// whether the request was admitted.
func (c *closing) leasing() (release func(), answer <-chan bool, granted lease.State) {
	c.t.Helper()
	release = c.proxy.Hold()
	c.t.Cleanup(release)
	answers := make(chan bool, 1)
	go func() { answers <- c.l.Allow("k") }()
	testkit.Eventually(c.t, "a lease in Redis", func() bool {
		granted = c.fleet.State("k")
		return granted.Exists && granted.Levels[0] < closingBurst
	})
	return release, answers, granted
}

// closed waits until the limiter refuses everything.
func (c *closing) closed() {
	c.t.Helper()
	testkit.Eventually(c.t, "a closed limiter", func() bool {
		_, err := c.l.Take(context.Background(), "k", 1)
		return errors.Is(err, hybrid.ErrClosed)
	})
}

// nothingIsLeft is oracle C and goleak: no goroutine of ours is left, nothing is held, and nothing was lost or forged.
func (c *closing) nothingIsLeft() hybrid.Stats {
	c.t.Helper()
	testkit.Eventually(c.t, "the end of all goroutines", func() bool { return len(running()) == 0 })
	c.fleet.CheckConserved()
	s := c.l.Stats()
	if s.Held != 0 || c.l.Allow("k") || c.l.Stats().Admitted != s.Admitted {
		c.t.Errorf("something is held or admitted after the end: %+v", s)
	}
	return s
}

// balance is oracle K: what the bucket has once all leases have ended.
func (c *closing) balance(want int64) {
	c.t.Helper()
	var s lease.State
	testkit.Eventually(c.t, "an empty ledger", func() bool {
		s = c.fleet.State("k")
		return s.Ledger == 0
	})
	if s.Levels[0] != want {
		c.t.Errorf("the bucket has %d, want %d", s.Levels[0], want)
	}
}

// running is the goroutines that are in the code of this module, tests excepted.
func running() []string {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	var ours []string
	for _, g := range strings.Split(string(stacks), "\n\n") {
		for _, folder := range []string{"hybrid", "redisbucket", "lease", "clock"} {
			if strings.Contains(g, "yuzhi-go/yuzhi/"+folder+".") {
				ours = append(ours, g)
				break
			}
		}
	}
	return ours
}

func TestALateGrantIsNeverSpentAfterClose(t *testing.T) {
	// Given a request that waits for a lease which Redis has granted,
	c := newClosing(t, brief)
	release, answer, granted := c.leasing()
	// when the limiter is closed before the reply comes,
	if err := c.l.Close(); err != nil {
		t.Error(err)
	}
	// then the request is denied at once,
	if <-answer {
		t.Error("the request was admitted")
	}
	// and when the reply comes, nothing of it is spent,
	release()
	if s := c.nothingIsLeft(); s.Admitted != 0 || s.Leased != 0 {
		t.Errorf("%+v", s)
	}
	// nor given back: it expires at the bucket.
	c.balance(granted.Levels[0])
}

func TestAfterCloseNothingWaitsForAReplyThatNeverComes(t *testing.T) {
	// Given a lease whose reply never comes,
	c := newClosing(t, brief)
	_, answer, granted := c.leasing()
	// when the limiter is closed,
	c.l.Close()
	if <-answer {
		t.Error("the request was admitted")
	}
	// then its goroutines end with the client's read timeout.
	c.nothingIsLeft()
	c.balance(granted.Levels[0])
}

func TestShutdownGivesBackALateGrant(t *testing.T) {
	// Given a request that waits for a lease which Redis has granted,
	c := newClosing(t, long)
	release, answer, _ := c.leasing()
	// when the limiter shuts down, and the reply comes after that has begun,
	done := make(chan error, 1)
	go func() { done <- c.l.Shutdown(context.Background()) }()
	if <-answer {
		t.Error("the request was admitted")
	}
	c.closed()
	c.proxy.Pass()
	release()
	// then Shutdown waits for it and gives all of it back, with the token of the request that was not admitted.
	if err := <-done; err != nil {
		t.Error(err)
	}
	if s := c.nothingIsLeft(); s.Leased == 0 || s.Returned+s.Refunded != s.Leased {
		t.Errorf("%+v", s)
	}
	c.balance(closingBurst)
}

func TestALateGrantIsNeverSpentWhenShutdownHasGivenUp(t *testing.T) {
	// Given a request that waits for a lease which Redis has granted,
	c := newClosing(t, brief)
	release, answer, granted := c.leasing()
	// when Shutdown has no time to wait for the reply,
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := c.l.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown: %v", err)
	}
	if <-answer {
		t.Error("the request was admitted")
	}
	// then nothing of the grant is spent when it comes, and it expires at the bucket.
	release()
	if s := c.nothingIsLeft(); s.Admitted != 0 || s.Leased != 0 {
		t.Errorf("%+v", s)
	}
	c.balance(granted.Levels[0])
}

// holding is a limiter that has spent three tokens and holds more.
func (c *closing) holding() {
	c.t.Helper()
	if !c.l.AllowN("k", 3) {
		c.t.Fatal("denied")
	}
	if c.l.Stats().Held == 0 {
		c.t.Fatal("nothing is held")
	}
}

func TestWhatIsGivenBackIsCreditedOnceThoughCloseCutsShutdownShort(t *testing.T) {
	// Given a limiter that holds tokens,
	c := newClosing(t, long)
	c.holding()
	// when Redis has executed its Shutdown's return, and Close comes before the reply,
	release := c.proxy.Hold()
	done := make(chan error, 1)
	go func() { done <- c.l.Shutdown(context.Background()) }()
	testkit.Eventually(t, "the return in Redis", func() bool { return c.fleet.Balance("k") == closingBurst-3 && c.fleet.State("k").Ledger == 0 })
	c.l.Close()
	if err := <-done; err != nil && !errors.Is(err, hybrid.ErrUnavailable) {
		t.Errorf("Shutdown: %v", err)
	}
	// then the limiter counts it as burnt, for it cannot know,
	release()
	if s := c.nothingIsLeft(); s.Admitted != 3 || s.Returned != 0 || s.Burnt != s.Leased-3 {
		t.Errorf("%+v", s)
	}
	// and the bucket has it, once.
	c.balance(closingBurst - 3)
}

func TestAShutdownWhoseReplyIsLostSaysSoAndReturnsOnce(t *testing.T) {
	// Given a limiter that holds tokens,
	c := newClosing(t, long)
	c.holding()
	// when the reply to its Shutdown's return is lost,
	c.proxy.Set(redistest.Fate{LoseReply: true})
	err := c.l.Shutdown(context.Background())
	// then it says that it does not know, and the bucket has it, once.
	if !errors.Is(err, hybrid.ErrUnavailable) {
		t.Errorf("Shutdown: %v", err)
	}
	if s := c.nothingIsLeft(); s.Admitted != 3 || s.Returned != 0 || s.Burnt != s.Leased-3 {
		t.Errorf("%+v", s)
	}
	c.balance(closingBurst - 3)
}

func TestAShutdownThatCannotReachRedisLeavesTheLeaseToExpire(t *testing.T) {
	// Given a limiter that holds tokens,
	c := newClosing(t, long)
	c.holding()
	before := c.fleet.State("k")
	// when its return never arrives,
	c.proxy.Set(redistest.Fate{DropRequest: true})
	err := c.l.Shutdown(context.Background())
	// then it says so, it spends nothing more, and the bucket counts the lease until it ends.
	if !errors.Is(err, hybrid.ErrUnavailable) {
		t.Errorf("Shutdown: %v", err)
	}
	if s := c.nothingIsLeft(); s.Admitted != 3 || s.Returned != 0 || s.Burnt != s.Leased-3 {
		t.Errorf("%+v", s)
	}
	if after := c.fleet.State("k"); after.Ledger != before.Ledger || after.Levels != before.Levels {
		t.Errorf("the bucket: %+v, before %+v", after, before)
	}
}

package faults

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// closing is a limiter behind a proxy, with a bucket of a thousand tokens that never refills, so
// that every token can be counted.
type closing struct {
	*fleet
	proxy *redistest.Proxy
	l     *hybrid.Limiter
}

const closingBurst = 1000

// The life of a lease, for tests that wait for its end, and for tests in which it must not end.
const (
	brief = 500 * time.Millisecond
	long  = 10 * time.Minute
)

func newClosing(t *testing.T, ttl time.Duration) *closing {
	t.Helper()
	testkit.Eventually(t, "the end of what earlier tests started", func() bool { return len(running()) == 0 })
	server, proxy := behindProxy(t)
	// The limiter must give nothing back on its own during the test.
	cfg := with(hybrid.PerHour(1).WithBurst(closingBurst),
		hybrid.Policy{Fallback: hybrid.FallbackDeny, MinBatch: 100, TTL: ttl, Target: ttl / 3})
	cfg.CallTimeout = time.Minute
	f := server.fleet(2, cfg)
	// Redis must know the scripts: "NOSCRIPT" is a reply that could be held back too.
	testkit.Must(t, f.limiters[1].Allow("another key"), "denied")
	testkit.NoErr(t, f.limiters[1].Shutdown(t.Context()))
	return &closing{f, proxy, f.limiters[0]}
}

// leasing makes a request wait for a lease whose reply is held back, and returns once Redis has
// granted it. answer reports whether the request was admitted.
func (c *closing) leasing() (release func(), answer <-chan bool, granted lease.State) {
	c.t.Helper()
	release = c.proxy.Hold()
	c.t.Cleanup(release)
	answers := make(chan bool, 1)
	go func() { answers <- c.l.Allow(key) }()
	testkit.Eventually(c.t, "a lease in Redis", func() bool {
		granted = c.state(key)
		return granted.Exists && granted.Levels[0] < closingBurst
	})
	return release, answers, granted
}

// nothingIsLeft is oracle C and goleak: no goroutine of ours is left, nothing is held, and nothing
// was lost or forged.
func (c *closing) nothingIsLeft() hybrid.Stats {
	c.t.Helper()
	testkit.Eventually(c.t, "the end of all goroutines", func() bool { return len(running()) == 0 })
	c.checkConserved()
	s := c.l.Stats()
	testkit.Check(c.t, s.Held == 0 && !c.l.Allow(key) && c.l.Stats().Admitted == s.Admitted, "left: %+v", s)
	return s
}

// checkLevel is oracle K: the bucket's level once all leases have ended.
func (c *closing) checkLevel(want int64) {
	c.t.Helper()
	level := c.settled().Levels[0]
	testkit.Check(c.t, level == want, "the bucket has %d, want %d", level, want)
}

// running lists the goroutines in this module's code, except tests.
func running() []string {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	var ours []string
	for g := range strings.SplitSeq(string(stacks), "\n\n") {
		for _, folder := range []string{"hybrid", "redisbucket", "lease", "clock"} {
			if strings.Contains(g, "yuzhi-go/yuzhi/"+folder+".") {
				ours = append(ours, g)
				break
			}
		}
	}
	return ours
}

func TestRow35ALateGrantIsNeverSpent(t *testing.T) {
	testkit.LongOnly(t)
	closes := func(t *testing.T, l *hybrid.Limiter) { testkit.NoErr(t, l.Close()) }
	for name, c := range map[string]struct {
		end     func(*testing.T, *hybrid.Limiter)
		arrives bool // the reply, in the end; otherwise its connection breaks
	}{
		"after Close":                   {closes, true},
		"that never comes, after Close": {closes, false},
		"when Shutdown has given up": {func(t *testing.T, l *hybrid.Limiter) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			err := l.Shutdown(ctx)
			testkit.Check(t, errors.Is(err, context.Canceled), "Shutdown: %v", err)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			// Given a request that waits for a lease which Redis has granted,
			f := newClosing(t, brief)
			release, answer, granted := f.leasing()
			// when the limiter ends before the reply comes,
			c.end(t, f.l)
			// then the request is denied at once,
			testkit.Check(t, !<-answer, "the request was admitted")
			// and when the reply comes, nothing of it is spent,
			if c.arrives {
				release()
			} else {
				f.proxy.Set(redistest.Fate{DropRequest: true})
				f.proxy.Cut()
			}
			s := f.nothingIsLeft()
			testkit.Check(t, s.Admitted == 0 && s.Leased == 0, "%+v", s)
			// nor given back: it expires at the bucket.
			f.checkLevel(granted.Levels[0])
		})
	}
}

func TestRow35ShutdownGivesBackALateGrant(t *testing.T) {
	testkit.LongOnly(t)
	// Given a request that waits for a lease which Redis has granted,
	c := newClosing(t, long)
	release, answer, _ := c.leasing()
	// when the limiter shuts down, and the reply comes after that has begun,
	done := make(chan error, 1)
	go func() { done <- c.l.Shutdown(context.Background()) }()
	testkit.Check(t, !<-answer, "the request was admitted")
	testkit.Eventually(t, "a closed limiter", func() bool {
		_, err := c.l.Take(t.Context(), key, 1)
		return errors.Is(err, hybrid.ErrClosed)
	})
	c.proxy.Pass()
	release()
	// then Shutdown waits for it and gives all of it back, with the token of the request that was denied.
	testkit.NoErr(t, <-done)
	s := c.nothingIsLeft()
	testkit.Check(t, s.Leased > 0 && s.Returned+s.Refunded == s.Leased, "%+v", s)
	c.checkLevel(closingBurst)
}

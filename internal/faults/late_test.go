package faults

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

func TestRow06ADuplicateReplyIsDropped(t *testing.T) {
	t.Parallel()
	// given a fleet whose every token can be counted, on a network that delivers every reply twice
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	f := newStock(t, proxy.Addr, server.Addr, size, hybrid.Config{})
	proxy.Set(redistest.Fate{Rewrite: redistest.Twice})
	// when it is used
	load := f.Load("k", perEach)
	f.answered(t, 10)
	load.Stop()
	proxy.Pass()
	// then a reply is good for one call
	f.check(t)
}

func TestRow06ALateReplyIsDroppedOnceTheRetryWasAnswered(t *testing.T) {
	t.Parallel()
	// given a process whose every token can be counted
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	f := newStock(t, proxy.Addr, server.Addr, 1, hybrid.Config{CallTimeout: time.Second})
	load := f.Load("k", perEach)
	f.answered(t, 1)
	// when a call is executed and its reply is held back
	release := proxy.Hold()
	defer release()
	f.more(t, "calls without answer", 1, func(sent, _ int64) int64 { return sent })
	// until it was sent again, and that was answered
	proxy.Pass()
	f.answered(t, 2)
	release()
	f.answered(t, 2)
	load.Stop()
	// then the late reply changes nothing
	f.check(t)
}

func TestRow06RepliesThatComeTooLateAdmitNothing(t *testing.T) {
	t.Parallel()
	// given a fleet on an ordinary bucket
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	f := NewFleet(t, Options{Size: size, Addr: proxy.Addr, Direct: server.Addr, Config: hybrid.Config{
		Limits: []hybrid.Limit{limit}, Policy: hybrid.Policy{Fallback: hybrid.FallbackDeny, StrictExpiry: true}, CallTimeout: callTimeout,
	}})
	load := f.Load("k", perEach)
	f.Warm()
	for range 2 {
		// when all replies are held back until every limiter has sent several calls, and then come at once
		release := proxy.Hold()
		before := proxy.Calls()
		testkit.Eventually(t, "calls without answer", func() bool { return proxy.Calls() >= before+3*size })
		release()
		proxy.Pass()
		f.AwaitRecovery(limit.Tokens)
	}
	load.Stop()
	// then what they bring is within the bound
	f.CheckBound("k", limit, 0)
	f.CheckConserved()
	f.CheckNobodyWaited("k", 0, f.Now(), nobodyWaits)
}

func TestRow07ASlowServerIsBetterThanNone(t *testing.T) {
	t.Parallel()
	// given a fleet on a network that takes 50 to 500 ms for a call
	slow := hybrid.PerSecond(1000).WithBurst(4000)
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	proxy.Set(redistest.Fate{Delay: 500 * time.Millisecond})
	f := NewFleet(t, Options{Size: size, Addr: proxy.Addr, Direct: server.Addr, Config: hybrid.Config{
		Limits: []hybrid.Limit{slow}, Policy: hybrid.Policy{Fallback: hybrid.FallbackDeny, StrictExpiry: true}, CallTimeout: callTimeout,
	}})
	// when it is asked for half of the rate
	const each = 167
	load := f.Load("k", each)
	// then sooner or later, when it knows how slow the network is, half of them are admitted for a second, and more in
	// most (how many in virtual time, where a machine's own slowness does not count: TestRow07PrefetchingHidesASlowNetwork)
	var then Seen
	testkit.Eventually(t, "a second with half of the requests admitted", func() bool {
		proxy.Set(redistest.Fate{Delay: 50*time.Millisecond + rand.N(450*time.Millisecond)})
		now := f.Now()
		then = f.Seen("k", max(0, now-time.Second), now)
		return then.Admitted > each*size/2
	})
	load.Stop()
	t.Logf("while it learns: %+v, then: %+v; %+v", f.Seen("k", 0, f.Now()-time.Second), then, f.Stats())
	f.CheckBound("k", slow, 0)
	f.CheckConserved()
	f.CheckNobodyWaited("k", 0, f.Now(), nobodyWaits)
}

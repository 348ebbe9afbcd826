package faults

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

func TestRow07ASlowServerIsBetterThanNone(t *testing.T) {
	t.Parallel()
	// given a fleet on a network that takes 50 to 500 ms for a call
	slow := hybrid.PerSecond(1000).WithBurst(4000)
	server, proxy := behindProxy(t)
	proxy.Set(redistest.Fate{Delay: 500 * time.Millisecond})
	f := NewFleet(t, Options{Size: size, Addr: proxy.Addr, Direct: server.Addr, Config: hybrid.Config{
		Limits: []hybrid.Limit{slow}, Policy: strict, CallTimeout: callTimeout,
	}})
	// when it is asked for half of the rate
	const each = 167
	load := f.Load("k", each)
	// then, when it knows how slow the network is, half of them are admitted for a second. (How many
	// are, in virtual time, where a machine's own slowness does not count:
	// TestRow07PrefetchingHidesASlowNetwork.)
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
	f.CheckNobodyWaited("k", 0, f.Now())
}

// TestRow07AHandshakeOverASlowLinkIsNoOutage: on this link a handshake takes longer than
// CallTimeout, a call does not.
func TestRow07AHandshakeOverASlowLinkIsNoOutage(t *testing.T) {
	t.Parallel()
	for name, warm := range map[string]bool{"warmed by Ping": true, "cold": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, proxy := behindProxy(t)
			proxy.Set(redistest.Fate{Far: 100 * time.Millisecond})
			f := NewFleet(t, Options{Size: 1, Addr: proxy.Addr, Direct: server.Addr,
				Config: ordinary(denying)})
			l := f.Limiters[0]
			conns := 0
			if warm {
				// Given a limiter whose connections are warm,
				must(t, l.Ping(t.Context()))
				conns = proxy.Accepted()
			}
			// when requests come until one is served,
			testkit.Eventually(t, "service", func() bool { return l.Allow("k") })
			// then no call has failed meanwhile, for the connection that it had to wait for or for
			// any other reason,
			if s := l.Stats(); s.Errors > 0 {
				t.Errorf("%+v", s)
			}
			// and a warm limiter opened no further connection.
			if warm && proxy.Accepted() != conns {
				t.Errorf("%d connections more", proxy.Accepted()-conns)
			}
		})
	}
}

func TestRow07PrefetchingHidesASlowNetwork(t *testing.T) {
	for name, c := range map[string]struct {
		trip  func() time.Duration
		waits time.Duration // the most that anybody waits
	}{
		"50 ms":  {always(50 * time.Millisecond), 0},
		"150 ms": {always(150 * time.Millisecond), 0},
		"500 ms": {always(500 * time.Millisecond), 0},
		// Where round trips differ by 450 ms, some 3 of 200,000 requests wait for the rest of one.
		"50 to 500 ms": {func() time.Duration { return 50*time.Millisecond + rand.N(450*time.Millisecond) },
			50 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// given three processes that are asked for half of the rate, over a network that is slow, and a
				// burst that covers its round trips
				slow := hybrid.PerSecond(1000).WithBurst(4000)
				w := newWire(c.trip)
				f := NewFleetOn(t, hybrid.Config{Limits: []hybrid.Limit{slow}, Policy: denying}, w, w, w)
				load := f.Load("k", 167)
				// when they have learnt how slow it is
				time.Sleep(10 * time.Second)
				learnt := f.Now()
				time.Sleep(20 * time.Second)
				// then nobody is denied, and nobody waits for longer
				calls, _ := w.most(time.Now().Add(-20*time.Second), time.Second)
				learning, then := f.Seen("k", 0, learnt), f.Seen("k", learnt, f.Now())
				t.Logf("the first 10 s: %+v; the next 20 s: %+v; at most %d calls/s", learning, then, calls)
				if then.Denied > 0 || then.Slowest > c.waits {
					t.Errorf("%d of %d denied, slowest %v", then.Denied, then.Admitted+then.Denied,
						then.Slowest)
				}
				load.Stop()
				time.Sleep(5 * time.Second) // for the last reports
				f.CheckBound("k", slow, 0)
			})
		})
	}
}

package faults

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// TestRow07AHandshakeOverASlowLinkIsNoOutage: on this link a handshake takes longer than
// CallTimeout, a call does not.
func TestRow07AHandshakeOverASlowLinkIsNoOutage(t *testing.T) {
	t.Parallel()
	for name, warm := range map[string]bool{"warmed by Ping": true, "cold": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			proxy := redistest.NewProxy(t, server.Addr)
			proxy.Set(redistest.Fate{Far: 100 * time.Millisecond})
			f := NewFleet(t, Options{Size: 1, Addr: proxy.Addr, Direct: server.Addr, Config: hybrid.Config{
				Limits: []hybrid.Limit{limit}, CallTimeout: 250 * time.Millisecond, Policy: hybrid.Policy{Fallback: hybrid.FallbackDeny},
			}})
			l := f.Limiters[0]
			conns := 0
			if warm {
				// Given a limiter whose connections are warm,
				if err := l.Ping(t.Context()); err != nil {
					t.Fatal(err)
				}
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

package faults

import (
	"testing"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
)

// lossy is a network that meets fate again and again, and passes in between.
func lossy(t *testing.T, fate redistest.Fate) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	// given a process whose every token can be counted, and a fleet on an ordinary bucket, whose leases end while a call
	// is sent again and again
	f := newStock(t, proxy.Addr, server.Addr, 1, hybrid.Config{})
	stocks := f.Load("k", perEach)
	g := NewFleet(t, Options{Size: size, Addr: proxy.Addr, Direct: server.Addr, Config: hybrid.Config{
		Limits: []hybrid.Limit{limit}, Policy: hybrid.Policy{Fallback: hybrid.FallbackDeny, StrictExpiry: true}, CallTimeout: callTimeout,
	}})
	load := g.Load("k2", perEach)
	f.answered(t, 1)
	g.Warm()
	// when both lose calls, many times over
	for range 5 {
		proxy.Set(fate)
		f.failing(t)
		proxy.Pass()
		f.answered(t, 3)
	}
	stocks.Stop()
	// then a call was drawn for once, however often it was sent, and nothing of it is missing
	f.check(t)
	f.CheckNobodyWaited("k", 0, f.Now(), nobodyWaits)
	// and the ordinary fleet stayed within its bound, and is back at its rate
	g.AwaitRecovery(limit.Tokens)
	load.Stop()
	g.CheckBound("k2", limit, 0)
	g.CheckConserved()
	g.CheckNobodyWaited("k2", 0, g.Now(), nobodyWaits)
	if st := g.Stats(); st.Errors == 0 {
		t.Errorf("nothing was lost: %+v", st)
	}
}

func TestRow04ALostReplyIsDrawnForOnce(t *testing.T) { lossy(t, redistest.Fate{LoseReply: true}) }

func TestRow05ALostRequestIsSentAgain(t *testing.T) { lossy(t, redistest.Fate{DropRequest: true}) }

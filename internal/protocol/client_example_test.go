package protocol_test

import (
	"fmt"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// ExampleClient is the loop around a Client for one key, beside the bucket and with nothing in
// between.
func ExampleClient() {
	now := clock.Instant(time.Hour)
	policy := lease.Policy{MinBatch: 2}
	config := policy.ConfigFor([]lease.Limit{lease.PerSecond(1000)}, 0, 0)
	var bucket protocol.Bucket
	var c protocol.Client
	c.Start(now, &printer{}, protocol.ClientConfig{
		ID: "a", Policy: &policy, Proposed: &config,
		CallTimeout: lease.DefaultCallTimeout,
	})
	// A request finds nothing leased, and waits.
	one := protocol.Ask{N: 1, Patience: protocol.OneCall}
	if !c.Holder.Pool.Take().OK() && c.Decide(now, one).Verdict == protocol.VerdictWait {
		c.Enqueue(now, &protocol.Waiter{Ask: one})
	}
	// So a call is due, and its reply serves the request.
	if c.Tick(now, 0).Call {
		r := c.Build(now, 1, 0)
		var g lease.Grant
		if err := bucket.Call(int64(now)/1000, r, &g); err != nil {
			c.Fail(now, err)
		} else if got, ok := c.Accept(now, &g); ok {
			c.Serve(now, got)
		}
	}
	// The next one is served from what is leased.
	fmt.Println(c.Holder.Pool.Take().OK(), c.Holder.Account().Conserved())
	// Output:
	// the request that waits is admitted: true
	// true true
}

// well is of a node that is never away.
var well = protocol.NewBreaker(time.Second, time.Second, 1)

// printer is a protocol.Host that says what became of requests, and needs nothing else.
type printer struct{}

func (*printer) Now() clock.Instant                              { return clock.Instant(time.Hour) }
func (*printer) Wake(bool)                                       {}
func (*printer) DeniesOne(clock.Instant)                         {}
func (*printer) Handed(*protocol.Waiter, int64, protocol.Origin) {}
func (*printer) Passed(_, _ *protocol.Waiter, _ int64)           {}
func (*printer) Forfeited(*protocol.Waiter)                      {}
func (*printer) Breaker() *protocol.Breaker                      { return well }
func (*printer) NewID() string                                   { return "b" }
func (*printer) Settled(w *protocol.Waiter, d protocol.Decision) {
	fmt.Println("the request that waits is admitted:", d.OK())
}

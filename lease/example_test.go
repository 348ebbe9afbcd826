package lease_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
)

// A MemoryStore takes the place of Redis where one process is all there is.
func ExampleNewMemoryStore() {
	store := lease.NewMemoryStore(nil)
	c := lease.Policy{}.ConfigFor([]lease.Limit{lease.PerHour(100)}, 0, 0)
	st, err := store.Configure(context.Background(), "k", lease.OpSet, c)
	fmt.Println(st.Levels[0], st.Config.TTL, err)
	// Output: 100 400ms <nil>
}

// Whatever cannot be held exactly is refused, and the error names what can.
func ExampleLimit_Validate() {
	fmt.Println(lease.PerSecond(100).Validate())
	err := lease.Limit{Tokens: 1, Per: time.Second, Burst: -1}.Validate()
	fmt.Println(errors.Is(err, lease.ErrInvalidLimit))
	// Output:
	// <nil>
	// true
}

// A Policy's zero value is a good default; every violation of another one is named at once.
func ExamplePolicy_Validate() {
	fmt.Println(lease.Policy{}.Validate())
	fmt.Println(lease.Policy{Target: time.Second, TTL: time.Second, MinBatch: 5, MaxBatch: 4}.Validate())
	// Output:
	// <nil>
	// lease: invalid policy: TTL is 1s, must be at least 2*Target (2s)
	// lease: invalid policy: MinBatch is 5, must be at most MaxBatch (4)
}

// ExampleClient is the loop around a Client for one key, beside the bucket and with nothing in
// between.
func ExampleClient() {
	now := clock.Instant(time.Hour)
	policy := lease.Policy{MinBatch: 2}
	var bucket lease.Bucket
	var c lease.Client
	c.Start(now, &printer{}, lease.ClientConfig{
		ID: "a", Policy: &policy, Proposed: policy.ConfigFor([]lease.Limit{lease.PerSecond(1000)}, 0, 0),
		CallTimeout: lease.DefaultCallTimeout,
	})
	// A request finds nothing leased, and waits.
	if !c.Pool.Take().OK() && c.Decide(now, 1, lease.OneCall, lease.Never).Verdict == lease.VerdictWait {
		c.Enqueue(now, &lease.Waiter{N: 1, Patience: lease.OneCall})
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
	fmt.Println(c.Pool.Take().OK(), c.Account().Conserved())
	// Output:
	// the request that waits is admitted: true
	// true true
}

// printer is a lease.Host that says what became of requests, and needs nothing else.
type printer struct{}

func (*printer) Now() clock.Instant                        { return clock.Instant(time.Hour) }
func (*printer) Wake(bool)                                 {}
func (*printer) Shut(clock.Instant)                        {}
func (*printer) Handed(*lease.Waiter, int64, lease.Origin) {}
func (*printer) Forfeited(*lease.Waiter)                   {}
func (*printer) Breaker() *lease.Breaker                   { return nil }
func (*printer) NewID() string                             { return "b" }
func (*printer) Settled(w *lease.Waiter, d lease.Decision) {
	fmt.Println("the request that waits is admitted:", d.OK())
}

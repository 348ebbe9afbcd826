package live

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/stamps"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// holdMost is the longest time until it is known what a reserved request cost.
const holdMost = 200 * time.Millisecond

// tries is a request of --shadow: one that is admitted only because of shadow mode is counted as
// denied.
func (c *child) tries() bool {
	r, err := c.key.Take(context.Background(), 1)
	return err == nil && r.OK && !r.Shadowed
}

// reserve is a request of --reserve. It takes one token, and turns out to cost none, one or two. It
// is recorded, as of when it was admitted, once it is known that it has happened: a process that is
// killed before leaves no record, which only makes the audit miss it.
func (c *child) reserve() {
	before := stamps.Now()
	began := stopwatch()
	r, err := c.key.Reserve(context.Background(), 1)
	took, after := stopwatch()-began, stamps.After()
	c.file.Offered().Add(1)
	c.took.observe(c.took.decisions, took)
	if err != nil || !r.OK() || r.Result().Shadowed {
		c.denied.Append(before, after)
		return
	}
	cost := rand.Int64N(3)
	c.reserved.Add(1)
	time.AfterFunc(time.Duration(rand.Int64N(int64(holdMost))), func() {
		defer c.reserved.Done()
		if cost == 0 {
			r.Cancel()
			c.cancelled.Add(1)
			return
		}
		c.file.Append(before, after)
		_ = r.Settle(cost) // an error where the limiter is closed, which is not before all have settled
	})
}

// charges counts what the bucket has certainly been charged: once for each call that it answered.
type charges struct {
	total atomic.Int64
}

func (c *charges) answered(group []*lease.Call) {
	for _, call := range group {
		if call.Err == nil {
			c.total.Add(call.Request.Charge)
		}
	}
}

// Settled is what became of the reservations of all processes.
type Settled struct {
	Cancelled int64 `json:"cancelled"`
	Charged   int64 `json:"charged"` // tokens that requests used beyond what they had reserved
	Owed      int64 `json:"owed"`    // of them: by the bucket, at the end
	// ExceededBy is by how much all that was used in the whole run exceeds what the bucket had at the
	// start, what flowed in, and what it owes at the end: more than 0 where it forgave a charge.
	ExceededBy int64 `json:"exceeded_by"`
}

// owed is how many tokens the bucket owes now.
func (v *server) owed(ctx context.Context, key string) (int64, error) {
	store, err := redisbucket.New(v.rdb, redisbucket.Config{})
	if err != nil {
		return 0, fmt.Errorf("leasesim: %w", err)
	}
	st, err := store.Inspect(ctx, key)
	if err != nil {
		return 0, fmt.Errorf("leasesim: %w", err)
	}
	return max(0, -st.Levels[0]), nil
}

// settled judges the whole run, which took so long: admitted is what was kept.
func (o Options) settled(admitted, owed int64, took time.Duration, fleet []*process) *Settled {
	s := &Settled{Owed: owed}
	for _, p := range fleet {
		s.Cancelled += p.told.Cancelled
		s.Charged += p.told.Charged
	}
	s.ExceededBy = max(0, admitted+s.Charged-owed-int64(o.entitlement(took)))
	return s
}

package faults

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
)

// wire is the way to a reference bucket, for virtual time: everything on it happens at exact
// moments.
type wire struct {
	inner *lease.MemoryStore
	trip  func() time.Duration // a round trip

	mu sync.Mutex
	// what a call ends with while the store is away; nil while it is there
	down   func(ctx context.Context) error
	calls  []time.Time // when each was sent
	debts  int64       // reported in calls that were executed
	repaid int64       // of debts: what the bucket had, and took
}

func newWire(trip func() time.Duration) *wire {
	return &wire{inner: lease.NewMemoryStore(nil), trip: trip}
}

// always is a network whose round trips take d.
func always(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

// refusing is a store that is not there: a call fails at once.
func refusing(context.Context) error {
	return fmt.Errorf("%w: %w", lease.ErrUnavailable, lease.ErrRefused)
}

// hanging is a store that takes calls and does not answer them.
func hanging(ctx context.Context) error {
	<-ctx.Done()
	return fmt.Errorf("%w: %w", lease.ErrUnavailable, ctx.Err())
}

// goDown takes the store away, with nil brings it back.
func (w *wire) goDown(how func(context.Context) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = how
}

// Exchange implements lease.Store.
func (w *wire) Exchange(ctx context.Context, calls []*lease.Call, done func([]*lease.Call)) {
	err := w.send(ctx, calls)
	for _, c := range calls {
		c.Node = 0
		if err != nil {
			c.Grant, c.Err = lease.Grant{}, err
		}
	}
	done(calls)
}

func (w *wire) send(ctx context.Context, calls []*lease.Call) error {
	w.mu.Lock()
	for range calls {
		w.calls = append(w.calls, time.Now())
	}
	down := w.down
	w.mu.Unlock()
	if down != nil {
		return down(ctx)
	}
	trip := w.trip()
	time.Sleep(trip / 2) // the network, in virtual time
	w.repay(calls)
	w.inner.Exchange(ctx, calls, func([]*lease.Call) {})
	time.Sleep(trip - trip/2)
	return nil
}

// repay notes what the bucket will take of the debts that calls report.
func (w *wire) repay(calls []*lease.Call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range calls {
		if c.Request.Debt == 0 {
			continue
		}
		w.debts += c.Request.Debt
		if st, err := w.inner.Configure(context.Background(), c.Key, lease.OpInspect,
			lease.Config{}); err == nil {
			w.repaid += min(c.Request.Debt, st.Levels[0])
		}
	}
}

// Configure implements lease.Store.
func (w *wire) Configure(ctx context.Context, key string, op lease.Op, c lease.Config) (lease.State, error) {
	return w.inner.Configure(ctx, key, op, c)
}

// most is the largest number of calls that were sent within any d from `from` on.
func (w *wire) most(from time.Time, d time.Duration) (n, total int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	first := 0
	for first < len(w.calls) && w.calls[first].Before(from) {
		first++
	}
	total = len(w.calls) - first
	for i := first; i < len(w.calls); i++ {
		for w.calls[first].Add(d).Before(w.calls[i]) {
			first++
		}
		n = max(n, i-first+1)
	}
	return n, total
}

func (w *wire) owed() (debts, repaid int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.debts, w.repaid
}

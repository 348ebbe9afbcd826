package faults

import (
	"context"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// Allow asks limiter i for a token of name, on record.
func (f *Fleet) Allow(i int, name string) bool {
	return f.Ask(name, func() bool { return f.Limiters[i].Allow(name) })
}

// Spend takes n tokens of name through limiter i, which must be there.
func (f *Fleet) Spend(i int, name string, n int64) {
	f.t.Helper()
	for range n {
		if !f.Allow(i, name) {
			f.t.Fatalf("%s is denied at limiter %d", name, i)
		}
	}
}

// Drain asks limiter i for one token of name after another and returns how many there were.
func (f *Fleet) Drain(i int, name string) (admitted int64) {
	for f.Allow(i, name) {
		admitted++
	}
	return admitted
}

// SpendAndSettle is Spend on key that waits until what came along is given back, so that the bucket
// has what a central one would.
func (f *Fleet) SpendAndSettle(i int, n int64) {
	f.t.Helper()
	f.Spend(i, key, n)
	// Nothing held may mean that a call is about to bring more: for many looks nothing may be held,
	// under way or begun.
	l, calls, looks := f.Limiters[i], int64(-1), 0
	testkit.Eventually(f.t, "all given back", func() bool {
		s := l.Stats()
		if looks++; s.Held != 0 || s.Calls != s.RoundTrips || s.Calls != calls {
			calls, looks = s.Calls, 0
		}
		return looks >= 100
	})
}

// TakeAll drains the bucket of key through limiter i, which is to find n tokens in it and no more.
// While others count as active it gets only its share at a time. What it lost because the machine
// stood still for longer than a lease lasts counts as found.
func (f *Fleet) TakeAll(i int, n int64) {
	f.t.Helper()
	had := int64(0)
	testkit.Eventually(f.t, "all tokens", func() bool {
		had += f.Drain(i, key)
		st := f.State(key)
		return st.Exists && st.Levels[0] == 0 && st.Ledger == 0 && had+f.Limiters[i].Stats().Burnt >= n
	})
	if refilled := int64(f.Now().Hours() * float64(hourly.Tokens)); had > n+refilled {
		f.t.Errorf("%d admitted, %d were to be found", had, n)
	}
}

// settled is the bucket of key once nothing of it is leased any more.
func settled(t *testing.T, s *redisbucket.Store) (st lease.State) {
	t.Helper()
	testkit.Eventually(t, "nothing leased", func() bool {
		var err error
		st, err = s.Inspect(context.Background(), key)
		must(t, err)
		return st.Ledger == 0
	})
	return st
}

// direct is the lease call that a store makes for one token, without a limiter around it.
func direct(s lease.Store, name string) error { return directly(context.Background(), s, name) }

func directly(ctx context.Context, s lease.Store, name string) error {
	c := &lease.Call{Key: name, Request: lease.Request{Holder: "operator", Seq: 1, Want: 1, Weight: 1,
		Config: patient(hourly, denying).Policy.ConfigFor(patient(hourly, denying).Limits, 0, 0)}}
	s.Exchange(ctx, []*lease.Call{c}, func([]*lease.Call) {})
	return c.Err
}

package faults

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

func storeOn(t *testing.T, rdb redis.UniversalClient) *redisbucket.Store {
	t.Helper()
	t.Cleanup(func() { rdb.Close() })
	s, err := redisbucket.New(rdb, redisbucket.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// direct is the lease call that a store makes for one token, without a limiter around it.
func direct(s lease.Store, name string) error { return directly(context.Background(), s, name) }

func directly(ctx context.Context, s lease.Store, name string) error {
	c := &lease.Call{Key: name, Request: lease.Request{Holder: "operator", Seq: 1, Want: 1, Weight: 1,
		Config: patient(hourly, denying).Policy.ConfigFor(patient(hourly, denying).Limits, 0, 0)}}
	s.Exchange(ctx, []*lease.Call{c}, func([]*lease.Call) {})
	return c.Err
}

// settled is the bucket once nothing of it is leased any more.
func settled(t *testing.T, s *redisbucket.Store) (st lease.State) {
	t.Helper()
	testkit.Eventually(t, "nothing leased", func() bool {
		var err error
		if st, err = s.Inspect(context.Background(), key); err != nil {
			t.Fatal(err)
		}
		return st.Ledger == 0
	})
	return st
}

// takeAll drains the bucket through limiter i, which is to find n tokens in it and no more: while others count as active
// it gets only its share at a time. What it lost because the machine stood still for longer than a lease lasts counts.
func takeAll(t *testing.T, f *Fleet, i int, n int64) {
	t.Helper()
	had := int64(0)
	testkit.Eventually(t, "all tokens", func() bool {
		had += drain(f, i, key)
		st := f.State(key)
		return st.Exists && st.Levels[0] == 0 && st.Ledger == 0 && had+f.Limiters[i].Stats().Burnt >= n
	})
	if refilled := int64(f.Now().Hours() * float64(hourly.Tokens)); had > n+refilled {
		t.Errorf("%d admitted, %d were to be found", had, n)
	}
}

// spend takes n tokens, which must be there, and waits until what came along is given back, so that the bucket has
// what a central one would.
func spend(t *testing.T, f *Fleet, i int, n int64) {
	t.Helper()
	l := f.Limiters[i]
	for range n {
		if !f.Ask(key, func() bool { return l.Allow(key) }) {
			t.Fatal("denied")
		}
	}
	// Nothing held may mean that a call is about to bring more: nothing may be held, under way or begun in many looks.
	calls, looks := int64(-1), 0
	testkit.Eventually(t, "all given back", func() bool {
		s := l.Stats()
		if looks++; s.Held != 0 || s.Calls != s.RoundTrips || s.Calls != calls {
			calls, looks = s.Calls, 0
		}
		return looks >= 100
	})
}

func do(t *testing.T, rdb *redis.Client, args ...any) any {
	t.Helper()
	v, err := rdb.Do(context.Background(), args...).Result()
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return v
}

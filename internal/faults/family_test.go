//go:build unix

package faults

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// family is what a test has on one server: its own view of the bucket of key "k", limiters in its own process, and
// child processes.
type family struct {
	t     *testing.T
	store *redisbucket.Store
}

func newFamily(t *testing.T, addr string) *family {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { rdb.Close() })
	store, err := redisbucket.New(rdb, redisbucket.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return &family{t, store}
}

// inspect is oracle K: the balance in Redis.
func (f *family) inspect() lease.State {
	f.t.Helper()
	s, err := f.store.Inspect(context.Background(), "k")
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

// limiter is one more process of the fleet, in the test's own. It is closed with the test, and its account checked.
func (f *family) limiter(cfg hybrid.Config) *hybrid.Limiter { return limiterOn(f.t, f.store, cfg) }

func limiterOn(t *testing.T, s lease.Store, cfg hybrid.Config) *hybrid.Limiter {
	t.Helper()
	l, err := hybrid.New(s, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conserved(t, "a limiter", l.Stats())
		l.Close()
	})
	return l
}

// launch starts n child processes, and lets them go when all are ready.
func (f *family) launch(n int, o orders) []*process {
	f.t.Helper()
	ps := make([]*process, n)
	for i := range ps {
		ps[i] = launch(f.t, o)
	}
	for _, p := range ps {
		p.hear("ready", new(any))
	}
	for _, p := range ps {
		p.tell("start")
	}
	return ps
}

// admits waits until n more tokens have been admitted.
func (f *family) admits(rec *stampRecord, n int64) {
	f.t.Helper()
	want := sum(rec.file.AppendSpans(nil)) + n
	testkit.EventuallyNil(f.t, func() error {
		have := sum(rec.file.AppendSpans(nil))
		return unless(have >= want, "only %d admitted, want %d", have, want)
	})
}

// outlastLeases waits until leases that nobody renews from now on have ended: T and two slices of T/7, by the server's
// clock. T is the one in force, which grows where calls take long.
func (f *family) outlastLeases() {
	f.t.Helper()
	began := f.inspect().ServerTime
	testkit.EventuallyNil(f.t, func() error {
		s := f.inspect()
		past, most := time.Duration(s.ServerTime-began)*time.Microsecond, s.Config.TTL*9/7
		return unless(past > most, "%v past of %v", past, most)
	})
}

// finish shuts processes down and checks their accounts.
func (f *family) finish(ps []*process) []report {
	f.t.Helper()
	rs := make([]report, len(ps))
	for i, p := range ps {
		rs[i] = p.finish()
		conserved(f.t, fmt.Sprintf("process %d", i), rs[i].Stats)
	}
	return rs
}

// Package yuzhi_test has the benchmarks of the hot path: the cost of a decision beside a reference
// in the same run, so that a slow machine slows both. The metric "ratio" is ours to the reference.
//
//	go test -run '^$' -bench . -count 3 .
package yuzhi_test

import (
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease/memory"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

var (
	plenty = hybrid.PerSecond(1 << 40).WithBurst(1 << 40) // no benchmark exhausts it
	none   = hybrid.PerHour(1)                            // its first token exhausts it
)

// newLimiter is a limiter in memory that ends with the benchmark.
func newLimiter(b *testing.B, cfg hybrid.Config) *hybrid.Limiter {
	b.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler) // or its lines stand between the figures
	l, err := hybrid.New(memory.New(nil), cfg)
	testkit.NoErr(b, err)
	b.Cleanup(func() { l.Close() })
	return l
}

// newKey is a key that holds tokens, or of which it is known that it has none.
func newKey(b *testing.B, limit hybrid.Limit, policy hybrid.Policy) *hybrid.Key {
	b.Helper()
	k := newLimiter(b, hybrid.Config{Limits: []hybrid.Limit{limit}, Policy: policy}).Key("k")
	k.Allow()
	for limit == none && k.Allow() {
	}
	return k
}

var counter atomic.Int64

//go:noinline
func addOne() bool { return counter.Add(1) != 0 }

func addMany(n int) {
	for range n {
		addOne()
	}
}

func allowMany(k *hybrid.Key) func(n int) {
	return func(n int) {
		for range n {
			k.Allow()
		}
	}
}

// everywhere spreads n calls over goroutines on all cores.
func everywhere(f func(n int)) func(n int) {
	return func(n int) {
		var wg sync.WaitGroup
		for range runtime.GOMAXPROCS(0) {
			wg.Go(func() { f(n / runtime.GOMAXPROCS(0)) })
		}
		wg.Wait()
	}
}

// The reference is one bare atomic add behind a call.
func BenchmarkKeyAllow(b *testing.B) {
	testkit.Ratio(b, allowMany(newKey(b, plenty, hybrid.Policy{})), addMany)
}

// The reference is one bare atomic add behind a call.
func BenchmarkKeyAllowDenied(b *testing.B) {
	testkit.Ratio(b, allowMany(newKey(b, none, hybrid.Policy{})), addMany)
}

// With Events.Denied set; the reference is the same without, so that the difference is the call of
// the function.
func BenchmarkKeyAllowDeniedTold(b *testing.B) {
	told := 0
	cfg := hybrid.Config{Limits: []hybrid.Limit{none}}
	cfg.Events.Denied = func(string, int64) { told++ }
	k := newLimiter(b, cfg).Key("k")
	for k.Allow() {
	}
	testkit.Ratio(b, allowMany(k), allowMany(newKey(b, none, hybrid.Policy{})))
	testkit.Check(b, told >= b.N, "told of %d denials", told)
}

// The reference is one bare atomic add behind a call; StrictExpiry costs a reading of the clock.
func BenchmarkKeyAllowStrict(b *testing.B) {
	testkit.Ratio(b, allowMany(newKey(b, plenty, hybrid.Policy{StrictExpiry: true})), addMany)
}

// All cores on one key; the reference is all cores on one bare atomic counter.
func BenchmarkKeyAllowAllCores(b *testing.B) {
	testkit.Ratio(b, everywhere(allowMany(newKey(b, plenty, hybrid.Policy{}))), everywhere(addMany))
}

// All cores on one key without tokens; the reference is all cores on one bare atomic counter.
func BenchmarkKeyAllowDeniedAllCores(b *testing.B) {
	testkit.Ratio(b, everywhere(allowMany(newKey(b, none, hybrid.Policy{}))), everywhere(addMany))
}

// The decision by name, with the look-up; the reference is the same through a Key.
func BenchmarkLimiterAllow(b *testing.B) {
	l := newLimiter(b, hybrid.Config{Limits: []hybrid.Limit{plenty}})
	k := l.Key("k")
	k.Allow()
	testkit.Ratio(b, func(n int) {
		for range n {
			l.Allow("k")
		}
	}, allowMany(k))
}

// One token of each of three warm keys; the reference is Key.Allow of one.
func BenchmarkJoinedAllow(b *testing.B) {
	l := newLimiter(b, hybrid.Config{Limits: []hybrid.Limit{plenty}})
	j, k := l.Join(l.Key("1"), l.Key("2"), l.Key("3")), newKey(b, plenty, hybrid.Policy{})
	testkit.Must(b, j.Allow(), "denied")
	testkit.Ratio(b, func(n int) {
		for range n {
			j.Allow()
		}
	}, allowMany(k))
}

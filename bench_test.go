// Package yuzhi_test holds the headline benchmarks: what a decision costs beside what it is measured against,
// in one run.
//
//	go test -run '^$' -bench . -count 5 .
package yuzhi_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

// plenty is never exhausted by a benchmark.
var plenty = hybrid.PerSecond(1 << 40).WithBurst(1 << 40)

// none is exhausted after its first token.
var none = hybrid.PerHour(1)

func newKey(b *testing.B, limit hybrid.Limit, policy hybrid.Policy) *hybrid.Key {
	b.Helper()
	l, err := hybrid.New(lease.NewMemoryStore(nil), hybrid.Config{Limits: []hybrid.Limit{limit}, Policy: policy})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	k := l.Key("k")
	k.Allow()
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

// measure times f and a reference in turns within one benchmark, and reports their ratio, so that a change of
// the machine's speed between two benchmarks does not show.
//
// Each runs its own loop of n direct calls: through a func value a method costs a second call.
func measure(b *testing.B, f, reference func(n int)) {
	b.ReportAllocs()
	const turns = 16
	n := b.N/turns + 1
	var own, other time.Duration
	b.ResetTimer()
	for range turns {
		start := time.Now()
		f(n)
		own += time.Since(start)
		start = time.Now()
		reference(n)
		other += time.Since(start)
	}
	b.StopTimer()
	total := float64(turns * n)
	b.ReportMetric(float64(own)/total, "own-ns/op")
	b.ReportMetric(float64(other)/total, "reference-ns/op")
	b.ReportMetric(float64(own)/float64(other), "ratio")
}

// The reference is one bare atomic add behind a call.
func BenchmarkKeyAllow(b *testing.B) {
	k := newKey(b, plenty, hybrid.Policy{})
	measure(b, allowMany(k), addMany)
}

// The reference is one bare atomic add behind a call.
func BenchmarkKeyAllowDenied(b *testing.B) {
	k := newKey(b, none, hybrid.Policy{})
	k.Allow()
	measure(b, allowMany(k), addMany)
}

// The reference is one bare atomic add behind a call; the clock reading is what StrictExpiry costs.
func BenchmarkKeyAllowStrict(b *testing.B) {
	k := newKey(b, plenty, hybrid.Policy{StrictExpiry: true})
	measure(b, allowMany(k), addMany)
}

// The reference is golang.org/x/time/rate.
func BenchmarkKeyAllowAgainstTimeRate(b *testing.B) {
	k := newKey(b, plenty, hybrid.Policy{})
	r := rate.NewLimiter(rate.Limit(1<<40), 1<<40)
	measure(b, allowMany(k), func(n int) {
		for range n {
			r.Allow()
		}
	})
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

// All cores on one key; the reference is all cores on one bare atomic counter.
func BenchmarkKeyAllowAllCores(b *testing.B) {
	k := newKey(b, plenty, hybrid.Policy{})
	measure(b, everywhere(allowMany(k)), everywhere(addMany))
}

// All cores on one key without tokens; the reference is all cores on one bare atomic counter.
func BenchmarkKeyAllowDeniedAllCores(b *testing.B) {
	k := newKey(b, none, hybrid.Policy{})
	k.Allow()
	measure(b, everywhere(allowMany(k)), everywhere(addMany))
}

// The decision by name, with the look-up; the reference is the same through a Key.
func BenchmarkLimiterAllow(b *testing.B) {
	l, err := hybrid.New(lease.NewMemoryStore(nil), hybrid.Config{Limits: []hybrid.Limit{plenty}})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	k := l.Key("k")
	k.Allow()
	measure(b, func(n int) {
		for range n {
			l.Allow("k")
		}
	}, allowMany(k))
}

// TestAllowDoesNotAllocate pins what the hot path promises.
func TestAllowDoesNotAllocate(t *testing.T) {
	l, err := hybrid.New(lease.NewMemoryStore(nil), hybrid.Config{Limits: []hybrid.Limit{plenty}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	k := l.Key("k")
	k.Allow()
	strict, err := hybrid.New(lease.NewMemoryStore(nil), hybrid.Config{Limits: []hybrid.Limit{plenty}, Policy: hybrid.Policy{StrictExpiry: true}})
	if err != nil {
		t.Fatal(err)
	}
	defer strict.Close()
	empty, err := hybrid.New(lease.NewMemoryStore(nil), hybrid.Config{Limits: []hybrid.Limit{none}})
	if err != nil {
		t.Fatal(err)
	}
	defer empty.Close()
	timed, denied := strict.Key("k"), empty.Key("k")
	timed.Allow()
	for denied.Allow() { // until the bucket is known to be empty
	}
	for name, f := range map[string]func() bool{
		"Key.Allow, strict": timed.Allow,
		"Key.Allow, denied": denied.Allow,
		"Key.Allow":         k.Allow,
		"Key.TryAllow":      k.TryAllow,
		"Key.AllowN":        func() bool { return k.AllowN(3) },
		"Limiter.Allow":     func() bool { return l.Allow("k") },
	} {
		// A renewal on the scheduler's goroutine allocates now and then; over ten thousand decisions it does
		// not reach one allocation each.
		if n := testing.AllocsPerRun(10000, func() { f() }); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

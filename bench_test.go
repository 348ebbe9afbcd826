// Package yuzhi_test holds the headline benchmarks: what a decision costs beside what it is
// measured against, in one run, so that a slow machine slows both. The metric "ratio" is ours to
// the reference.
//
//	go test -run '^$' -bench . -count 5 .
package yuzhi_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

var (
	plenty = hybrid.PerSecond(1 << 40).WithBurst(1 << 40) // no benchmark exhausts it
	none   = hybrid.PerHour(1)                            // its first token exhausts it
)

// smoke says whether -benchtime is a count (1x, 10x): each benchmark is to run, not to measure.
func smoke() bool {
	f := flag.Lookup("test.benchtime")
	return f != nil && strings.HasSuffix(f.Value.String(), "x")
}

// newLimiter is a limiter that ends with the benchmark. Without a store it leases from memory.
func newLimiter(tb testing.TB, store lease.Store, cfg hybrid.Config) *hybrid.Limiter {
	tb.Helper()
	if store == nil {
		store = lease.NewMemoryStore(nil)
	}
	cfg.Logger = slog.New(slog.DiscardHandler) // or its lines stand between the figures
	l, err := hybrid.New(store, cfg)
	testkit.NoErr(tb, err)
	tb.Cleanup(func() { l.Close() })
	return l
}

// newKey is a key that holds tokens, or of which it is known that it has none.
func newKey(tb testing.TB, limit hybrid.Limit, policy hybrid.Policy) *hybrid.Key {
	tb.Helper()
	k := newLimiter(tb, nil, hybrid.Config{Limits: []hybrid.Limit{limit}, Policy: policy}).Key("k")
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

// measure times f and a reference in turns. Each runs its own loop of n direct calls: through a
// func value a method costs a second call.
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
	measure(b, allowMany(newKey(b, plenty, hybrid.Policy{})), addMany)
}

// The reference is one bare atomic add behind a call.
func BenchmarkKeyAllowDenied(b *testing.B) {
	measure(b, allowMany(newKey(b, none, hybrid.Policy{})), addMany)
}

// With Events.Denied set; the reference is the same without, so that the difference is the call of
// the function.
func BenchmarkKeyAllowDeniedTold(b *testing.B) {
	told := 0
	cfg := hybrid.Config{Limits: []hybrid.Limit{none}}
	cfg.Events.Denied = func(string, int64) { told++ }
	k := newLimiter(b, nil, cfg).Key("k")
	for k.Allow() {
	}
	measure(b, allowMany(k), allowMany(newKey(b, none, hybrid.Policy{})))
	testkit.Check(b, told >= b.N, "told of %d denials", told)
}

// The reference is one bare atomic add behind a call; StrictExpiry costs a reading of the clock.
func BenchmarkKeyAllowStrict(b *testing.B) {
	measure(b, allowMany(newKey(b, plenty, hybrid.Policy{StrictExpiry: true})), addMany)
}

// The reference is golang.org/x/time/rate.
func BenchmarkKeyAllowAgainstTimeRate(b *testing.B) {
	r := rate.NewLimiter(rate.Limit(1<<40), 1<<40)
	measure(b, allowMany(newKey(b, plenty, hybrid.Policy{})), func(n int) {
		for range n {
			r.Allow()
		}
	})
}

// All cores on one key; the reference is all cores on one bare atomic counter.
func BenchmarkKeyAllowAllCores(b *testing.B) {
	measure(b, everywhere(allowMany(newKey(b, plenty, hybrid.Policy{}))), everywhere(addMany))
}

// All cores on one key without tokens; the reference is all cores on one bare atomic counter.
func BenchmarkKeyAllowDeniedAllCores(b *testing.B) {
	measure(b, everywhere(allowMany(newKey(b, none, hybrid.Policy{}))), everywhere(addMany))
}

// The decision by name, with the look-up; the reference is the same through a Key.
func BenchmarkLimiterAllow(b *testing.B) {
	l := newLimiter(b, nil, hybrid.Config{Limits: []hybrid.Limit{plenty}})
	k := l.Key("k")
	k.Allow()
	measure(b, func(n int) {
		for range n {
			l.Allow("k")
		}
	}, allowMany(k))
}

// One token of each of three warm keys; the reference is Key.Allow of one.
func BenchmarkJoinedAllow(b *testing.B) {
	j, k := newJoined(b, 3), newKey(b, plenty, hybrid.Policy{})
	measure(b, func(n int) {
		for range n {
			j.Allow()
		}
	}, allowMany(k))
}

// newJoined is so many keys that hold tokens.
func newJoined(tb testing.TB, keys int) *hybrid.Joined {
	tb.Helper()
	l := newLimiter(tb, nil, hybrid.Config{Limits: []hybrid.Limit{plenty}})
	var all []*hybrid.Key
	for i := range keys {
		all = append(all, l.Key(fmt.Sprint(i)))
	}
	j := l.Join(all...)
	testkit.Must(tb, j.Allow(), "denied")
	return j
}

// TestAllowDoesNotAllocate pins what the hot path promises.
func TestAllowDoesNotAllocate(t *testing.T) {
	l := newLimiter(t, nil, hybrid.Config{Limits: []hybrid.Limit{plenty}})
	k := l.Key("k")
	k.Allow()
	three, four := newJoined(t, 3), newJoined(t, 4)
	for name, f := range map[string]func() bool{
		"Joined.Allow":      three.Allow,
		"Joined.Allow of 4": four.Allow,
		"Joined.AllowN":     func() bool { return three.AllowN(3) },
		"Joined.Wait":       func() bool { return three.Wait(context.Background()) == nil },
		"Key.Allow, strict": newKey(t, plenty, hybrid.Policy{StrictExpiry: true}).Allow,
		"Key.Allow, denied": newKey(t, none, hybrid.Policy{}).Allow,
		"Key.Allow":         k.Allow,
		"Key.TryAllow":      k.TryAllow,
		"Key.AllowN":        func() bool { return k.AllowN(3) },
		"Limiter.Allow":     func() bool { return l.Allow("k") },
	} {
		// A renewal on the scheduler's goroutine allocates now and then, which over ten thousand
		// decisions does not come to one allocation each.
		n := testing.AllocsPerRun(10000, func() { f() })
		testkit.Check(t, n == 0, "%s allocates %v times", name, n)
	}
}

// generous is a Store that grants everything at once and remembers nothing, so that what is
// measured is the table of keys.
type generous struct{ lease.Store }

// Exchange implements lease.Store.
func (generous) Exchange(_ context.Context, calls []*lease.Call, done func([]*lease.Call)) {
	for _, c := range calls {
		r := &c.Request
		c.Err = nil
		c.Grant = lease.Grant{
			Seq: r.Seq, Granted: r.Want, Waited: min(r.Waiting, r.Want), Config: r.Config,
			Epoch: 1, Counter: r.Counter + 1, ActiveWeight: 1, Expiry: time.Hour, ServerTime: 1,
		}
		c.Grant.Levels[0] = r.Config.Limits[0].Capacity()
	}
	done(calls)
}

// many is a million keys; a twentieth in a smoke run.
func many() int {
	if smoke() {
		return 50_000
	}
	return 1_000_000
}

// customers are n names in random order.
func customers(n int) []string {
	s := make([]string, n)
	for i := range s {
		s[i] = fmt.Sprintf("customer:%07d", i)
	}
	rand.Shuffle(n, func(i, j int) { s[i], s[j] = s[j], s[i] })
	return s
}

// newTable is a limiter with room for keysMax keys on a generous store.
func newTable(b *testing.B, limit hybrid.Limit, keysMax int) *hybrid.Limiter {
	return newLimiter(b, generous{}, hybrid.Config{Limits: []hybrid.Limit{limit}, KeysMax: keysMax})
}

// awaitRest waits until every key of l has given back what it held.
func awaitRest(l *hybrid.Limiter) {
	for s := l.Stats(); s.Held > 0 || s.InUse > 0; s = l.Stats() {
		time.Sleep(200 * time.Millisecond) // the pace of looking
	}
}

// heapInUse is the bytes that live on the heap.
func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkIdleKeyBytes is the heap that a key costs which nobody uses any more: its name (16
// bytes), the table, and the scheduler's lists. The reference is the goal.
func BenchmarkIdleKeyBytes(b *testing.B) {
	const goal = 300
	million := many()
	names := customers(million)
	l := newTable(b, hybrid.PerHour(1000), 2*million)
	before := heapInUse()
	for _, n := range names {
		l.TryAllow(n)
	}
	awaitRest(l)
	bytes := float64(heapInUse()-before) / float64(million)
	testkit.Must(b, l.Stats().Keys == million, "%+v", l.Stats())
	b.ReportMetric(bytes, "B/key")
	b.ReportMetric(bytes/goal, "ratio")
	runtime.KeepAlive(names)
}

// BenchmarkNewKeys makes a million keys in an empty table, and then a million in one that is full,
// each of which makes the key leave that is idle for longest. A creation is a TryAllow and, on the
// scheduler's goroutine, a lease call and its reply. The reference is the goal, a rate on one core.
func BenchmarkNewKeys(b *testing.B) {
	const goal = 500_000
	million := many()
	names := customers(2 * million)
	l := newTable(b, hybrid.PerHour(1000), million)
	took := make([]time.Duration, million)
	for at, what := range []string{"creations", "evictions"} {
		start := time.Now()
		last := start
		for i, n := range names[at*million : (at+1)*million] {
			l.TryAllow(n)
			now := time.Now()
			took[i] = now.Sub(last)
			last = now
		}
		rate := float64(million) / last.Sub(start).Seconds()
		awaitRest(l)
		s := l.Stats()
		testkit.Must(b, s.Keys == million && s.Invalid <= 0, "%+v", s)
		slices.Sort(took)
		b.ReportMetric(rate, what+"/s")
		b.ReportMetric(rate/goal, what+"-ratio")
		b.ReportMetric(took[million-1].Seconds()*1e3, what+"-worst-ms")
		b.ReportMetric(took[million/10000*9999].Seconds()*1e3, what+"-p99.99-ms")
	}
}

// BenchmarkLimiterAllowOfAMillion is the decision by name for 10,000 hot keys among a million; the
// reference is a Key's. The goal is 100 ns more than that.
func BenchmarkLimiterAllowOfAMillion(b *testing.B) {
	million := many()
	names := customers(million)
	l := newTable(b, hybrid.PerSecond(1<<30), 2*million)
	for _, n := range names {
		l.TryAllow(n)
	}
	awaitRest(l)
	hot := make([]string, 10_000)
	for i := range hot {
		hot[i] = strings.Clone(names[i]) // a service has just read the name out of its request
	}
	for cold := true; cold; {
		cold = false
		for _, n := range hot {
			cold = !l.TryAllow(n) || cold
		}
	}
	i := 0
	measure(b, func(n int) {
		for range n {
			l.Allow(hot[i])
			if i++; i == len(hot) {
				i = 0
			}
		}
	}, allowMany(l.Key(hot[0])))
	// Beside it: any of the million. Nearly all are at rest, so that a call goes out for each.
	uniform := min(million/10, b.N)
	start := time.Now()
	for _, n := range names[10_000:][:uniform] {
		l.TryAllow(n)
	}
	b.ReportMetric(float64(time.Since(start))/float64(uniform), "uniform-ns/op")
}

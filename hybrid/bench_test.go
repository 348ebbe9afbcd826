package hybrid_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/lease/memory"
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
		store = memory.New(nil)
	}
	cfg.Logger = slog.New(slog.DiscardHandler) // or its lines stand between the figures
	l, err := hybrid.New(store, cfg)
	testkit.NoErr(tb, err)
	tb.Cleanup(func() { l.Close() })
	return l
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
			Status: lease.Status{Config: r.Config, Epoch: 1, Counter: r.Counter + 1, ActiveWeight: 1, ServerTime: 1},
			Seq:    r.Seq, Granted: r.Want, Waited: min(r.Waiting, r.Want), Expiry: time.Hour,
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
func awaitRest(b *testing.B, l *hybrid.Limiter) {
	b.Helper()
	from := time.Now()
	for s := l.Stats(); s.Held > 0 || s.InUse > 0; s = l.Stats() {
		testkit.Must(b, time.Since(from) < 2*time.Minute, "some keys do not rest: %+v", s)
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

// BenchmarkIdleKeyBytes reports the heap that a key at rest costs: its name (16
// bytes), the table, and the scheduler's lists. The reference is the goal.
func BenchmarkIdleKeyBytes(b *testing.B) {
	const goal = 300
	million := many()
	names := customers(million)
	l := newTable(b, hybrid.PerHour(1000), 2*million)
	before := heapInUse()
	for _, n := range names {
		l.Key(n).TryAllow()
	}
	awaitRest(b, l)
	bytes := float64(heapInUse()-before) / float64(million)
	testkit.Must(b, l.Stats().Keys == million, "%+v", l.Stats())
	b.ReportMetric(bytes, "B/key")
	b.ReportMetric(bytes/goal, "ratio")
	runtime.KeepAlive(names)
}

// BenchmarkLimiterAllowOfAMillion is the decision by name for 10,000 hot keys among a million; the
// reference is a Key's. The goal is 100 ns more than that.
func BenchmarkLimiterAllowOfAMillion(b *testing.B) {
	million := many()
	names := customers(million)
	l := newTable(b, hybrid.PerSecond(1<<30), 2*million)
	for _, n := range names {
		l.Key(n).TryAllow()
	}
	awaitRest(b, l)
	hot := make([]string, 10_000)
	for i := range hot {
		hot[i] = strings.Clone(names[i]) // a service has just read the name out of its request
	}
	for cold := true; cold; {
		cold = false
		for _, n := range hot {
			cold = !l.Key(n).TryAllow() || cold
		}
	}
	i := 0
	k := l.Key(hot[0])
	testkit.Ratio(b, func(n int) {
		for range n {
			l.Allow(hot[i])
			if i++; i == len(hot) {
				i = 0
			}
		}
	}, func(n int) {
		for range n {
			k.Allow()
		}
	})
	// Beside it: any of the million. Nearly all are at rest, so that a call goes out for each.
	uniform := min(million/10, b.N)
	start := time.Now()
	for _, n := range names[10_000:][:uniform] {
		l.Key(n).TryAllow()
	}
	b.ReportMetric(float64(time.Since(start))/float64(uniform), "uniform-ns/op")
}

// TestAllowDoesNotAllocate: neither a decision of one key nor one of several allocates.
// silent is a store that never answers.
type silent struct{ lease.Store }

func (silent) Exchange(ctx context.Context, _ []*lease.Call, _ func([]*lease.Call)) { <-ctx.Done() }

func TestAllowDoesNotAllocate(t *testing.T) {
	plenty := []hybrid.Limit{hybrid.PerSecond(1 << 40).WithBurst(1 << 40)}
	l := newLimiter(t, nil, hybrid.Config{Limits: plenty})
	strict := newLimiter(t, nil, hybrid.Config{Limits: plenty, Policy: hybrid.Policy{StrictExpiry: true}})
	empty := newLimiter(t, nil, hybrid.Config{Limits: []hybrid.Limit{hybrid.PerHour(1)}}).Key("k")
	for empty.Allow() {
	}
	k, cold := l.Key("k"), newLimiter(t, silent{}, hybrid.Config{Limits: plenty}).Key("k")
	three := l.Join(k, l.Key("2"), l.Key("3"))
	four := l.Join(k, l.Key("2"), l.Key("3"), l.Key("4"))
	for name, f := range map[string]func() bool{
		"Joined.Allow":      three.Allow,
		"Joined.Allow of 4": four.Allow,
		"Joined.AllowN":     func() bool { return three.AllowN(3) },
		"Joined.Wait":       func() bool { return three.Wait(context.Background()) == nil },
		"Key.Allow, strict": strict.Key("k").Allow,
		"Key.Allow, denied": empty.Allow,
		"Key.Allow":         k.Allow,
		"Key.TryAllow":      k.TryAllow,
		"Key.TryAllow cold": cold.TryAllow,
		"Key.AllowN":        func() bool { return k.AllowN(3) },
		"Limiter.Allow":     func() bool { return l.Allow("k") },
	} {
		// A renewal on the scheduler's goroutine allocates now and then, which over ten thousand
		// decisions does not come to one allocation each.
		n := testing.AllocsPerRun(10000, func() { f() })
		testkit.Check(t, n == 0, "%s allocates %v times", name, n)
	}
}

// histogram counts latencies in classes that are 3 % wide: a run has millions.
type histogram [64 << histogramBits]int64

const histogramBits = 5

func (h *histogram) add(d time.Duration) {
	v := uint64(max(d, 1<<histogramBits))
	shift := bits.Len64(v) - 1 - histogramBits
	h[shift<<histogramBits+int(v>>shift)&(1<<histogramBits-1)]++
}

func (h *histogram) merge(other *histogram) {
	for i, n := range other {
		h[i] += n
	}
}

func (h *histogram) count() (total int64) {
	for _, n := range h {
		total += n
	}
	return total
}

// quantile is the lower end of the class of the p-th quantile; of the last one there is for 1.
func (h *histogram) quantile(p float64) (d time.Duration) {
	left := int64(p * float64(h.count()))
	for i, n := range h {
		if n > 0 {
			shift := i >> histogramBits
			d = time.Duration((1<<histogramBits + i&(1<<histogramBits-1)) << shift)
		}
		if left -= n; left < 0 {
			break
		}
	}
	return d
}

// report reports percentiles under name, in microseconds.
func (h *histogram) report(b *testing.B, name string, percentiles map[string]float64) {
	b.Helper()
	for label, p := range percentiles {
		b.ReportMetric(float64(h.quantile(p))/float64(time.Microsecond), name+"-"+label+"-us")
	}
}

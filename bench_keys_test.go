package yuzhi_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

// generous is a Store that grants everything at once and remembers nothing, so that what is measured is the table.
type generous struct{ lease.Store }

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

// many is a million keys; a twentieth where a count of runs was asked for, which is a smoke test.
func many() int {
	if span(time.Second) < time.Second {
		return 50_000
	}
	return 1_000_000
}

// customers are so many names, in random order.
func customers(n int) []string {
	s := make([]string, n)
	for i := range s {
		s[i] = fmt.Sprintf("customer:%07d", i)
	}
	rand.Shuffle(n, func(i, j int) { s[i], s[j] = s[j], s[i] })
	return s
}

func newLimiter(b *testing.B, limit hybrid.Limit, keysMax int) *hybrid.Limiter {
	b.Helper()
	l, err := hybrid.New(generous{}, hybrid.Config{Limits: []hybrid.Limit{limit}, KeysMax: keysMax})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	return l
}

// settle waits until every key of l has given back what it held and is at rest.
func settle(l *hybrid.Limiter) {
	for s := l.Stats(); s.Held > 0 || s.InUse > 0; s = l.Stats() {
		time.Sleep(200 * time.Millisecond) // the pace of looking
	}
}

// heapInUse is what lives on the heap now.
func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkIdleKeyBytes is what a key that is not used any more costs in the heap, with its name (16 bytes), the table,
// and the room that the scheduler's lists keep. The reference is the goal.
func BenchmarkIdleKeyBytes(b *testing.B) {
	const goal = 300
	million := many()
	ns := customers(million)
	l := newLimiter(b, hybrid.PerHour(1000), 2*million)
	before := heapInUse()
	for _, n := range ns {
		l.TryAllow(n)
	}
	settle(l)
	bytes := float64(heapInUse()-before) / float64(million)
	if l.Stats().Keys != million {
		b.Fatalf("%+v", l.Stats())
	}
	b.ReportMetric(bytes, "B/key")
	b.ReportMetric(bytes/goal, "ratio")
	runtime.KeepAlive(ns)
}

// BenchmarkNewKeys makes a million keys in an empty table, and then a million in one that is full, each of which makes
// the one that is idle for longest leave. A creation is a TryAllow and, on the scheduler's goroutine, a lease call and
// its reply. The reference of the ratio is the goal, 500,000 a second and core.
func BenchmarkNewKeys(b *testing.B) {
	const goal = 500_000
	million := many()
	ns := customers(2 * million)
	l := newLimiter(b, hybrid.PerHour(1000), million)
	took := make([]time.Duration, million)
	for at, name := range []string{"creations", "evictions"} {
		start := time.Now()
		last := start
		for i, n := range ns[at*million : (at+1)*million] {
			l.TryAllow(n)
			now := time.Now()
			took[i] = now.Sub(last)
			last = now
		}
		rate := float64(million) / last.Sub(start).Seconds()
		settle(l)
		if s := l.Stats(); s.Keys != million || s.Invalid > 0 {
			b.Fatalf("%+v", s)
		}
		slices.Sort(took)
		b.ReportMetric(rate, name+"/s")
		b.ReportMetric(rate/goal, name+"-ratio")
		b.ReportMetric(took[million-1].Seconds()*1e3, name+"-worst-ms")
		b.ReportMetric(took[million/10000*9999].Seconds()*1e3, name+"-p99.99-ms")
	}
}

// BenchmarkLimiterAllowOfAMillion is the decision by name for 10,000 hot keys among a million; the reference is a Key's. The
// goal is 100 ns more than that.
func BenchmarkLimiterAllowOfAMillion(b *testing.B) {
	million := many()
	ns := customers(million)
	l := newLimiter(b, hybrid.PerSecond(1<<30), 2*million)
	for _, n := range ns {
		l.TryAllow(n)
	}
	settle(l)
	hot := make([]string, 10_000)
	for i := range hot {
		hot[i] = strings.Clone(ns[i]) // a service has just read the name out of its request
	}
	warm := func(names []string) {
		for held := false; !held; {
			held = true
			for _, n := range names {
				held = l.TryAllow(n) && held
			}
		}
	}
	warm(hot)
	i, k := 0, l.Key(hot[0])
	measure(b, func(n int) {
		for range n {
			l.Allow(hot[i])
			if i++; i == len(hot) {
				i = 0
			}
		}
	}, allowMany(k))
	// Beside it: any of the million, nearly all of which are at rest, so that an entry is made and a call goes out.
	uniform := min(million/10, b.N)
	start := time.Now()
	for _, n := range ns[10_000:][:uniform] {
		l.TryAllow(n)
	}
	b.ReportMetric(float64(time.Since(start))/float64(uniform), "uniform-ns/op")
}

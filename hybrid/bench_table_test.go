package hybrid

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
)

// BenchmarkTable is the table alone, without scheduler and lease calls: 200,000 keys come, each
// with its entry, go to rest, and as many others push them out. The reference of the ratios is the
// goal, 500,000 a second and core.
func BenchmarkTable(b *testing.B) {
	const million, goal = 200_000, 500_000
	names := make([]string, 2*million)
	for i := range names {
		names[i] = fmt.Sprintf("customer:%07d", i)
	}
	l := &Limiter{cfg: Config{Limits: []Limit{PerHour(1000)}, KeysMax: million}.withDefaults()}
	l.defaults = l.cfg.Policy.ConfigFor(l.cfg.Limits, 0, l.cfg.CallTimeout)
	l.nodes.init()
	l.keys.init()
	l.id.Store(&l.instance)
	l.scheduler.init(l)
	took := make([]time.Duration, million)
	for at, name := range []string{"creation", "eviction"} {
		start := time.Now()
		last := start
		for i, n := range names[at*million : (at+1)*million] {
			e, err := l.entry(n, true)
			if err != nil {
				b.Fatal(err)
			}
			e.mu.Lock()
			l.keys.idle.push(e.slot, clock.Instant(i), time.Hour)
			e.restLocked(clock.Instant(i))
			e.mu.Unlock()
			now := time.Now()
			took[i] = now.Sub(last)
			last = now
		}
		rate := million / last.Sub(start).Seconds()
		slices.Sort(took)
		b.ReportMetric(rate, name+"s/s")
		b.ReportMetric(rate/goal, name+"s-ratio")
		b.ReportMetric(took[million-1].Seconds()*1e3, name+"-worst-ms")
		l.scheduler.first, l.scheduler.last = nil, nil // who is there has gone to rest
	}
	if n := l.keys.size.Load(); n != million {
		b.Fatalf("%d keys", n)
	}
}

package hybridotel_test

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/hybridotel"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

// A request that the process decides by itself, admitted or denied, touches no instrument and no tracer,
// and allocates nothing.
func TestAllowTouchesNothing(t *testing.T) {
	bubble(t, func(t *world) {
		c := config(hybrid.PerHour(100).WithBurst(1_000_000))
		c.Policy.MinBatch = 500_000
		l := t.start(c)
		full, empty := l.Key("full"), l.Key("empty")
		must(t, full.Allow() && empty.AllowN(1_000_000) && !empty.Allow(), "the burst is a million")
		noErr(t, t.Wait(t.Context(), full))
		touches := func() (n float64) {
			synctest.Wait()
			for name, count := range t.metrics() {
				if strings.HasPrefix(name, "store.") || strings.HasPrefix(name, "wait.") {
					n += count
				}
			}
			return n + float64(len(t.spans.Started()))
		}
		before := touches()
		must(t, before >= 6, "%v touches of three lease calls and a wait", before)
		for _, k := range []*hybrid.Key{full, empty} {
			allocs := testing.AllocsPerRun(1000, func() { k.Allow() })
			check(t, allocs == 0, "%v allocations", allocs)
		}
		check(t, touches() == before, "%v touches", touches()-before)
	})
}

// BenchmarkKeyAllow times Key.Allow of a Limiter that is reported and of one that is not, in turns:
//
//	go test -run '^$' -bench KeyAllow -count 10 ./hybrid/hybridotel
//
// The Limiter that is reported is registered, its Store too, and a reader collects ten times a
// second. "denied" is the same for a key that has no tokens.
func BenchmarkKeyAllow(b *testing.B) {
	for name, limit := range map[string]hybrid.Limit{
		"admitted": hybrid.PerSecond(1 << 40).WithBurst(1 << 40), "denied": hybrid.PerHour(1),
	} {
		b.Run(name, func(b *testing.B) {
			key := func(s lease.Store) (*hybrid.Limiter, *hybrid.Key) {
				l, err := hybrid.New(s, hybrid.Config{
					Name: "api", Limits: []hybrid.Limit{limit}, Logger: slog.New(slog.DiscardHandler),
				})
				noErr(b, err)
				b.Cleanup(func() { l.Close() })
				k := l.Key("k")
				for range 100 { // until it is warm, or empty
					k.Allow()
					time.Sleep(time.Millisecond)
				}
				return l, k
			}
			meters, collected := newMetersRead(b, 100*time.Millisecond)
			traces := trace.NewTracerProvider()
			telemetry, err := hybridotel.New(hybridotel.Config{MeterProvider: meters, TracerProvider: traces})
			noErr(b, err)
			_, plain := key(memory.New(nil))
			l, reported := key(telemetry.Store(memory.New(nil)))
			defer telemetry.Register(l)()
			const turns = 64
			n := b.N/turns + 1
			var with, without time.Duration
			b.ReportAllocs()
			b.ResetTimer()
			for range turns {
				with += timed(reported, n)
				without += timed(plain, n)
			}
			b.StopTimer()
			total := float64(turns * n)
			b.ReportMetric(float64(with)/total, "reported-ns/op")
			b.ReportMetric(float64(without)/total, "plain-ns/op")
			b.ReportMetric(float64(with-without)/total, "difference-ns/op")
			b.ReportMetric(float64(collected()), "collections")
		})
	}
}

// timed returns the time that n calls of k.Allow take.
func timed(k *hybrid.Key, n int) time.Duration {
	begun := time.Now()
	for range n {
		k.Allow()
	}
	return time.Since(begun)
}

package hybridotel_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/hybridotel"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

// touches counts every use of the instruments and the tracer that it provides.
type touches struct {
	metricnoop.MeterProvider
	n atomic.Int64
}

func (p *touches) Meter(string, ...metric.MeterOption) metric.Meter { return touchedMeter{touches: p} }

type touchedMeter struct {
	metricnoop.Meter
	touches *touches
}

func (m touchedMeter) Int64Counter(string, ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return touchedCounter{touches: m.touches}, nil
}

func (m touchedMeter) Float64Histogram(
	string, ...metric.Float64HistogramOption,
) (metric.Float64Histogram, error) {
	return touchedHistogram{touches: m.touches}, nil
}

type touchedCounter struct {
	metricnoop.Int64Counter
	touches *touches
}

func (c touchedCounter) Add(context.Context, int64, ...metric.AddOption) { c.touches.n.Add(1) }

type touchedHistogram struct {
	metricnoop.Float64Histogram
	touches *touches
}

func (h touchedHistogram) Record(context.Context, float64, ...metric.RecordOption) {
	h.touches.n.Add(1)
}

type touchedTraces struct {
	tracenoop.TracerProvider
	touches *touches
}

func (p touchedTraces) Tracer(string, ...trace.TracerOption) trace.Tracer {
	return touchedTracer{touches: p.touches}
}

type touchedTracer struct {
	tracenoop.Tracer
	touches *touches
}

func (t touchedTracer) Start(
	ctx context.Context, name string, options ...trace.SpanStartOption,
) (context.Context, trace.Span) {
	t.touches.n.Add(1)
	return t.Tracer.Start(ctx, name, options...)
}

// A request that the process decides by itself, be it admitted or denied, touches no instrument and
// no tracer, and allocates nothing.
func TestAllowTouchesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		touched := &touches{}
		telemetry, err := hybridotel.New(hybridotel.Config{
			MeterProvider: touched, TracerProvider: touchedTraces{touches: touched},
		})
		noErr(t, err)
		c := config(hybrid.PerHour(100).WithBurst(1_000_000))
		c.Logger, c.Policy.MinBatch = slog.New(slog.DiscardHandler), 500_000
		l, err := hybrid.New(telemetry.Store(memory.New(nil)), c)
		noErr(t, err)
		defer l.Close()
		defer telemetry.Register(l)()
		full, empty := l.Key("full"), l.Key("empty")
		must(t, full.Allow() && empty.AllowN(1_000_000) && !empty.Allow(), "the burst is a million")
		noErr(t, telemetry.Wait(t.Context(), full)) // touches the tracer, the histogram
		synctest.Wait()
		before := touched.n.Load()
		must(t, before >= 6, "%d touches of three lease calls and a wait", before)
		for _, k := range []*hybrid.Key{full, empty} {
			allocs := testing.AllocsPerRun(1000, func() { k.Allow() })
			check(t, allocs == 0, "%v allocations", allocs)
		}
		check(t, touched.n.Load() == before, "%d touches", touched.n.Load()-before)
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
			telemetry, err := hybridotel.New(hybridotel.Config{MeterProvider: meters, TracerProvider: newTraces()})
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

// timed is how long n calls of k.Allow take.
func timed(k *hybrid.Key, n int) time.Duration {
	begun := time.Now()
	for range n {
		k.Allow()
	}
	return time.Since(begun)
}

package hybridotel_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/hybridotel"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

// A service sets up its providers and exporters as for everything else it reports; without a Config
// it would be the global ones.
func Example() {
	reader, spans := metric.NewManualReader(), tracetest.NewSpanRecorder()
	telemetry, err := hybridotel.New(hybridotel.Config{
		MeterProvider:  metric.NewMeterProvider(metric.WithReader(reader)),
		TracerProvider: trace.NewTracerProvider(trace.WithSpanProcessor(spans)),
	})
	if err != nil {
		log.Fatal(err)
	}
	store := telemetry.Store(memory.New(nil)) // yours is a redisbucket.Store
	limiter, err := hybrid.New(store, hybrid.Config{
		Name: "api", Limits: []hybrid.Limit{hybrid.PerHour(3)}, CallTimeout: time.Minute,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	defer telemetry.Register(limiter)()

	ctx, user := context.Background(), limiter.Key("user-17")
	err = telemetry.Wait(ctx, user)
	fmt.Println("waited:", err)
	fmt.Println("allowed:", user.AllowN(2), user.Allow())

	var all metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &all); err != nil {
		log.Fatal(err)
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if m.Name == "yuzhi.tokens.requested" {
			for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
				result, _ := p.Attributes.Value("yuzhi.result")
				if p.Value > 0 {
					fmt.Println(m.Name, result.AsString(), p.Value)
				}
			}
		}
	}
	for _, s := range spans.Ended() {
		if s.Name() == "yuzhi.wait" {
			fmt.Println(s.Name(), "is linked with", len(s.Links()), "lease call")
		}
	}
	// Unordered output:
	// waited: <nil>
	// allowed: true false
	// yuzhi.tokens.requested admitted 3
	// yuzhi.tokens.requested denied 1
	// yuzhi.wait is linked with 1 lease call
}

package hybridotel

import (
	"errors"
	"slices"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Config selects where a Telemetry reports to. The zero value selects the global providers.
type Config struct {
	MeterProvider  metric.MeterProvider // nil means otel.GetMeterProvider()
	TracerProvider trace.TracerProvider // nil means otel.GetTracerProvider()
	Attributes     []attribute.KeyValue // of every metric and span
}

// Telemetry reports Limiters, Stores and waits. A program needs one; reports of two to the same provider
// add up. Goroutines may share it. Use New; the zero value does not work.
type Telemetry struct {
	attributes []attribute.KeyValue
	tracer     trace.Tracer

	roundTrip metric.Float64Histogram
	calls     metric.Int64Counter
	wait      metric.Float64Histogram

	mu          sync.Mutex
	collection  uint64            // the number of the latest one
	groups      map[string]*group // of registered Limiters, by their names
	instruments []metric.Observable
}

// scope is the name of the instrumentation: this package.
const scope = "github.com/yuzhi-go/yuzhi/hybrid/hybridotel"

// The bounds of the histograms' buckets in seconds. The SDK's defaults are meant for milliseconds.
var (
	roundTripBounds = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}
	waitBounds      = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
)

// New returns a Telemetry, or an error if the provider refuses an instrument.
func New(c Config) (*Telemetry, error) {
	if c.MeterProvider == nil {
		c.MeterProvider = otel.GetMeterProvider()
	}
	if c.TracerProvider == nil {
		c.TracerProvider = otel.GetTracerProvider()
	}
	meter := c.MeterProvider.Meter(scope)
	t := &Telemetry{
		attributes: slices.Clone(c.Attributes),
		tracer:     c.TracerProvider.Tracer(scope),
		groups:     make(map[string]*group),
	}
	var errs [4]error
	t.roundTrip, errs[0] = meter.Float64Histogram("yuzhi.store.round_trip.duration", metric.WithUnit("s"),
		metric.WithDescription("How long exchanges with the store take, without the opening of connections."),
		metric.WithExplicitBucketBoundaries(roundTripBounds...))
	t.calls, errs[1] = meter.Int64Counter("yuzhi.store.calls", metric.WithUnit("{call}"),
		metric.WithDescription("Lease calls by what they brought."))
	t.wait, errs[2] = meter.Float64Histogram("yuzhi.wait.duration", metric.WithUnit("s"),
		metric.WithDescription("How long requests waited for their tokens."),
		metric.WithExplicitBucketBoundaries(waitBounds...))
	errs[3] = t.observe(meter)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	return t, nil
}

// with returns Config.Attributes and more.
func (t *Telemetry) with(more ...attribute.KeyValue) attribute.Set {
	return attribute.NewSet(append(slices.Clip(t.attributes), more...)...)
}

// word stands for the errors that wrap err.
type word struct {
	err  error
	name string
}

// wordFor returns the first of words that stands for err, whose text may contain a key.
func wordFor(err error, words []word) string {
	for _, w := range words {
		if errors.Is(err, w.err) {
			return w.name
		}
	}
	return "_OTHER" // as the conventions call it
}

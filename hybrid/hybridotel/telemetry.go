package hybridotel

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// Config has the settings of a Telemetry. The zero Config selects the global providers.
type Config struct {
	MeterProvider  metric.MeterProvider // nil means otel.GetMeterProvider()
	TracerProvider trace.TracerProvider // nil means otel.GetTracerProvider()
	Attributes     []attribute.KeyValue // attributes of every metric and span
}

// Telemetry reports Limiters, Stores and waits. The counts of two Telemetries with one provider add up, so a
// program needs only one. Goroutines may share a Telemetry. Use New; the zero Telemetry does not work.
type Telemetry struct {
	attributes []attribute.KeyValue
	tracer     trace.Tracer

	roundTrip metric.Float64Histogram
	calls     metric.Int64Counter
	wait      metric.Float64Histogram

	mu          sync.Mutex
	collection  uint64            // number of the last collection
	groups      map[string]*group // groups of registered Limiters, by name
	instruments []metric.Observable
}

const scope = "github.com/yuzhi-go/yuzhi/hybrid/hybridotel"

// The bounds of the histograms' buckets, in seconds. The SDK's default bounds are for milliseconds.
var (
	roundTripBounds = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}
	waitBounds      = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
)

// New returns a Telemetry. New returns an error if the MeterProvider refuses an instrument.
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
		metric.WithDescription("Duration of exchanges with the store, without the opening of connections."),
		metric.WithExplicitBucketBoundaries(roundTripBounds...))
	t.calls, errs[1] = meter.Int64Counter("yuzhi.store.calls", metric.WithUnit("{call}"),
		metric.WithDescription("Lease calls by outcome."))
	t.wait, errs[2] = meter.Float64Histogram("yuzhi.wait.duration", metric.WithUnit("s"),
		metric.WithDescription("Time for which requests waited for their tokens."),
		metric.WithExplicitBucketBoundaries(waitBounds...))
	errs[3] = t.observe(meter)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	return t, nil
}

// attributeSet returns the set of Config.Attributes and more.
func (t *Telemetry) attributeSet(more ...attribute.KeyValue) attribute.Set {
	return attribute.NewSet(append(slices.Clip(t.attributes), more...)...)
}

// word is the name of err and of errors that wrap err.
type word struct {
	err  error
	name string
}

// wordFor returns the first name for err in words.
func wordFor(err error, words []word) string {
	for _, w := range words {
		if errors.Is(err, w.err) {
			return w.name
		}
	}
	return "_OTHER" // OpenTelemetry's name for every other error
}

// Waiter is a *hybrid.Key or a *hybrid.Joined. The reports of another type have no attribute yuzhi.limiter.
type Waiter interface {
	WaitN(ctx context.Context, n int64) error
}

// Wait is WaitN for one token.
func (t *Telemetry) Wait(ctx context.Context, k Waiter) error { return t.WaitN(ctx, k, 1) }

// WaitN calls k.WaitN and returns its error. WaitN reports the duration and outcome of the wait as a metric,
// and as a child of ctx's span. With a Store from Telemetry.Store, the child span has links to the lease
// calls that the request waited for.
func (t *Telemetry) WaitN(ctx context.Context, k Waiter, n int64) error {
	about := limitersOf(k)
	ctx, span := t.tracer.Start(ctx, "yuzhi.wait")
	defer span.End()
	if span.IsRecording() {
		span.SetAttributes(slices.Concat(t.attributes, about)...)
		span.SetAttributes(attribute.Int64("yuzhi.tokens", n))
	}
	begun := time.Now()
	err := k.WaitN(ctx, n)
	took := time.Since(begun)
	outcome := outcomeOf(err)
	t.wait.Record(ctx, took.Seconds(),
		metric.WithAttributeSet(t.attributeSet(append(about, outcomeKey.String(outcome))...)))
	span.SetAttributes(outcomeKey.String(outcome))
	if err != nil {
		span.SetStatus(codes.Error, outcome)
	}
	return err
}

// limitersOf returns the attribute with the name of k's Limiter, or with the names of all joined Limiters,
// separated by "+".
func limitersOf(k Waiter) []attribute.KeyValue {
	var names []string
	switch k := k.(type) {
	case *hybrid.Key:
		names = append(names, k.Limiter().Name())
	case *hybrid.Joined:
		for _, key := range k.Keys() {
			names = append(names, key.Limiter().Name())
		}
	}
	slices.Sort(names)
	names = slices.Compact(slices.DeleteFunc(names, func(name string) bool { return name == "" }))
	if name := strings.Join(names, "+"); name != "" {
		return []attribute.KeyValue{limiterKey.String(name)}
	}
	return nil
}

// outcomeOf returns one word for the outcome of a wait.
func outcomeOf(err error) string {
	if err == nil {
		return "admitted"
	}
	return wordFor(err, []word{
		{hybrid.ErrWouldExceedDeadline, "would_exceed_deadline"},
		{context.DeadlineExceeded, "deadline_exceeded"},
		{context.Canceled, "cancelled"},
		{hybrid.ErrExceedsBurst, "exceeds_burst"},
		{hybrid.ErrUnavailable, "unavailable"},
		{hybrid.ErrTableFull, "table_full"},
		{hybrid.ErrInvalidConfig, "misconfigured"},
		{hybrid.ErrInvalidKey, "invalid"},
		{hybrid.ErrInvalidN, "invalid"},
		{hybrid.ErrClosed, "closed"},
	})
}

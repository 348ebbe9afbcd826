package hybridotel

import (
	"context"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// Wait is WaitN for one token.
func (t *Telemetry) Wait(ctx context.Context, k hybrid.KeyLimiter) error { return t.WaitN(ctx, k, 1) }

// WaitN calls k.WaitN and reports its duration and its outcome, as a metric and as a span that is a child
// of ctx's. If the Limiter's Store comes from Telemetry.Store, that span is linked with the spans of the
// lease calls that the request waited for. k is a *hybrid.Key, a *hybrid.Joined, or another type with
// their methods, for which no Limiter's name is reported.
func (t *Telemetry) WaitN(ctx context.Context, k hybrid.KeyLimiter, n int64) error {
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
		metric.WithAttributeSet(t.with(append(about, outcomeKey.String(outcome))...)))
	span.SetAttributes(outcomeKey.String(outcome))
	if err != nil {
		span.SetStatus(codes.Error, outcome)
	}
	return err
}

// KeyLimiter wraps k for code that takes a hybrid.KeyLimiter: its Wait and WaitN report as
// Telemetry.WaitN does, and its other methods are those of k.
func (t *Telemetry) KeyLimiter(k hybrid.KeyLimiter) hybrid.KeyLimiter { return waiter{k, t} }

type waiter struct {
	hybrid.KeyLimiter
	t *Telemetry
}

// Wait implements hybrid.KeyLimiter.
func (w waiter) Wait(ctx context.Context) error { return w.WaitN(ctx, 1) }

// WaitN implements hybrid.KeyLimiter.
func (w waiter) WaitN(ctx context.Context, n int64) error { return w.t.WaitN(ctx, w.KeyLimiter, n) }

// limitersOf returns the attribute with the name of k's Limiter, or the names of all joined Limiters with
// "+" between them.
func limitersOf(k hybrid.KeyLimiter) []attribute.KeyValue {
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
		{hybrid.ErrInvalidConfig, "misconfigured"},
		{hybrid.ErrInvalidKey, "invalid"},
		{hybrid.ErrInvalidN, "invalid"},
		{hybrid.ErrClosed, "closed"},
	})
}

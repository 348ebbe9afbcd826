package hybridotel

import (
	"context"
	"reflect"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/lease/memory"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// Store wraps s for hybrid.New and reports its round trips and spans. It has the buckets of s, also where
// hybrid.New looks for Limiters that contradict each other, and Limiter.Ping reaches s. Several Limiters
// may share it. A Limiter with hybrid.ScopeProcess asks it for limits only, as its lease calls stay in
// the process.
//
// An exchange allocates a few times more, and no more for each call, unless a span is recorded. An error
// becomes one word, as its text may contain a key; hybrid logs the text. A nil s is returned unchanged.
func (t *Telemetry) Store(s lease.Store) lease.Store {
	if v := reflect.ValueOf(s); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return s // hybrid.New refuses it
	}
	kind, attributes := trace.SpanKindClient, slices.Clip(t.attributes)
	switch s.(type) {
	case *redisbucket.Store:
		attributes = append(attributes, attribute.String("db.system.name", "redis"))
	case *memory.Store:
		kind = trace.SpanKindInternal
	}
	return &store{t: t, inner: s,
		start: []trace.SpanStartOption{trace.WithSpanKind(kind), trace.WithAttributes(attributes...)}}
}

type store struct {
	t     *Telemetry
	inner lease.Store
	start []trace.SpanStartOption
}

var (
	_ lease.Pinger = (*store)(nil)
	_ lease.Router = (*store)(nil)
)

// Identity returns the identity of the inner Store: see hybrid.Config.Name.
func (s *store) Identity() any {
	if i, ok := s.inner.(interface{ Identity() any }); ok {
		return i.Identity()
	}
	return s.inner
}

// Ping implements lease.Pinger.
func (s *store) Ping(ctx context.Context) error {
	if p, ok := s.inner.(lease.Pinger); ok {
		return p.Ping(ctx)
	}
	return nil
}

// NodeOf implements lease.Router.
func (s *store) NodeOf(key string) int {
	if r, ok := s.inner.(lease.Router); ok {
		return r.NodeOf(key)
	}
	return -1
}

// Configure implements lease.Store.
func (s *store) Configure(ctx context.Context, key string, op lease.Op, c lease.Config) (lease.State, error) {
	ctx, span := s.t.tracer.Start(ctx, "yuzhi."+op.String(), s.start...)
	defer span.End()
	begun := time.Now()
	st, err := s.inner.Configure(ctx, key, op, c)
	s.measure(ctx, time.Since(begun), err, operationKey.String(op.String()))
	fail(span, err)
	return st, err
}

var (
	operationKey = attribute.Key("yuzhi.operation")
	nodeKey      = attribute.Key("yuzhi.node")
	outcomeKey   = attribute.Key("yuzhi.outcome")
	errorKey     = attribute.Key("error.type")
)

// measure reports one round trip, with err if all of its calls failed.
func (s *store) measure(ctx context.Context, took time.Duration, err error, about ...attribute.KeyValue) {
	if err != nil {
		about = append(about, errorKey.String(errorType(err)))
	}
	s.t.roundTrip.Record(ctx, took.Seconds(), metric.WithAttributeSet(s.t.with(about...)))
}

// fail records err in span, unless err is nil.
func fail(span trace.Span, err error) {
	if err != nil && span.IsRecording() {
		span.SetAttributes(errorKey.String(errorType(err)))
		span.SetStatus(codes.Error, errorType(err))
	}
}

// errorType returns one word for a Store's error.
func errorType(err error) string {
	return wordFor(err, []word{
		{lease.ErrPermanent, "permanent"},
		{lease.ErrRefused, "refused"},
		{lease.ErrInvalidConfig, "invalid"},
		{lease.ErrInvalidRequest, "invalid"},
		{lease.ErrStale, "stale"},
		{context.DeadlineExceeded, "timeout"},
		{context.Canceled, "cancelled"},
		{lease.ErrUnavailable, "unavailable"},
	})
}

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

// Store returns s with its round trips and spans reported, to be given to hybrid.New. Its buckets
// are those of s, also to hybrid.New when that looks for Limiters which contradict each other, and
// Limiter.Ping reaches s. Several Limiters may share it. A Limiter with hybrid.ScopeProcess asks it
// for limits only, as its lease calls stay in the process.
//
// It adds a few allocations to an exchange and none for each of its calls, unless a span is
// recorded. Errors become one word each, as their texts may contain a key; hybrid's log has them.
func (t *Telemetry) Store(s lease.Store) lease.Store {
	if v := reflect.ValueOf(s); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return s // hybrid.New says what is wrong with it
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

// Identity is that of the inner Store: see hybrid.Config.Name.
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

// measure reports one round trip, with err where all of it has failed.
func (s *store) measure(ctx context.Context, took time.Duration, err error, about ...attribute.KeyValue) {
	if err != nil {
		about = append(about, errorKey.String(errorType(err)))
	}
	s.t.roundTrip.Record(ctx, took.Seconds(), metric.WithAttributeSet(s.t.with(about...)))
}

// fail says in span why what it is about has failed; nil if it has not.
func fail(span trace.Span, err error) {
	if err != nil && span.IsRecording() {
		span.SetAttributes(errorKey.String(errorType(err)))
		span.SetStatus(codes.Error, errorType(err))
	}
}

// errorType is one word for a Store's error.
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

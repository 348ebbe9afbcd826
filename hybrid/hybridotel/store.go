package hybridotel

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/lease/memory"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// Store wraps s for hybrid.New and reports the round trips and spans of s. The result has the optional
// interfaces of s, and several Limiters may share it. A Limiter with hybrid.ScopeProcess makes no lease calls
// to s, so only its calls of Configure are reported.
//
// Without a recorded span, an exchange of any number of calls costs a few more allocations. An error is
// reported as one word, because its text may contain a key; hybrid logs the text. If s is nil, Store returns
// s, which hybrid.New refuses.
func (t *Telemetry) Store(s lease.Store) lease.Store {
	if v := reflect.ValueOf(s); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return s
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
	_ lease.Pinger     = (*store)(nil)
	_ lease.Router     = (*store)(nil)
	_ lease.Identifier = (*store)(nil)
)

// Identity makes hybrid.New find contradicting Limiters on s and on the inner Store.
func (s *store) Identity() any {
	if i, ok := s.inner.(lease.Identifier); ok {
		return i.Identity()
	}
	return s.inner
}

func (s *store) Ping(ctx context.Context) error {
	if p, ok := s.inner.(lease.Pinger); ok {
		return p.Ping(ctx)
	}
	return nil
}

func (s *store) NodeOf(key string) int {
	if r, ok := s.inner.(lease.Router); ok {
		return r.NodeOf(key)
	}
	return -1
}

func (s *store) NodeName(node int) string {
	if r, ok := s.inner.(lease.Router); ok {
		return r.NodeName(node)
	}
	return ""
}

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

// measure reports one round trip. err is nil if at least one call of the round trip succeeded.
func (s *store) measure(ctx context.Context, took time.Duration, err error, about ...attribute.KeyValue) {
	if err != nil {
		about = append(about, errorKey.String(errorType(err)))
	}
	s.t.roundTrip.Record(ctx, took.Seconds(), metric.WithAttributeSet(s.t.attributeSet(about...)))
}

func fail(span trace.Span, err error) {
	if err != nil && span.IsRecording() {
		span.SetAttributes(errorKey.String(errorType(err)))
		span.SetStatus(codes.Error, errorType(err))
	}
}

// errorType returns one word for an error of a Store.
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

// exchange collects the results of one call of Exchange.
type exchange struct {
	store *store
	begun time.Time
	span  trace.Span

	mu     sync.Mutex // the Store may report groups concurrently
	sum    outcomes
	err    error // first error of a call
	linked map[trace.SpanID]bool
}

func (s *store) Exchange(ctx context.Context, calls []*lease.Call, done func([]*lease.Call)) {
	x := &exchange{store: s, begun: time.Now()}
	ctx, x.span = s.t.tracer.Start(ctx, "yuzhi.lease", s.start...)
	defer x.span.End()
	recording := x.span.IsRecording()
	if recording {
		x.span.SetAttributes(attribute.Int("yuzhi.keys", len(calls)))
		if len(calls) > 1 {
			x.span.SetAttributes(attribute.Int("db.operation.batch.size", len(calls)))
		}
		x.link(calls)
	}
	s.inner.Exchange(ctx, calls, func(group []*lease.Call) {
		x.measure(ctx, group)
		if recording {
			x.link(group) // more requests may wait now than at the start of the exchange
		}
		done(group)
	})
	if !recording {
		return
	}
	x.span.SetAttributes(attribute.Int64("yuzhi.tokens", x.sum.tokens))
	for i, outcome := range outcomeNames {
		x.span.SetAttributes(attribute.Int64("yuzhi.calls."+outcome, x.sum.calls[i]))
	}
	fail(x.span, x.err)
}

// outcomes has the number of calls by outcome, in the order of outcomeNames, and the granted tokens.
type outcomes struct {
	calls  [4]int64
	tokens int64
}

const (
	granted  = iota // the call got tokens
	empty           // the bucket had no tokens for the call
	reported        // the call wanted no tokens: a report, or the return of a lease
	failed          // the call has an error
)

var outcomeNames = [...]string{granted: "granted", empty: "empty", reported: "reported", failed: "failed"}

// measure reports the round trip and the calls of one group.
func (x *exchange) measure(ctx context.Context, group []*lease.Call) {
	took := time.Since(x.begun)
	var sum outcomes
	var err error
	var answered *lease.Call
	for _, c := range group {
		switch {
		case c.Err != nil:
			sum.calls[failed]++
			err = cmp.Or(err, c.Err)
			continue
		case c.Grant.Granted > 0:
			sum.calls[granted]++
		case c.Request.Want > 0:
			sum.calls[empty]++
		default:
			sum.calls[reported]++
		}
		sum.tokens += c.Grant.Granted
		answered = c
	}
	t := x.store.t
	x.mu.Lock()
	for i, n := range sum.calls {
		x.sum.calls[i] += n
		if n > 0 {
			t.calls.Add(ctx, n, metric.WithAttributeSet(t.attributeSet(outcomeKey.String(outcomeNames[i]))))
		}
	}
	x.sum.tokens += sum.tokens
	x.err = cmp.Or(x.err, err)
	x.mu.Unlock()
	number := max(0, group[0].Node) // Node is below 0 if the Store has no nodes
	node := nodeKey.String(cmp.Or(x.store.NodeName(number), strconv.Itoa(number)))
	if answered != nil {
		took, err = max(0, took-answered.Before), nil
	}
	x.store.measure(ctx, took, err, operationKey.String("lease"), node)
}

// linksMax bounds the links of one span. The SDK has the same default.
const linksMax = 128

// link adds links between x's span and the spans of requests that wait for the keys of calls, in both
// directions but only once.
func (x *exchange) link(calls []*lease.Call) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range calls {
		owner, ok := c.Owner.(lease.Awaited)
		if !ok {
			continue
		}
		for _, ctx := range owner.Waiting(linksMax) {
			waits := trace.SpanFromContext(ctx)
			to := waits.SpanContext()
			if len(x.linked) == linksMax {
				return
			}
			if !to.IsSampled() || x.linked[to.SpanID()] {
				continue
			}
			if x.linked == nil {
				x.linked = make(map[trace.SpanID]bool)
			}
			x.linked[to.SpanID()] = true
			x.span.AddLink(trace.Link{SpanContext: to})
			waits.AddLink(trace.Link{SpanContext: x.span.SpanContext()})
		}
	}
}

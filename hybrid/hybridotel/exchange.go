package hybridotel

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/yuzhi-go/yuzhi/lease"
)

// exchange is one exchange of lease calls in progress.
type exchange struct {
	store *store
	begun time.Time
	span  trace.Span

	mu     sync.Mutex // groups may end at the same time
	sum    outcomes
	err    error // of the first group with one
	linked map[spanID]bool
}

// Exchange implements lease.Store.
func (s *store) Exchange(ctx context.Context, calls []*lease.Call, done func([]*lease.Call)) {
	x := &exchange{store: s, begun: time.Now()}
	ctx, x.span = s.t.tracer.Start(ctx, "yuzhi.lease", s.start...)
	defer x.span.End()
	if !x.span.IsRecording() {
		s.inner.Exchange(ctx, calls, func(group []*lease.Call) {
			x.measure(ctx, group)
			done(group)
		})
		return
	}
	x.span.SetAttributes(attribute.Int("yuzhi.keys", len(calls)))
	if len(calls) > 1 {
		x.span.SetAttributes(attribute.Int("db.operation.batch.size", len(calls)))
	}
	x.link(calls)
	s.inner.Exchange(ctx, calls, func(group []*lease.Call) {
		x.measure(ctx, group)
		x.link(group) // with requests that came meanwhile
		done(group)
	})
	x.span.SetAttributes(attribute.Int64("yuzhi.tokens", x.sum.tokens))
	for i, outcome := range outcomeNames {
		x.span.SetAttributes(attribute.Int64("yuzhi.calls."+outcome, x.sum.calls[i]))
	}
	fail(x.span, x.err)
}

// outcomes counts calls by outcome, in the order of outcomeNames, and the tokens that they granted.
type outcomes struct {
	calls  [4]int64
	tokens int64
}

const (
	granted  = iota // tokens
	empty           // none, because the bucket has none for this process now
	reported        // none, because none were wanted: the call reported a lease or gave one back
	failed          // an error
)

var outcomeNames = [...]string{granted: "granted", empty: "empty", reported: "reported", failed: "failed"}

// measure reports the round trip of one group, and its calls by outcome.
func (x *exchange) measure(ctx context.Context, group []*lease.Call) {
	took := time.Since(x.begun)
	var sum outcomes
	var first, answered *lease.Call // of those that failed, and of the others
	for _, c := range group {
		switch {
		case c.Err != nil:
			sum.calls[failed]++
			if first == nil {
				first = c
			}
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
	x.count(ctx, sum)
	var err error
	if first != nil {
		err = first.Err
	}
	x.mu.Lock()
	for i, n := range sum.calls {
		x.sum.calls[i] += n
	}
	x.sum.tokens += sum.tokens
	if x.err == nil {
		x.err = err
	}
	x.mu.Unlock()
	node := nodeKey.Int(max(0, group[0].Node)) // a Store without nodes leaves it below 0
	if answered != nil {
		took, err = max(0, took-answered.Before), nil
	}
	x.store.measure(ctx, took, err, operationKey.String("lease"), node)
}

// count adds sum to the calls by outcome.
func (x *exchange) count(ctx context.Context, sum outcomes) {
	t := x.store.t
	for i, n := range sum.calls {
		if n > 0 {
			t.calls.Add(ctx, n, metric.WithAttributeSet(t.with(outcomeKey.String(outcomeNames[i]))))
		}
	}
}

// linksMax bounds the links of one span; the SDK keeps as many by default.
const linksMax = 128

type spanID struct {
	trace trace.TraceID
	span  trace.SpanID
}

// link links x's span with those of the requests that wait for the keys of calls, and theirs with
// it, each once.
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
			id := spanID{to.TraceID(), to.SpanID()}
			if len(x.linked) == linksMax {
				return
			}
			if !to.IsSampled() || x.linked[id] {
				continue
			}
			if x.linked == nil {
				x.linked = make(map[spanID]bool)
			}
			x.linked[id] = true
			x.span.AddLink(trace.Link{SpanContext: to})
			waits.AddLink(trace.Link{SpanContext: x.span.SpanContext()})
		}
	}
}

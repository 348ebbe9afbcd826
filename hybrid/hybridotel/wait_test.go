package hybridotel_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/hybridotel"
	"github.com/yuzhi-go/yuzhi/lease"
)

// linked reports whether two spans are linked with each other.
func linked(a, b sdk.ReadOnlySpan) bool {
	to := func(from, to sdk.ReadOnlySpan) bool {
		isTo := func(l sdk.Link) bool { return l.SpanContext.Equal(to.SpanContext()) }
		return slices.ContainsFunc(from.Links(), isTo)
	}
	return to(a, b) && to(b, a)
}

// A wait is a child of its caller's span. It and its lease call are linked with each other, once.
func TestAWaitIsLinkedWithItsLeaseCall(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(config(hourly))
		ctx, caller := t.tracer().Start(t.Context(), "caller")
		noErr(t, t.WaitN(ctx, l.Key("k"), 3))
		caller.End()
		synctest.Wait()                 // a span ends after its requests are served
		must(t, l.Allow("k"), "denied") // of no span
		synctest.Wait()
		waits, calls := t.ended("yuzhi.wait"), t.ended("yuzhi.lease")
		must(t, len(waits) == 1 && len(calls) == 2, "%d and %d spans", len(waits), len(calls))
		wait := waits[0]
		check(t, wait.Parent().SpanID() == caller.SpanContext().SpanID(), "the parent is %v", wait.Parent())
		check(t, linked(wait, calls[0]) && len(wait.Links()) == 1 && len(calls[0].Links()) == 1 &&
			len(calls[1].Links()) == 0, "%v, %v, %v", wait.Links(), calls[0].Links(), calls[1].Links())
		check(t, said(wait, "yuzhi.limiter") == "api" && said(wait, "yuzhi.tokens") == "3" &&
			said(wait, "yuzhi.outcome") == "admitted" && wait.Status().Code == codes.Unset, "%v", wait.Attributes())
	})
}

// A request that comes during the call that serves it is linked with the call, and so is a request that
// waits by another verb, in a span of its own.
func TestARequestDuringACallIsLinked(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(config(hourly))
		must(t, l.Allow("k"), "denied")
		release := t.store.holds()
		go l.AllowN("k", 10)
		synctest.Wait()
		go func() { noErr(t, t.WaitN(t.Context(), l.Key("k"), 5)) }()
		ctx, caller := t.tracer().Start(t.Context(), "caller")
		go func() {
			_, err := l.Take(ctx, "k", 1)
			noErr(t, err)
			caller.End()
		}()
		synctest.Wait()
		release()
		time.Sleep(time.Second)
		calls, waits, takes := t.ended("yuzhi.lease"), t.ended("yuzhi.wait"), t.ended("caller")
		must(t, len(calls) >= 3 && len(waits) == 1 && len(takes) == 1, "%d calls, %v, %v", len(calls), waits, takes)
		wait, take := waits[0], takes[0]
		check(t, linked(wait, calls[1]) && linked(take, calls[1]), "%v, %v", wait.Links(), take.Links())
	})
}

// Each key of a Joined has lease calls of its own, and the wait is linked with all.
func TestAJoinedWait(t *testing.T) {
	bubble(t, func(t *world) {
		c := config(hourly)
		c.Name = "users"
		l, users := t.start(config(hourly)), t.start(c)
		noErr(t, t.Wait(t.Context(), l.Join(l.Key("all"), users.Key("17"))))
		wait := t.ended("yuzhi.wait")[0]
		for _, call := range t.ended("yuzhi.lease") {
			check(t, linked(call, wait), "%v, %v", call.Links(), wait.Links())
		}
		check(t, len(wait.Links()) == 2 && said(wait, "yuzhi.limiter") == "api+users", "%v", wait.Attributes())
		t.says(map[string]float64{"wait.duration{limiter=api+users outcome=admitted}": 1}, "wait")
	})
}

// A wait for a call that is not answered in time is linked with it too.
func TestAWaitThatTimesOutIsLinked(t *testing.T) {
	bubble(t, func(t *world) {
		c := config(hourly)
		c.CallTimeout = 50 * time.Millisecond
		c.Policy.Fallback = hybrid.FallbackDeny
		l := t.start(c)
		release := t.store.holds()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		err := t.Wait(ctx, l.Key("k"))
		check(t, errors.Is(err, context.DeadlineExceeded), "%v", err)
		release()
		time.Sleep(time.Second)
		wait, call := t.ended("yuzhi.wait")[0], t.ended("yuzhi.lease")[0]
		check(t, linked(wait, call), "%v, %v", wait.Links(), call.Links())
	})
}

// awaited is an Owner for which contexts wait.
type awaited []context.Context

func (a awaited) Waiting(most int) []context.Context { return a[:min(most, len(a))] }

// The links of a span are bounded to the SDK's maximum, and belong to the requests that came first.
func TestLinksAreBounded(t *testing.T) {
	bubble(t, func(t *world) {
		calls := callsFor("a", "b", "c")
		first := map[trace.SpanID]bool{}
		for i, c := range calls {
			var waiting awaited
			for k := range 100 {
				ctx, span := t.tracer().Start(t.Context(), "caller")
				waiting = append(waiting, ctx)
				first[span.SpanContext().SpanID()] = i*100+k < 128
			}
			c.Owner = waiting
		}
		t.Telemetry.Store(t.store).Exchange(t.Context(), calls, func([]*lease.Call) {})
		span := t.ended("yuzhi.lease")[0]
		must(t, len(span.Links()) == 128 && span.DroppedLinks() == 0, "%d links", len(span.Links()))
		for _, l := range span.Links() {
			check(t, first[l.SpanContext.SpanID()], "linked with a later request")
		}
	})
}

// A span that is not sampled is not linked: it is not exported, so no reader could follow the link.
func TestASpanThatIsNotSampledIsNotLinked(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(config(hourly))
		unsampled := trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1},
		})
		_, err := l.Take(trace.ContextWithSpanContext(t.Context(), unsampled), "k", 1)
		noErr(t, err)
		check(t, len(t.ended("yuzhi.lease")[0].Links()) == 0, "%v", t.ended("yuzhi.lease")[0].Links())
	})
}

// other is a Waiter from outside package hybrid.
type other struct{}

func (other) WaitN(context.Context, int64) error { return errors.New("something else") }

// The outcome of a wait is one word, reported with its duration.
func TestWaitsByOutcome(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(hybrid.Config{Name: "api", Limits: []hybrid.Limit{hybrid.Every(time.Second)},
			LimitsFor: func(_ context.Context, key string) ([]hybrid.Limit, error) {
				if key == "bad" {
					return []hybrid.Limit{{}}, nil
				}
				return nil, nil
			}})
		within := func(d time.Duration) context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			t.Cleanup(cancel)
			return ctx
		}
		cancelled, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		counts := map[string]float64{}
		outcomes := func(k hybridotel.Waiter, n int64, ctx context.Context, want string, wrapped error) {
			t.Helper()
			before := len(t.ended("yuzhi.wait"))
			err := t.WaitN(ctx, k, n)
			check(t, errors.Is(err, wrapped) || want == "_OTHER", "%v, want %v", err, wrapped)
			if want == "_OTHER" {
				counts["wait.duration{outcome=_OTHER}"]++
			} else {
				counts["wait.duration{limiter=api outcome="+want+"}"]++
			}
			span := t.ended("yuzhi.wait")[before]
			check(t, said(span, "yuzhi.outcome") == want && (span.Status().Code == codes.Error) == (err != nil) &&
				(err != nil || want == "admitted"), "%v: %v, %v, want %s", err, span.Attributes(), span.Status(), want)
		}
		k := l.Key("k")
		outcomes(k, 1, t.Context(), "admitted", nil)
		outcomes(k, 1, t.Context(), "admitted", nil) // a second later
		outcomes(k, 1, within(time.Millisecond), "would_exceed_deadline", hybrid.ErrWouldExceedDeadline)
		outcomes(k, 1, cancelled, "cancelled", context.Canceled)
		outcomes(k, 1, within(0), "deadline_exceeded", context.DeadlineExceeded)
		outcomes(k, 2, t.Context(), "exceeds_burst", hybrid.ErrExceedsBurst)
		outcomes(l.Key(""), 1, t.Context(), "invalid", hybrid.ErrInvalidKey)
		outcomes(k, -1, t.Context(), "invalid", hybrid.ErrInvalidN)
		outcomes(l.Key("bad"), 1, t.Context(), "misconfigured", hybrid.ErrInvalidConfig)
		outcomes(other{}, 1, t.Context(), "_OTHER", nil)
		c := config(hourly)
		c.KeysMax = 1
		full := t.startOn(&struct{ lease.Store }{t.store}, c)
		release := t.store.holds()
		go full.Allow("in use")
		synctest.Wait()
		outcomes(full.Key("k"), 1, t.Context(), "table_full", hybrid.ErrTableFull)
		release()
		l.Close()
		outcomes(k, 1, t.Context(), "closed", hybrid.ErrClosed)
		t.says(counts, "wait")
		_, took := t.values()
		check(t, took["wait.duration{limiter=api outcome=admitted}"] == 1, "it took %v", took)
	})
}

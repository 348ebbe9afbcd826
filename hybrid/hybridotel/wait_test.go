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
	"github.com/yuzhi-go/yuzhi/lease"
)

// linksTo reports whether a span is linked with another.
func linksTo(from, to sdk.ReadOnlySpan) bool {
	return slices.ContainsFunc(from.Links(), func(l sdk.Link) bool {
		return l.SpanContext.Equal(to.SpanContext())
	})
}

// A wait is a child of its caller's span. It and the lease call that it waited for are linked, in
// both directions and once each.
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
		check(t, linksTo(wait, calls[0]) && linksTo(calls[0], wait), "%v, %v", wait.Links(), calls[0].Links())
		for span, want := range map[sdk.ReadOnlySpan]int{wait: 1, calls[0]: 1, calls[1]: 0} {
			check(t, len(span.Links()) == want, "%s has %d links, want %d", span.Name(), len(span.Links()), want)
		}
		check(t, said(wait, "yuzhi.limiter") == "api" && said(wait, "yuzhi.tokens") == "3" &&
			said(wait, "yuzhi.outcome") == "admitted" && wait.Status().Code == codes.Unset, "%v", wait.Attributes())
	})
}

// Who comes while a call is under way that then serves him is linked with it too, and so is who
// waits by another verb in a span of his own.
func TestWhoComesWhileACallIsUnderWayIsLinked(t *testing.T) {
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
		for _, s := range []sdk.ReadOnlySpan{waits[0], takes[0]} {
			check(t, linksTo(calls[1], s) && linksTo(s, calls[1]), "%s: %v, %v", s.Name(), s.Links(), calls[1].Links())
		}
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
			check(t, linksTo(call, wait) && linksTo(wait, call), "%v, %v", call.Links(), wait.Links())
		}
		check(t, len(wait.Links()) == 2 && said(wait, "yuzhi.limiter") == "api+users", "%v", wait.Attributes())
		t.says(map[string]float64{"wait.duration{limiter=api+users outcome=admitted}": 1}, "wait")
	})
}

// Who waits for a call that is not answered in time is linked with it too.
func TestAWaitInVainIsLinked(t *testing.T) {
	bubble(t, func(t *world) {
		c := config(hourly)
		c.CallTimeout = 50 * time.Millisecond
		c.Policy.Fallback = hybrid.FallbackDeny
		l := t.start(c)
		release := t.store.holds()
		err := t.Wait(t.Context(), l.Key("k"))
		check(t, errors.Is(err, hybrid.ErrUnavailable), "%v", err)
		release()
		time.Sleep(time.Second)
		wait, call := t.ended("yuzhi.wait")[0], t.ended("yuzhi.lease")[0]
		check(t, linksTo(wait, call) && linksTo(call, wait), "%v, %v", wait.Links(), call.Links())
	})
}

// awaited is what contexts wait for.
type awaited []context.Context

func (a awaited) Waiting(most int) []context.Context { return a[:min(most, len(a))] }

// However many wait, the links of one span are bounded to what the SDK keeps, and the first who
// came have them.
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
			check(t, first[l.SpanContext.SpanID()], "linked with one who came later")
		}
	})
}

// A span that is not sampled is not linked, as nobody could follow the link.
func TestWhatIsNotSampledIsNotLinked(t *testing.T) {
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

// other is a KeyLimiter that is none of package hybrid.
type other struct{ hybrid.KeyLimiter }

func (other) WaitN(context.Context, int64) error { return errors.New("something else") }

// What a wait came to is one word, and how long it took goes with it.
func TestWaitsByOutcome(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(hybrid.Config{Name: "api", Limits: []hybrid.Limit{hybrid.Every(time.Second)},
			LimitsFor: func(key string) []hybrid.Limit {
				if key == "bad" {
					return []hybrid.Limit{{}}
				}
				return nil
			}})
		within := func(d time.Duration) context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			t.Cleanup(cancel)
			return ctx
		}
		cancelled, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		outcomes := func(k hybrid.KeyLimiter, n int64, ctx context.Context, want string, wrapped ...error) {
			t.Helper()
			before := len(t.ended("yuzhi.wait"))
			err := t.WaitN(ctx, k, n)
			for _, w := range wrapped {
				check(t, errors.Is(err, w), "%v, want %v", err, w)
			}
			span := t.ended("yuzhi.wait")[before]
			check(t, said(span, "yuzhi.outcome") == want && (span.Status().Code == codes.Error) == (err != nil) &&
				(err != nil || want == "admitted"), "%v: %v, %v, want %s", err, span.Attributes(), span.Status(), want)
		}
		k := l.Key("k")
		outcomes(k, 1, t.Context(), "admitted")
		outcomes(k, 1, t.Context(), "admitted") // a second later
		outcomes(k, 1, within(time.Millisecond), "would_exceed_deadline", hybrid.ErrWouldExceedDeadline)
		outcomes(k, 1, cancelled, "cancelled", context.Canceled)
		ended := within(0)
		outcomes(k, 1, ended, "deadline_exceeded", context.DeadlineExceeded)
		outcomes(k, 2, t.Context(), "exceeds_burst", hybrid.ErrExceedsBurst)
		outcomes(l.Key(""), 1, t.Context(), "invalid", hybrid.ErrInvalidKey)
		outcomes(k, -1, t.Context(), "invalid", hybrid.ErrInvalidN)
		outcomes(l.Key("bad"), 1, t.Context(), "misconfigured", hybrid.ErrInvalidConfig)
		outcomes(other{}, 1, t.Context(), "_OTHER")
		t.store.fails(lease.ErrUnavailable)
		c := config(hourly)
		c.Policy.Fallback = hybrid.FallbackDeny
		away := t.startOn(&struct{ lease.Store }{t.store}, c).Key("k")
		outcomes(away, 1, t.Context(), "unavailable", hybrid.ErrUnavailable)
		l.Close()
		outcomes(k, 1, t.Context(), "closed", hybrid.ErrClosed)
		t.says(map[string]float64{
			"wait.duration{limiter=api outcome=admitted}":              2,
			"wait.duration{limiter=api outcome=would_exceed_deadline}": 1,
			"wait.duration{limiter=api outcome=cancelled}":             1,
			"wait.duration{limiter=api outcome=deadline_exceeded}":     1,
			"wait.duration{limiter=api outcome=exceeds_burst}":         1,
			"wait.duration{limiter=api outcome=invalid}":               2,
			"wait.duration{limiter=api outcome=misconfigured}":         1,
			"wait.duration{limiter=api outcome=unavailable}":           1,
			"wait.duration{limiter=api outcome=closed}":                1,
			"wait.duration{outcome=_OTHER}":                            1,
		}, "wait")
		took := t.sum("yuzhi.wait.duration", "admitted")
		check(t, took == 1, "it took %vs", took)
	})
}

// A KeyLimiter that is reported is otherwise the same.
func TestAKeyLimiterThatIsReported(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(config(hourly))
		k := t.KeyLimiter(l.Key("k"))
		noErr(t, k.Wait(t.Context()))
		noErr(t, k.WaitN(t.Context(), 2))
		must(t, k.Allow() && k.Name() == "k", "denied")
		t.says(map[string]float64{
			"wait.duration{limiter=api outcome=admitted}":                2,
			"tokens.requested{limiter=api result=admitted source=lease}": 4,
		}, "wait", "tokens.requested")
	})
}

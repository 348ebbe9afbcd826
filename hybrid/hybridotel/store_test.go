package hybridotel_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/hybridotel"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/lease/memory"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// Lease calls are counted by outcome, and the span of each exchange has the same counts.
func TestExchangesByOutcome(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(config(hourly))
		r, err := l.Key("k").Reserve(t.Context(), 5)
		must(t, err == nil && r.OK(), "%v", err)
		synctest.Wait() // a span ends after the request has its answer
		r.Cancel()      // of a draw: one call makes the holder known, and the next gives back
		time.Sleep(time.Second)
		must(t, l.AllowN("k", 60), "60 of 100 are denied")
		synctest.Wait()
		must(t, !l.AllowN("k", 60), "the burst is 100")
		synctest.Wait()
		t.store.fails(lease.ErrPermanent)
		l.Allow("another")
		synctest.Wait()
		calls := map[string]float64{
			"store.calls{outcome=granted}": 2, "store.calls{outcome=reported}": 2,
			"store.calls{outcome=empty}": 1, "store.calls{outcome=failed}": 1,
			"store.round_trip.duration{node=0 operation=lease}":                      5,
			"store.round_trip.duration{error.type=permanent node=0 operation=lease}": 1,
		}
		t.says(calls, "store")
		spans := t.ended("yuzhi.lease")
		must(t, len(spans) == 6, "%d spans", len(spans))
		for i, want := range []string{
			"1 0 0 0 5 1", "0 0 1 0 0 1", "0 0 1 0 0 1", "1 0 0 0 60 1", "0 1 0 0 0 1", "0 0 0 1 0 1",
		} {
			s := spans[i]
			var got []string
			for name := range strings.FieldsSeq("calls.granted calls.empty calls.reported calls.failed tokens keys") {
				got = append(got, said(s, attribute.Key("yuzhi."+name)))
			}
			check(t, strings.Join(got, " ") == want, "call %d: %q, want %q", i, got, want)
			bad := i == 5
			check(t, (s.Status().Code == codes.Error) == bad && (said(s, "error.type") == "permanent") == bad,
				"call %d: %+v, %v", i, s.Status(), s.Attributes())
			check(t, !s.Parent().IsValid(), "its parent is %v", s.Parent())
		}
	})
}

// groups answers calls in two groups, of nodes 0 and 3, the second one later and after a connection
// was opened.
type groups struct{ lease.Store }

func (g groups) Exchange(ctx context.Context, calls []*lease.Call, done func([]*lease.Call)) {
	g.Store.Exchange(ctx, calls, func([]*lease.Call) {})
	time.Sleep(10 * time.Millisecond)
	calls[0].Node = 0
	done(calls[:1])
	time.Sleep(30 * time.Millisecond)
	for _, c := range calls[1:] {
		c.Node, c.Before = 3, 20*time.Millisecond
	}
	done(calls[1:])
}

// Each node's group is a round trip of its own, without the time that opening a connection took.
func TestARoundTripForEachNode(t *testing.T) {
	bubble(t, func(t *world) {
		s := t.Telemetry.Store(groups{memory.New(nil)})
		var sizes []int
		s.Exchange(t.Context(), callsFor("a", "b", "c"), func(g []*lease.Call) { sizes = append(sizes, len(g)) })
		must(t, len(sizes) == 2 && sizes[0] == 1 && sizes[1] == 2, "groups of %v", sizes)
		_, took := t.values()
		check(t, took["store.round_trip.duration{node=0 operation=lease}"] == 0.01 &&
			took["store.round_trip.duration{node=3 operation=lease}"] == 0.02, "%v", took)
		span := t.ended("yuzhi.lease")[0]
		check(t, said(span, "db.operation.batch.size") == "3" && said(span, "yuzhi.calls.granted") == "3", "%v",
			span.Attributes())
	})
}

// callsFor returns calls for one token each.
func callsFor(keys ...string) (calls []*lease.Call) {
	c := lease.Policy{}.ConfigFor([]lease.Limit{steady}, 0, lease.DefaultCallTimeout)
	for _, key := range keys {
		calls = append(calls, &lease.Call{Key: key, Request: lease.Request{
			Holder: "h", Seq: 1, Config: c, Want: 1, Need: 1, Weight: 1,
		}})
	}
	return calls
}

// An operation on one bucket has a span that is a child of its caller's.
func TestOperationsOnABucket(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(config(hourly))
		ctx, caller := t.tracer().Start(t.Context(), "caller")
		_, err := l.Peek(ctx, "k")
		noErr(t, err)
		noErr(t, l.SetLimits(ctx, "k", steady))
		noErr(t, l.Reset(ctx, "k"))
		caller.End()
		for _, op := range []string{"inspect", "set", "reset"} {
			spans := t.ended("yuzhi." + op)
			must(t, len(spans) > 0, "no span of %s", op)
			check(t, spans[0].Parent().SpanID() == caller.SpanContext().SpanID(), "%v", spans[0].Parent())
			trips := t.metrics()["store.round_trip.duration{operation="+op+"}"]
			check(t, trips == float64(len(spans)), "%v round trips, %d spans", trips, len(spans))
		}
		t.store.fails(lease.ErrPermanent)
		_, err = l.Peek(t.Context(), "k")
		check(t, errors.Is(err, lease.ErrPermanent), "%v", err)
		spans := t.ended("yuzhi.inspect")
		failed := spans[len(spans)-1]
		check(t, failed.Status().Code == codes.Error, "%v", failed.Status())
		check(t, said(failed, "error.type") == "permanent", "%v", failed.Attributes())
		t.says(map[string]float64{"store.round_trip.duration{error.type=permanent operation=inspect}": 1})
	})
}

// An error becomes one word: the most specific one.
func TestErrorsAreOneWord(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("%w: %w", lease.ErrUnavailable, lease.ErrPermanent), "permanent"},
		{fmt.Errorf("%w: %w", lease.ErrUnavailable, lease.ErrRefused), "refused"},
		{fmt.Errorf("%w: %w", lease.ErrUnavailable, context.DeadlineExceeded), "timeout"},
		{fmt.Errorf("%w: %w", lease.ErrUnavailable, context.Canceled), "cancelled"},
		{lease.ErrUnavailable, "unavailable"},
		{lease.ErrStale, "stale"},
		{lease.ErrInvalidRequest, "invalid"},
		{lease.ErrInvalidConfig, "invalid"},
		{errors.New("the dog ate it"), "_OTHER"},
	} {
		bubble(t, func(t *world) {
			t.store.fails(c.err)
			t.Telemetry.Store(t.store).Exchange(t.Context(), callsFor("k"), func([]*lease.Call) {})
			name := "store.round_trip.duration{error.type=" + c.want + " node=0 operation=lease}"
			check(t, t.metrics()[name] == 1, "%v: %v", c.err, t.metrics())
		})
	}
}

// A reported Store has the identity of its inner Store for hybrid.New.
func TestAStoreKeepsItsIdentity(t *testing.T) {
	bubble(t, func(t *world) {
		for _, store := range []lease.Store{memory.New(nil), inRedis(t)} {
			l := t.startOn(t.Telemetry.Store(store), config(hourly))
			once, again := t.Telemetry.Store(store), t.Telemetry.Store(t.Telemetry.Store(store))
			for _, same := range []lease.Store{store, once, again} {
				other, err := hybrid.New(same, config(steady))
				check(t, errors.Is(err, hybrid.ErrInvalidConfig), "%v", err)
				if err == nil {
					other.Close()
				}
				t.startOn(same, config(hourly)).Close()
			}
			l.Close()
		}
		for _, none := range []lease.Store{nil, (*memory.Store)(nil)} {
			_, err := hybrid.New(t.Telemetry.Store(none), config(hourly))
			check(t, errors.Is(err, hybrid.ErrInvalidConfig), "%v", err)
		}
	})
}

// inRedis returns a Store without a server.
func inRedis(t testing.TB) lease.Store {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { client.Close() })
	bucket, err := redisbucket.New(client, redisbucket.Config{})
	noErr(t, err)
	return bucket
}

// pinger is a Store that can be pinged.
type pinger struct {
	lease.Store
	err error
}

func (p pinger) Ping(context.Context) error { return p.err }

// A reported Store forwards pings and look-ups of nodes, and its spans name the system, if it is known.
func TestAStoreForwardsToItsInnerStore(t *testing.T) {
	memory, down := memory.New(nil), errors.New("down")
	w := newWorld(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for i, c := range []struct {
		inner  lease.Store
		ping   error
		node   int
		kind   trace.SpanKind
		system string
	}{
		{memory, nil, -1, trace.SpanKindInternal, ""},
		{pinger{memory, nil}, nil, -1, trace.SpanKindClient, ""},
		{pinger{memory, down}, down, -1, trace.SpanKindClient, ""},
		{inRedis(t), context.Canceled, 0, trace.SpanKindClient, "redis"},
	} {
		store := w.Telemetry.Store(c.inner)
		ctx := t.Context()
		if c.system == "redis" {
			ctx = ended // there is no server
		}
		err := w.startOn(store, config(hourly)).Ping(ctx)
		check(t, errors.Is(err, c.ping) && (err == nil) == (c.ping == nil), "%T: %v, want %v", c.inner, err, c.ping)
		node := store.(lease.Router).NodeOf("k")
		check(t, node == c.node, "%T: node %d, want %d", c.inner, node, c.node)
		store.Exchange(ended, callsFor("k"), func([]*lease.Call) {})
		s := w.ended("yuzhi.lease")[i]
		is := s.SpanKind() == c.kind && said(s, "db.system.name") == c.system
		check(t, is, "%T: %v, %v", c.inner, s.SpanKind(), s.Attributes())
	}
}

// answering is a Store that answers at once and allocates nothing.
type answering struct{ lease.Store }

func (answering) Exchange(_ context.Context, calls []*lease.Call, done func([]*lease.Call)) {
	done(calls)
}

// Without a tracer the Store adds no allocation for each key, but a few for each exchange.
func TestAStoreAllocatesNothingForAKey(t *testing.T) {
	telemetry, err := hybridotel.New(hybridotel.Config{MeterProvider: newMeters()})
	noErr(t, err)
	s := telemetry.Store(answering{})
	done := func([]*lease.Call) {}
	allocs := func(keys int) float64 {
		calls := callsFor(make([]string, keys)...)
		return testing.AllocsPerRun(100, func() { s.Exchange(context.Background(), calls, done) })
	}
	one, many := allocs(1), allocs(1000)
	check(t, many <= one, "%v allocations for 1 key, %v for 1000", one, many)
}

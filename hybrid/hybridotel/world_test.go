package hybridotel_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	api "go.opentelemetry.io/otel/trace"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/hybridotel"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

var check, must, noErr = testkit.Check, testkit.Must, testkit.NoErr

// world is a test with a store in memory, and a Telemetry whose metrics and spans it can read.
type world struct {
	*testing.T
	*hybridotel.Telemetry
	store  *network
	reader *metric.ManualReader
	spans  *tracetest.SpanRecorder
	traces *trace.TracerProvider
	settle func() // in a bubble, waits until all goroutines are blocked
}

// tracer is the program's own, for spans of callers.
func (t *world) tracer() api.Tracer { return t.traces.Tracer("test") }

func newMeters() *metric.MeterProvider {
	return metric.NewMeterProvider(metric.WithReader(metric.NewManualReader()))
}

// newMetersRead returns meters that a reader collects at an interval while tb runs.
func newMetersRead(tb testing.TB, interval time.Duration) (*metric.MeterProvider, func() int64) {
	reader := metric.NewManualReader()
	var n atomic.Int64
	stop, ticker := make(chan struct{}), time.NewTicker(interval)
	tb.Cleanup(func() {
		ticker.Stop()
		close(stop)
	})
	go func() {
		for {
			select {
			case <-ticker.C:
				var all metricdata.ResourceMetrics
				noErr(tb, reader.Collect(context.Background(), &all))
				n.Add(1)
			case <-stop:
				return
			}
		}
	}()
	return metric.NewMeterProvider(metric.WithReader(reader)), n.Load
}

// newWorld returns a world whose metrics and spans have these attributes.
func newWorld(t *testing.T, attributes ...attribute.KeyValue) *world {
	t.Helper()
	w := &world{T: t, store: &network{Store: memory.New(nil)}, reader: metric.NewManualReader(),
		spans: tracetest.NewSpanRecorder()}
	w.traces = trace.NewTracerProvider(trace.WithSpanProcessor(w.spans))
	var err error
	w.Telemetry, err = hybridotel.New(hybridotel.Config{
		MeterProvider:  metric.NewMeterProvider(metric.WithReader(w.reader)),
		TracerProvider: w.traces,
		Attributes:     attributes,
	})
	noErr(t, err)
	return w
}

// bubble runs body in a world of its own, in virtual time.
func bubble(t *testing.T, body func(t *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.settle = synctest.Wait
		body(w)
	})
}

// start starts a registered Limiter whose Store is reported.
func (t *world) start(c hybrid.Config) *hybrid.Limiter {
	t.Helper()
	l := t.startOn(t.Telemetry.Store(t.store), c)
	t.Register(l)
	return l
}

// startOn starts a Limiter that is not registered.
func (t *world) startOn(s lease.Store, c hybrid.Config) *hybrid.Limiter {
	t.Helper()
	c.Logger = slog.New(slog.DiscardHandler)
	l, err := hybrid.New(s, c)
	noErr(t, err)
	t.Cleanup(func() {
		check(t, l.Stats().Conserved(), "tokens were lost or forged: %+v", l.Stats())
		l.Close()
	})
	return l
}

// network is a Store over another whose calls can be made to fail or to wait.
type network struct {
	lease.Store
	mu   sync.Mutex
	err  error         // of every call
	held chan struct{} // calls are answered when it is closed
}

// fails makes every exchange fail with err from now on; nil makes none fail.
func (n *network) fails(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.err = err
}

// holds delays the answers of calls until release.
func (n *network) holds() (release func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	held := make(chan struct{})
	n.held = held
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.held = nil
		close(held)
	}
}

// Configure implements lease.Store.
func (n *network) Configure(
	ctx context.Context, key string, op lease.Op, c lease.Config,
) (lease.State, error) {
	n.mu.Lock()
	err, inner := n.err, n.Store
	n.mu.Unlock()
	if err != nil {
		return lease.State{}, fmt.Errorf("key %q: %w", key, err)
	}
	return inner.Configure(ctx, key, op, c)
}

// Exchange implements lease.Store.
func (n *network) Exchange(ctx context.Context, calls []*lease.Call, done func([]*lease.Call)) {
	n.mu.Lock()
	err, held, inner := n.err, n.held, n.Store
	n.mu.Unlock()
	if held != nil {
		<-held
	}
	if err == nil {
		inner.Exchange(ctx, calls, done)
		return
	}
	for _, c := range calls {
		c.Err = fmt.Errorf("key %q: %w", c.Key, err)
	}
	done(calls)
}

// metrics returns the values of all metrics by "name{attribute=value ...}"; of a histogram the count.
func (t *world) metrics() map[string]float64 {
	t.Helper()
	values, _ := t.values()
	return values
}

// values returns the values of all metrics, and the sums of histograms.
func (t *world) values() (values, sums map[string]float64) {
	t.Helper()
	values, sums = map[string]float64{}, map[string]float64{}
	for _, m := range t.collect() {
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				values[nameOf(m.Name, p.Attributes)] = float64(p.Value)
			}
		case metricdata.Gauge[float64]:
			for _, p := range data.DataPoints {
				values[nameOf(m.Name, p.Attributes)] = p.Value
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				name := nameOf(m.Name, p.Attributes)
				values[name], sums[name] = float64(p.Count), p.Sum
			}
		default:
			t.Errorf("%s is a %T", m.Name, data)
		}
	}
	return values, sums
}

// collect returns the metrics that a reader collects.
func (t *world) collect() []metricdata.Metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	noErr(t, t.reader.Collect(context.Background(), &all))
	if len(all.ScopeMetrics) == 0 {
		return nil
	}
	must(t, len(all.ScopeMetrics) == 1, "%d scopes", len(all.ScopeMetrics))
	return all.ScopeMetrics[0].Metrics
}

func nameOf(name string, attributes attribute.Set) string {
	var all []string
	for _, a := range attributes.ToSlice() {
		all = append(all, strings.TrimPrefix(string(a.Key), "yuzhi.")+"="+a.Value.String())
	}
	return strings.TrimPrefix(name, "yuzhi.") + "{" + strings.Join(all, " ") + "}"
}

// says checks the metrics that begin with any of prefixes, and that no others do. Values that are 0
// need not be named.
func (t *world) says(want map[string]float64, prefixes ...string) {
	t.Helper()
	got := t.metrics()
	maps.DeleteFunc(got, func(name string, value float64) bool {
		_, named := want[name]
		asked := slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
		return !named && (!asked || value == 0)
	})
	for _, name := range slices.Sorted(maps.Keys(want)) {
		value, ok := got[name]
		check(t, ok && value == want[name], "%s is %v (%t), want %v", name, value, ok, want[name])
		delete(got, name)
	}
	check(t, len(got) == 0, "and there is %v", got)
}

// ended returns the ended spans of a name. The span of a lease call ends after its requests are served,
// so in a bubble ended waits until all goroutines are blocked.
func (t *world) ended(name string) (all []trace.ReadOnlySpan) {
	if t.settle != nil {
		t.settle()
	}
	for _, s := range t.spans.Ended() {
		if s.Name() == name {
			all = append(all, s)
		}
	}
	return all
}

// said returns an attribute of a span as text, or "".
func said(s trace.ReadOnlySpan, key attribute.Key) string {
	for _, a := range s.Attributes() {
		if a.Key == key {
			return a.Value.String()
		}
	}
	return ""
}

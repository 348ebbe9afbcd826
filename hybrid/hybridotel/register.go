package hybridotel

import (
	"context"
	"errors"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// limiterKey is the attribute for a Limiter's name.
var limiterKey = attribute.Key("yuzhi.limiter")

// Register reports l, all its classes together, until unregister is called; a second call of unregister
// does nothing. Each collection by a reader asks for Stats once.
//
// Limiters with one name are reported as one, and a Limiter that is registered twice counts once. A
// closed Limiter may be registered: its counts stand still. Unregister a Limiter after Shutdown, which
// still counts, or its memory stays. Its counts stay in the sums of its name, because a counter must not
// fall: a Limiter that replaces another of the same name continues its counts, and a Limiter that is
// registered again after unregister is counted again from its beginning.
func (t *Telemetry) Register(l *hybrid.Limiter) (unregister func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.groups[l.Name()]
	if g == nil {
		g = &group{limiters: make(map[*hybrid.Limiter]int), values: make(map[string]*value)}
		t.groups[l.Name()] = g
	}
	g.limiters[l]++
	return sync.OnceFunc(func() { t.unregister(g, l) })
}

func (t *Telemetry) unregister(g *group, l *hybrid.Limiter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g.limiters[l]--; g.limiters[l] > 0 {
		return
	}
	delete(g.limiters, l)
	t.read(g, l, func(v *value, n float64) { v.before += n })
}

// group has the registered Limiters of one name, and their values.
type group struct {
	limiters map[*hybrid.Limiter]int // how often each is registered
	values   map[string]*value       // by the metric's name and the encoded attributes
}

// value is the value of a metric for one set of attributes.
type value struct {
	metric     int           // its index in all
	attributes attribute.Set // for an Observer
	collection uint64        // the latest one that read it
	sum        float64       // in that collection
	before     float64       // if rising: the sum of unregistered Limiters
	highest    float64       // if rising: the highest that was reported
}

// read calls each for every value of l.
func (t *Telemetry) read(g *group, l *hybrid.Limiter, each func(v *value, n float64)) {
	stats := l.Stats()
	for i := range all {
		all[i].read(&stats, func(n float64, attributes ...attribute.KeyValue) {
			if stats.Name != "" {
				attributes = append(attributes, limiterKey.String(stats.Name))
			}
			set := t.with(attributes...)
			id := all[i].name + " " + set.Encoded(attribute.DefaultEncoder())
			v := g.values[id]
			if v == nil {
				v = &value{metric: i, attributes: set}
				g.values[id] = v
			}
			each(v, n)
		})
	}
}

// observe makes every collection of meter read the registered Limiters.
func (t *Telemetry) observe(meter metric.Meter) error {
	var errs []error
	for i := range all {
		instrument, err := all[i].instrument(meter)
		t.instruments, errs = append(t.instruments, instrument), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	_, err := meter.RegisterCallback(t.collect, t.instruments...)
	return err
}

// collect serves one collection of a reader.
func (t *Telemetry) collect(_ context.Context, o metric.Observer) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.collection++
	for _, g := range t.groups {
		for l := range g.limiters {
			t.read(g, l, func(v *value, n float64) { v.add(n, t.collection) })
		}
		for _, v := range g.values {
			if len(g.limiters) > 0 {
				v.report(o, t.instruments[v.metric], t.collection)
			}
		}
	}
	return nil
}

// add counts n, which a collection read.
func (v *value) add(n float64, collection uint64) {
	if v.collection != collection {
		v.collection, v.sum = collection, 0
	}
	if all[v.metric].kind == alike {
		v.sum = max(v.sum, n)
	} else {
		v.sum += n
	}
}

// report ends a collection. A rising value is reported even if no Limiter has it any more, and never
// falls. Stats.Admitted and Denied do fall, when a Reservation.Cancel gives tokens back or a Join denies;
// a reader would take the fall for a restart and count everything again. So the report stands still until
// the count is higher again, and is exact then.
func (v *value) report(o metric.Observer, instrument metric.Observable, collection uint64) {
	with := metric.WithAttributeSet(v.attributes)
	if v.collection != collection {
		v.sum = 0
	}
	switch kind := all[v.metric].kind; {
	case kind == rising:
		v.highest = max(v.highest, v.before+v.sum)
		o.ObserveInt64(instrument.(metric.Int64Observable), int64(v.highest), with)
	case v.collection != collection: // such as for a limit that is no longer in force
	case kind == level:
		o.ObserveInt64(instrument.(metric.Int64Observable), int64(v.sum), with)
	default:
		o.ObserveFloat64(instrument.(metric.Float64Observable), v.sum, with)
	}
}

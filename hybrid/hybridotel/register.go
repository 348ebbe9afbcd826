package hybridotel

import (
	"context"
	"errors"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

var limiterKey = attribute.Key("yuzhi.limiter")

// Register reports the metrics of l, of all classes together, until unregister is called. A second call of
// unregister does nothing.
//
// Limiters with the same name are reported as one, and a Limiter that is registered twice counts once. Call
// unregister after Limiter.Shutdown, because Shutdown changes counts. A registered Limiter is never freed.
// The counters of a name keep the counts of unregistered Limiters, because a counter must not fall; a Limiter
// that is registered again therefore counts again.
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
	t.read(g, l, func(v *value, n float64) { v.unregistered += n })
}

// group has the registered Limiters of one name, and their values.
type group struct {
	limiters map[*hybrid.Limiter]int // number of registrations of each Limiter
	values   map[string]*value       // values by the name and the encoded attributes of the metric
}

// value is the value of a metric for one set of attributes.
type value struct {
	metric       int // index of the metric in the variable all
	attributes   attribute.Set
	collection   uint64  // number of the last collection in which a Limiter had the value
	sum          float64 // value in the last collection: the highest for the kind alike, else the sum
	unregistered float64 // sum of unregistered Limiters, if the kind is rising
	highest      float64 // highest reported value, if the kind is rising
}

// read calls each(v, n) for every value v with number n in the Stats of l.
func (t *Telemetry) read(g *group, l *hybrid.Limiter, each func(v *value, n float64)) {
	stats := l.Stats()
	for i := range all {
		all[i].read(&stats, func(n float64, attributes ...attribute.KeyValue) {
			if stats.Name != "" {
				attributes = append(attributes, limiterKey.String(stats.Name))
			}
			set := t.attributeSet(attributes...)
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

// observe makes every collection of meter call collect.
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

// collect reports the values of all registered Limiters.
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

// report reports v at the end of a collection. A rising value is reported even if no Limiter has it any more.
// Stats.Admitted falls when Reservation.Cancel or a denied Join gives tokens back. A reader would take a fall
// for a restart and add the whole count again, so the reported value stays constant until the count exceeds
// it.
func (v *value) report(o metric.Observer, instrument metric.Observable, collection uint64) {
	with := metric.WithAttributeSet(v.attributes)
	if v.collection != collection {
		v.sum = 0
	}
	switch kind := all[v.metric].kind; {
	case kind == rising:
		v.highest = max(v.highest, v.unregistered+v.sum)
		o.ObserveInt64(instrument.(metric.Int64Observable), int64(v.highest), with)
	case v.collection != collection: // no Limiter has the value now, for example that of a former limit
	case kind == level:
		o.ObserveInt64(instrument.(metric.Int64Observable), int64(v.sum), with)
	default:
		o.ObserveFloat64(instrument.(metric.Float64Observable), v.sum, with)
	}
}

// observed is a metric read from Stats.
type observed struct {
	name, unit  string
	kind        kind
	description string
	read        func(s *hybrid.Stats, emit emit)
}

// emit reports one value of a metric with its attributes. A float64 is exact for counts below 2^53.
type emit func(value float64, attributes ...attribute.KeyValue)

// kind selects how the values of Limiters with the same name are combined.
type kind int

const (
	// rising values are summed and never reported lower than before.
	rising kind = iota
	// level values are summed.
	level
	// alike values should be equal in all Limiters of a name. The highest one is reported.
	alike
)

// The attributes that distinguish the values of a metric.
var (
	resultKey = attribute.Key("yuzhi.result")
	sourceKey = attribute.Key("yuzhi.source")
	reasonKey = attribute.Key("yuzhi.reason")
	stateKey  = attribute.Key("yuzhi.state")
	limitKey  = attribute.Key("yuzhi.limit")

	denied   = resultKey.String("denied")
	shadowed = resultKey.String("shadowed")
)

// plain returns the read function of a metric without attributes.
func plain(value func(*hybrid.Stats) int64) func(*hybrid.Stats, emit) {
	return func(s *hybrid.Stats, emit emit) { emit(float64(value(s))) }
}

// inForce returns the limits of keys in use, without the zero Limit under which Stats merges surplus limits.
func inForce(s *hybrid.Stats) (limits []hybrid.Limit) {
	for _, l := range s.Limits {
		if l.Keys > 0 && l.Limit != (hybrid.Limit{}) {
			limits = append(limits, l.Limit)
		}
	}
	return limits
}

// limitOf returns the attribute of a limit. Stats merges surplus limits under the zero Limit.
func limitOf(l hybrid.Limit) attribute.KeyValue {
	if l == (hybrid.Limit{}) {
		return limitKey.String("other")
	}
	return limitKey.String(l.String())
}

// all has the metrics of Register, in the order of the package comment.
var all = []observed{
	{"yuzhi.tokens.requested", "{token}", rising, "Tokens that requests asked for, by result.",
		func(s *hybrid.Stats, emit emit) {
			emit(float64(s.Admitted-s.Fallback), resultKey.String("admitted"), sourceKey.String("lease"))
			emit(float64(s.Fallback), resultKey.String("admitted"), sourceKey.String("fallback"))
			result, all := denied, s.Denied
			if s.Shadowed > 0 { // with Policy.Shadow, Denied counts requests whose context ended
				emit(float64(s.Denied), denied, sourceKey.String("lease"))
				result, all = shadowed, s.Shadowed
			}
			emit(float64(all-s.FallbackDenied), result, sourceKey.String("lease"))
			emit(float64(s.FallbackDenied), result, sourceKey.String("fallback"))
		}},
	{"yuzhi.tokens.granted_to_waiters", "{token}", rising, "Tokens granted to requests that waited for a lease call.",
		plain(func(s *hybrid.Stats) int64 { return s.GrantedToWaiters })},
	{"yuzhi.tokens.table_full", "{token}", rising, "Tokens denied: all of Config.KeysMax keys were in use.",
		plain(func(s *hybrid.Stats) int64 { return s.TableFull })},
	{"yuzhi.tokens.leased", "{token}", rising, "Tokens granted by the store.",
		plain(func(s *hybrid.Stats) int64 { return s.Leased })},
	{"yuzhi.tokens.returned", "{token}", rising, "Tokens given back to the store unused.",
		plain(func(s *hybrid.Stats) int64 { return s.Returned })},
	{"yuzhi.tokens.lost", "{token}", rising, "Leased tokens that were lost, by reason.",
		func(s *hybrid.Stats, emit emit) {
			emit(float64(s.UnknownToBucket), reasonKey.String(string(hybrid.LossVoid)))
			emit(float64(s.Burnt-s.UnknownToBucket), reasonKey.String(string(hybrid.LossExpired)))
		}},
	{"yuzhi.tokens.refunded", "{token}", rising, "Tokens that were admitted and then not used.",
		plain(func(s *hybrid.Stats) int64 { return s.Refunded })},
	{"yuzhi.tokens.charged", "{token}", rising, "Tokens used beyond an estimate.",
		plain(func(s *hybrid.Stats) int64 { return s.Charged })},
	{"yuzhi.tokens.held", "{token}", level, "Tokens leased and not used yet.",
		plain(func(s *hybrid.Stats) int64 { return s.Held })},
	{"yuzhi.requests.waiting", "{request}", level, "Requests that wait for a lease call or for tokens.",
		plain(func(s *hybrid.Stats) int64 { return int64(s.Waiting) })},
	{"yuzhi.requests.refused", "{request}", rising, "Requests that could not be decided, by reason.",
		func(s *hybrid.Stats, emit emit) {
			emit(float64(s.Invalid), reasonKey.String("invalid"))
			emit(float64(s.Misconfigured), reasonKey.String("misconfigured"))
		}},
	{"yuzhi.keys", "{key}", level, "Keys in the table, by state.",
		func(s *hybrid.Stats, emit emit) {
			emit(float64(max(0, s.Keys-s.InUse)), stateKey.String("resting")) // InUse is read later than Keys
			emit(float64(s.InUse-s.Degraded), stateKey.String("active"))
			emit(float64(s.Degraded), stateKey.String("degraded"))
		}},
	{"yuzhi.nodes.away", "{node}", alike, "1 while a node does not answer, otherwise 0.",
		func(s *hybrid.Stats, emit emit) {
			for _, n := range s.Nodes {
				away := 0.0
				if n.Away > 0 {
					away = 1
				}
				emit(away, nodeKey.String(n.Node))
			}
		}},
	{"yuzhi.conflicts", "{conflict}", rising, "Keys whose bucket has other limits under the same version.",
		plain(func(s *hybrid.Stats) int64 { return s.Conflicts })},
	{"yuzhi.lease.calls", "{call}", rising, "Lease calls, each for one key.",
		plain(func(s *hybrid.Stats) int64 { return s.Calls })},
	{"yuzhi.lease.failures", "{call}", rising, "Lease calls that failed or were answered too late.",
		plain(func(s *hybrid.Stats) int64 { return s.Errors })},
	{"yuzhi.lease.round_trips", "{round_trip}", rising, "Exchanges with the store, of any number of calls.",
		plain(func(s *hybrid.Stats) int64 { return s.RoundTrips })},
	{"yuzhi.lease.rtt", "s", alike, "99th percentile of the latest round trips, of the slowest node.",
		func(s *hybrid.Stats, emit emit) { emit(s.RTT.Seconds()) }},
	{"yuzhi.limit.rate", "{token}/s", alike, "Rates of the limits in force for keys in use.",
		func(s *hybrid.Stats, emit emit) {
			for _, l := range inForce(s) {
				emit(l.Rate(), limitOf(l))
			}
		}},
	{"yuzhi.limit.burst", "{token}", alike, "Bursts of the limits in force for keys in use.",
		func(s *hybrid.Stats, emit emit) {
			for _, l := range inForce(s) {
				emit(float64(l.Capacity()), limitOf(l))
			}
		}},
	{"yuzhi.limit.keys", "{key}", level, "Keys in use, by limit in force.",
		func(s *hybrid.Stats, emit emit) {
			for _, l := range s.Limits {
				emit(float64(l.Keys), limitOf(l.Limit))
			}
		}},
	{"yuzhi.limit.denied", "{token}", rising, "Tokens denied, by limit.",
		func(s *hybrid.Stats, emit emit) {
			for _, l := range s.Limits {
				emit(float64(l.Denied), limitOf(l.Limit), denied)
				emit(float64(l.Shadowed), limitOf(l.Limit), shadowed)
			}
		}},
}

func (o *observed) instrument(m metric.Meter) (metric.Observable, error) {
	unit, text := metric.WithUnit(o.unit), metric.WithDescription(o.description)
	switch o.kind {
	case rising:
		return m.Int64ObservableCounter(o.name, unit, text)
	case level:
		return m.Int64ObservableUpDownCounter(o.name, unit, text)
	}
	return m.Float64ObservableGauge(o.name, unit, text)
}

package hybridotel

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// observed is a metric that is read from Stats.
type observed struct {
	name, unit  string
	kind        kind
	description string
	read        func(s *hybrid.Stats, emit emit)
}

// emit takes one value and its attributes, which differ for each value of a metric. Counts are whole
// numbers far below 2^53, so a float64 is exact.
type emit func(value float64, attributes ...attribute.KeyValue)

// kind selects how the values of several Limiters with one name are combined.
type kind int

const (
	// rising values add up. They are never reported lower than before.
	rising kind = iota
	// level values add up.
	level
	// alike values should be equal for all; the highest is reported.
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

// plain reads a metric without further attributes.
func plain(value func(*hybrid.Stats) int64) func(*hybrid.Stats, emit) {
	return func(s *hybrid.Stats, emit emit) { emit(float64(value(s))) }
}

// inForce calls f for the limits in force for a key in use, without those that Stats merges.
func inForce(s *hybrid.Stats, f func(l *hybrid.LimitStats, limit attribute.KeyValue)) {
	for i := range s.Limits {
		if l := &s.Limits[i]; l.Keys > 0 && l.Limit != (hybrid.Limit{}) {
			f(l, limitOf(l.Limit))
		}
	}
}

// limitOf returns the attribute of a limit. The zero Limit stands for those that Stats merges.
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
			emit(float64(s.Denied), denied)
			emit(float64(s.Shadowed), shadowed)
		}},
	{"yuzhi.tokens.awaited", "{token}", rising, "Tokens admitted by a lease call that the request waited for.",
		plain(func(s *hybrid.Stats) int64 { return s.Awaited })},
	{"yuzhi.tokens.crowded", "{token}", rising, "Tokens denied because all of Config.KeysMax keys were in use.",
		plain(func(s *hybrid.Stats) int64 { return s.Crowded })},
	{"yuzhi.tokens.leased", "{token}", rising, "Tokens granted by the store.",
		plain(func(s *hybrid.Stats) int64 { return s.Leased })},
	{"yuzhi.tokens.returned", "{token}", rising, "Tokens given back to the store unused.",
		plain(func(s *hybrid.Stats) int64 { return s.Returned })},
	{"yuzhi.tokens.lost", "{token}", rising, "Leased tokens that came to nothing, by reason.",
		func(s *hybrid.Stats, emit emit) {
			emit(float64(s.Voided), reasonKey.String(string(hybrid.LossVoid)))
			emit(float64(s.Burnt-s.Voided), reasonKey.String(string(hybrid.LossExpired)))
		}},
	{"yuzhi.tokens.refunded", "{token}", rising, "Tokens that were admitted and then not used.",
		plain(func(s *hybrid.Stats) int64 { return s.Refunded })},
	{"yuzhi.tokens.charged", "{token}", rising, "Tokens used beyond what was reserved.",
		plain(func(s *hybrid.Stats) int64 { return s.Charged })},
	{"yuzhi.tokens.held", "{token}", level, "Tokens leased and not used yet.",
		plain(func(s *hybrid.Stats) int64 { return s.Held })},
	{"yuzhi.requests.waiting", "{request}", level, "Requests that wait for a lease call or in line.",
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
	{"yuzhi.conflicts", "{conflict}", rising, "Keys whose bucket has other limits under the same version.",
		plain(func(s *hybrid.Stats) int64 { return s.Conflicts })},
	{"yuzhi.lease.calls", "{call}", rising, "Lease calls, each for one key.",
		plain(func(s *hybrid.Stats) int64 { return s.Calls })},
	{"yuzhi.lease.failures", "{call}", rising, "Lease calls that brought no grant, or not in time.",
		plain(func(s *hybrid.Stats) int64 { return s.Errors })},
	{"yuzhi.lease.round_trips", "{round_trip}", rising, "Exchanges with the store, of any number of calls.",
		plain(func(s *hybrid.Stats) int64 { return s.RoundTrips })},
	{"yuzhi.lease.rtt", "s", alike, "99th percentile of the latest round trips, of the slowest node.",
		func(s *hybrid.Stats, emit emit) { emit(s.RTT.Seconds()) }},
	{"yuzhi.limit.rate", "{token}/s", alike, "The limits in force for keys in use.",
		func(s *hybrid.Stats, emit emit) {
			inForce(s, func(l *hybrid.LimitStats, limit attribute.KeyValue) {
				emit(l.Limit.Rate(), limit)
			})
		}},
	{"yuzhi.limit.burst", "{token}", alike, "The bursts of the limits in force for keys in use.",
		func(s *hybrid.Stats, emit emit) {
			inForce(s, func(l *hybrid.LimitStats, limit attribute.KeyValue) {
				emit(float64(l.Limit.Capacity()), limit)
			})
		}},
	{"yuzhi.limit.keys", "{key}", level, "Keys in use for which a limit is in force.",
		func(s *hybrid.Stats, emit emit) {
			for _, l := range s.Limits {
				emit(float64(l.Keys), limitOf(l.Limit))
			}
		}},
	{"yuzhi.limit.denied", "{token}", rising, "Tokens denied because of one limit.",
		func(s *hybrid.Stats, emit emit) {
			for _, l := range s.Limits {
				emit(float64(l.Denied), limitOf(l.Limit), denied)
				emit(float64(l.Shadowed), limitOf(l.Limit), shadowed)
			}
		}},
}

// instrument makes the instrument of o.
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

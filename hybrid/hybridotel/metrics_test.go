package hybridotel

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// Each metric is read from its fields of Stats; only what is not 0 is listed.
func TestMetricsAreReadFromStats(t *testing.T) {
	s := hybrid.Stats{
		Keys: 10, InUse: 8, Degraded: 3, Waiting: 4, RTT: 30 * time.Millisecond, Leased: 6, Admitted: 17,
		Fallback: 7, Denied: 8, Shadowed: 9, GrantedToWaiters: 11, TableFull: 12, Returned: 13, Burnt: 29,
		UnknownToBucket: 14, Held: 16, Refunded: 18, Charged: 19, Calls: 20, RoundTrips: 21, Errors: 22,
		Conflicts: 23, Invalid: 24, FallbackDenied: 2,
		Nodes:         []hybrid.NodeStats{{Node: "a:6379", Away: time.Second}, {Node: "b:6379"}},
		Misconfigured: 25, Limits: []hybrid.LimitStats{
			{Limit: hybrid.PerMinute(120).WithBurst(7), Keys: 26, Denied: 27, Shadowed: 28},
			{Limit: hybrid.PerHour(1), Denied: 30}, // in force for no key in use
			{Keys: 31, Denied: 32},                 // those that Stats merges
		},
	}
	want := map[string]float64{
		"tokens.requested yuzhi.result=admitted,yuzhi.source=lease":    10,
		"tokens.requested yuzhi.result=admitted,yuzhi.source=fallback": 7,
		"tokens.requested yuzhi.result=denied,yuzhi.source=lease":      8,
		"tokens.requested yuzhi.result=shadowed,yuzhi.source=lease":    7,
		"tokens.requested yuzhi.result=shadowed,yuzhi.source=fallback": 2,
		"tokens.granted_to_waiters ":                                   11,
		"tokens.table_full ":                                           12,
		"tokens.leased ":                                               6,
		"tokens.returned ":                                             13,
		"tokens.lost yuzhi.reason=void":                                14,
		"tokens.lost yuzhi.reason=expired":                             15,
		"tokens.refunded ":                                             18,
		"tokens.charged ":                                              19,
		"tokens.held ":                                                 16,
		"requests.waiting ":                                            4,
		"requests.refused yuzhi.reason=invalid":                        24,
		"requests.refused yuzhi.reason=misconfigured":                  25,
		"keys yuzhi.state=resting":                                     2,
		"keys yuzhi.state=active":                                      5,
		"keys yuzhi.state=degraded":                                    3,
		"nodes.away yuzhi.node=a:6379":                                 1,
		"conflicts ":                                                   23,
		"lease.calls ":                                                 20,
		"lease.failures ":                                              22,
		"lease.round_trips ":                                           21,
		"lease.rtt ":                                                   0.03,
		"limit.rate yuzhi.limit=120/m burst 7":                         2,
		"limit.burst yuzhi.limit=120/m burst 7":                        7,
		"limit.keys yuzhi.limit=120/m burst 7":                         26,
		"limit.keys yuzhi.limit=other":                                 31,
		"limit.denied yuzhi.limit=120/m burst 7,yuzhi.result=denied":   27,
		"limit.denied yuzhi.limit=120/m burst 7,yuzhi.result=shadowed": 28,
		"limit.denied yuzhi.limit=1/h,yuzhi.result=denied":             30,
		"limit.denied yuzhi.limit=other,yuzhi.result=denied":           32,
	}
	got := map[string]float64{}
	for _, m := range all {
		m.read(&s, func(value float64, attributes ...attribute.KeyValue) {
			set := attribute.NewSet(attributes...)
			if value != 0 {
				got[fmt.Sprintf("%s %s", m.name[len("yuzhi."):], set.Encoded(attribute.DefaultEncoder()))] = value
			}
		})
	}
	testkit.Check(t, maps.Equal(got, want), "%v\nwant %v", got, want)
}

package hybridotel_test

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// hourly gets nothing back while a test runs.
var hourly = hybrid.PerHour(1).WithBurst(100)

func config(limits ...hybrid.Limit) hybrid.Config { return hybrid.Config{Name: "api", Limits: limits} }

// What requests asked for is reported by result, what was refused by reason.
func TestRequestsByResult(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(config(hourly))
		t.says(nil, "tokens", "requests", "lease")
		for range 3 {
			must(t, l.Allow("k"), "denied")
		}
		must(t, !l.AllowN("k", 98) && !l.AllowN("k", 101) && !l.Allow(""), "admitted")
		time.Sleep(time.Second)
		t.says(map[string]float64{
			"tokens.requested{limiter=api result=admitted source=lease}": 3,
			"tokens.requested{limiter=api result=denied}":                98,
			"tokens.awaited{limiter=api}":                                3,
			"tokens.leased{limiter=api}":                                 3,
			"requests.refused{limiter=api reason=invalid}":               2,
			"lease.calls{limiter=api}":                                   4,
			"lease.round_trips{limiter=api}":                             4,
		}, "tokens", "requests", "lease")
	})
}

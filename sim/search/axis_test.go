package search

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestAnAxisIsAPathAndItsValues(t *testing.T) {
	for text, want := range map[string]string{
		"clock.offset=0,100ms,10s":                      "0|100ms|10s",
		"policy.target=10ms..1s:log:3":                  "10ms|100ms|1s",
		"policy.target=10ms..1s:log:8":                  "10ms|19.3ms|37ms|72ms|139ms|270ms|520ms|1s",
		"policy.target=100ms..1s:lin:4":                 "100ms|400ms|700ms|1s",
		"policy.ttl=1s..2m:lin:3":                       "1s|1m1s|2m",
		"clock.offset=0..100ms:lin:3":                   "0|50ms|100ms",
		"groups.0.count=1..4:lin:4":                     "1|2|3|4",
		"groups.0.count=1..3:lin:5":                     "1|2|3",
		"groups.0.count=1..1000:log:4":                  "1|10|100|1000",
		"workload.load=1.0..3.0:lin:5":                  "1.0|1.5|2|2.5|3.0",
		"network.loss=0.1%..10%:log:3":                  "0.1%|1%|10%",
		"network.loss=1%..2%:lin:4":                     "1%|1.33%|1.67%|2%",
		"workload.rate=1000/s..1010/s:lin:3":            "1000/s|1005/s|1010/s",
		"clock.drift=-50ppm..50ppm:lin:3":               "-50ppm|0ppm|50ppm",
		"workload.kind=poisson,sync":                    "poisson|sync",
		"clock.offset=normal(0s,10ms),uniform(0s,1s)":   "normal(0s,10ms)|uniform(0s,1s)",
		"limits.0=100/s, 5000/m burst 200":              "100/s|5000/m burst 200",
		"policy.target=5ms,10ms..1s:log:3,2s":           "5ms|10ms|100ms|1s|2s",
		"policy.target=10ms,10ms..1s:log:3":             "10ms|100ms|1s",
		"workload.rate=1e3/s..1e5/s:log:3":              "", // the number's text ends before the e
		"policy.target=3ms..3.000001ms:lin:3":           "3ms|3.000001ms",
		"policy.target=1ns..3ns:lin:9":                  "1ns|2ns|3ns",
		"network.loss=0.0000001%..0.0000003%:lin:3":     "0.0000001%|0.0000002%|0.0000003%",
		"workload.load=0.000001..1000000.0:log:3":       "0.000001|1|1000000.0",
		"policy.overcommit=1..9007199254740992:log:2":   "1|9007199254740992",
		"redis.service_time=lognormal(1ms,2ms),exp(1s)": "lognormal(1ms,2ms)|exp(1s)",
	} {
		a, err := ParseAxis(text)
		if want == "" {
			if err == nil {
				t.Errorf("%s: %v, want an error", text, a.Values)
			}
			continue
		}
		if path, _, _ := strings.Cut(text, "="); err != nil || a.Path != path || !slices.Equal(a.Values, strings.Split(want, "|")) {
			t.Errorf("%s:\n%v, %v; want\n%s", text, strings.Join(a.Values, "|"), err, want)
		}
	}
}

func TestAnAxisThatCannotBeReadSaysWhy(t *testing.T) {
	for text, want := range map[string]string{
		"":                                        "must be PATH=VALUES",
		"policy.target":                           "must be PATH=VALUES",
		"=1":                                      "must be PATH=VALUES",
		" policy.target=1":                        "must be PATH=VALUES",
		"policy.target=":                          "a value is missing",
		"policy.target=1ms,,2ms":                  "a value is missing",
		"policy.target=1ms,2ms,":                  "a value is missing",
		"policy.target=1ms, 2ms,1ms":              "1ms is there twice",
		"policy.target=1ms..2ms":                  "the range 1ms..2ms must end in :log:8",
		"policy.target=1ms..2ms:exp:3":            "must end in :log:8",
		"policy.target=1ms..2ms:log":              "must end in :log:8",
		"policy.target=1ms..2ms:log:x":            "must end in :log:8",
		"policy.target=1ms..2ms:log:1":            "1 values, must be 2 to 10000",
		"policy.target=1ms..2ms:log:10001":        "10001 values, must be 2 to 10000",
		"policy.target=5ms,1ms..:log:3":           "the ends of 1ms..:log:3 must be numbers or durations",
		"policy.target=..1ms:log:3":               "must be numbers or durations",
		"policy.target=2ms..1ms:log:3":            "1ms is not above 2ms",
		"policy.target=0..1s:log:3":               "0 is not above 0",
		"clock.drift=-5ppm..5ppm:log:3":           "-5ppm is not above 0",
		"workload.rate=90/m..10/s:lin:3":          "have different units",
		"x=1..2ms:lin:3":                          "have different units",
		"workload.kind=poisson..sync:lin:3":       "must be numbers or durations",
		"limits.0=1/s burst 1..2/s burst 2:lin:3": "must be numbers or durations",
		"x=1..5001:lin:5001,6000..11000:lin:5001": "10002 values, must be at most 10000",
	} {
		if _, err := ParseAxis(text); !errors.Is(err, ErrAxis) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
}

package sweep

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

func TestAnAxisErrorNamesItsColumn(t *testing.T) {
	for text, want := range map[string]string{
		"":                                        "column 1: there is no '='",
		"policy.target":                           "column 14: there is no '='",
		"=1":                                      "column 1: the path is empty",
		" policy.target=1":                        "column 1: the path is empty or has blanks",
		"policy.target=":                          "column 15: a value is missing",
		"policy.target=1ms,,2ms":                  "column 19: a value is missing",
		"policy.target=1ms,2ms,":                  "column 23: a value is missing",
		"policy.target=1ms, 2ms,1ms":              "column 24: 1ms is there twice",
		"policy.target=1ms..2ms":                  "column 23: a range ends in :log:8",
		"policy.target=1ms..2ms:exp:3":            "column 24: a range ends in :log:8",
		"policy.target=1ms..2ms:log":              `column 27: "" values, must be 2 to 10000`,
		"policy.target=1ms..2ms:log:x":            `column 28: "x" values`,
		"policy.target=1ms..2ms:log:1":            `column 28: "1" values, must be 2`,
		"policy.target=1ms..2ms:log:10001":        `column 28: "10001" values`,
		"policy.target=5ms,1ms..:log:3":           `column 19: "" is no number or duration that a range can end with`,
		"policy.target=..1ms:log:3":               `column 15: "" is no number`,
		"policy.target=2ms..1ms:log:3":            "column 15: 1ms is not above 2ms",
		"policy.target=0..1s:log:3":               "column 15: 0 is not above 0",
		"clock.drift=-5ppm..5ppm:log:3":           "column 13: -5ppm is not above 0",
		"workload.rate=90/m..10/s:lin:3":          `column 15: "90/m" and "10/s" have different units`,
		"x=1..2ms:lin:3":                          `column 3: "1" and "2ms" have different units`,
		"workload.kind=poisson..sync:lin:3":       `column 15: "poisson" is no number`,
		"limits.0=1/s burst 1..2/s burst 2:lin:3": `column 10: "1/s burst 1" is no number`,
		"größe=1,,2":                              "column 9: a value is missing",
	} {
		_, err := ParseAxis(text)
		if !errors.Is(err, ErrAxis) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
}

package hybridotel_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// row is one metric of the package comment.
type row struct{ instrument, unit string }

// The package comment has every metric that is reported and no other, each with its instrument and its unit.
func TestTheTableOfMetrics(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	noErr(t, err)
	told := map[string]row{}
	line := regexp.MustCompile(`(?m)^//\t(yuzhi[\w.]+) +(counter|updowncounter|gauge|histogram) +(\S+) `)
	for _, m := range line.FindAllStringSubmatch(string(text), -1) {
		told[m[1]] = row{m[2], m[3]}
	}
	must(t, len(told) > 20, "the table has %d metrics", len(told))
	bubble(t, func(t *world) {
		l := t.start(config(steady))
		noErr(t, t.Wait(t.Context(), l.Key("k")))
		time.Sleep(time.Millisecond)
		reported := map[string]row{}
		for _, m := range t.collect() {
			r := row{unit: m.Unit}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				r.instrument = "updowncounter"
				if data.IsMonotonic {
					r.instrument = "counter"
				}
			case metricdata.Gauge[float64]:
				r.instrument = "gauge"
			case metricdata.Histogram[float64]:
				r.instrument = "histogram"
			}
			check(t, m.Description != "", "%s has no description", m.Name)
			reported[m.Name] = r
		}
		for _, name := range slices.Sorted(maps.Keys(reported)) {
			is := reported[name]
			check(t, told[name] == is, "the table has %s as %v, and it is %v", name, told[name], is)
			delete(told, name)
		}
		check(t, len(told) == 0, "the table has %v, which are not reported", told)
	})
}

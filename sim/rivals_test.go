//go:build !race

// Like accuracy_test.go, whose helpers it uses: nothing here for the race detector.

package sim_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/rival"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// TestRivalsOnFourLoads prints, with -v, the table of all algorithms of docs/evaluation.md: 16 processes on
// 1000/s burst 200, whose clocks are up to 100 ms off. Leases admit no more than the promise on any of the
// loads, and 96 % of what one central bucket does, with fewer calls than one for each request.
func TestRivalsOnFourLoads(t *testing.T) {
	loads := []struct{ name, workload string }{
		{"below the limit", "load: 0.9"},
		{"twice the limit", "load: 2"},
		{"on and off", "kind: onoff, load: 1.2, on: 300ms, off: 700ms"},
		{"all at once, each half second", "kind: sync, load: 1.5, within: 10ms"},
	}
	columns := 1 + len(loads)
	rows := map[string][]string{}
	names := append([]string{"yuzhi"}, rival.Names()...)
	for _, load := range loads[:testkit.ShortOrLong(t, 1, len(loads), "loads")] {
		s := fleet(t, "1000/s burst 200", 16, "clock: {offset: 'uniform(-100ms,100ms)'}, workload: {%s}",
			load.workload)
		s.Rivals, s.Reps, s.Warmup = rival.Names(), 2, 5*time.Second
		r := run(t, s)
		row := func(name string, rejects, beyond, trips sim.Figure) {
			rows[name] = append(rows[name], fmt.Sprintf("%.1f %%, %.0f, %.0f", 100*rejects.Mean, beyond.Worst,
				trips.Mean))
		}
		row(names[0], r.FalseRejectRatio, r.BoundExceededBy, r.RoundTripsPerS)
		for _, x := range r.Rivals {
			row(x.Name, x.FalseRejectRatio, x.BoundExceededBy, x.RoundTripsPerS)
		}
		reaches(t, load.name, r, 0.96)
		testkit.Check(t, r.RoundTripsPerS.Mean < r.Rivals[0].RoundTripsPerS.Mean,
			"%s: %.0f round trips/s, %s %.0f",
			load.name, r.RoundTripsPerS.Mean, r.Rivals[0].Name, r.Rivals[0].RoundTripsPerS.Mean)
	}
	head := []string{"false rejects, tokens above the bound, round trips/s"}
	for _, load := range loads {
		head = append(head, load.name)
	}
	t.Log("| " + strings.Join(head, " | ") + " |")
	t.Log(strings.Repeat("| --- ", columns) + "|")
	for _, name := range names {
		t.Logf("| `%s` | %s |", name, strings.Join(rows[name], " | "))
	}
}

package docs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim"
	scenfile "github.com/yuzhi-go/yuzhi/sim/scenario/file"
	"github.com/yuzhi-go/yuzhi/sim/search"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

// skewed and skewAxes are the scenario and the axes of the map. docs/simulator.md and the example's
// own first lines have them as a command, and a test compares.
const skewed = "example:clock-skew"

var skewAxes = []search.Axis{
	{Path: "policy.target", Values: []string{"10ms", "30ms", "100ms", "250ms"}},
	{Path: "clock.offset", Values: []string{"0s", "1ms", "10ms", "100ms", "1s", "10s"}},
}

// clockSkew runs the example at each point of the axes; skewAxes give the map.
func clockSkew(ctx context.Context, axes []search.Axis) (search.SweepReport, error) {
	s, err := scenfile.Load(skewed)
	if err != nil {
		return search.SweepReport{}, err
	}
	lab := search.Lab{Run: sim.Runner{Parallel: 1}.Run}
	return lab.Sweep(ctx, s, axes)
}

// TestTheCommandOfTheMapAsksForTheMap: the command that the page and the example give draws what is
// in docs/clock-skew.svg.
func TestTheCommandOfTheMapAsksForTheMap(t *testing.T) {
	want := "leasesim sweep -f " + skewed + " --rivals"
	for _, a := range skewAxes {
		want += " --vary " + a.Path + "=" + strings.Join(a.Values, ",")
	}
	for _, file := range []string{"docs/simulator.md", "sim/scenario/file/examples/clock-skew.yaml"} {
		text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(file)))
		testkit.NoErr(t, err)
		testkit.Check(t, strings.Contains(string(text), want+"\n"), "%s does not have the command %s", file, want)
	}
}

// TestAFasterClockThatJoinsBringsTokens: docs/simulator.md says by how many central_client then
// exceeds the bound.
func TestAFasterClockThatJoinsBringsTokens(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "simulator.md"))
	testkit.NoErr(t, err)
	for offset, words := range map[string]string{"1s": " %s tokens where", "10s": "(%s within ten seconds)"} {
		// Given two processes, and 18 more after ten seconds,
		s, err := scenfile.Load(skewed)
		testkit.NoErr(t, err)
		testkit.NoErr(t, s.Clock.Offset.UnmarshalText([]byte(offset)))
		s.Rivals, s.Groups[0].Count = []string{"central_client"}, 2
		s.Groups[0].Scale = []sim.Step{{At: 10 * time.Second, Count: 20}}
		r, err := sim.Runner{Parallel: 1}.Run(t.Context(), s)
		testkit.NoErr(t, err)
		// then it is exceeded by what the page says, and by the leases not at all.
		want := fmt.Sprintf(words, view.Number(r.Rivals[0].BoundExceededBy.Worst))
		testkit.Check(t, strings.Contains(string(page), want) && r.BoundExceededBy.Worst == 0,
			"%v: the page does not say %q; the leases exceed it by %v", offset, want, r.BoundExceededBy.Worst)
	}
}

// TestThePictureOfClocksThatDisagree: the picture of the map is the one that is drawn now. In it the
// leases are the same whatever the clocks are, and those that go by the callers' clocks are not.
func TestThePictureOfClocksThatDisagree(t *testing.T) {
	axes := skewAxes
	long := testkit.Long(t, "2 points", "the map")
	if !long {
		axes = []search.Axis{{Path: axes[0].Path, Values: []string{"250ms"}},
			{Path: axes[1].Path, Values: []string{"0s", "10s"}}}
	}
	r, err := clockSkew(t.Context(), axes)
	testkit.NoErr(t, err)
	if long {
		isDrawn(t, "clock-skew.svg", string(view.HeatOf(r).SVG()))
	}
	columns := len(r.Axes[1].Values)
	for i, p := range r.Points {
		right := r.Points[i-i%columns] // with clocks that are right
		ours, without := p.Figures, right.Figures
		part, exceeded := ours.AdmittedVsCentral.Mean, ours.BoundExceededBy.Worst
		testkit.Check(t, part == without.AdmittedVsCentral.Mean && part > 0.99 && exceeded <= 0,
			"%s: admitted %v of one central bucket, exceeded by %v; with right clocks %v",
			r.Label(&p), part, exceeded, without.AdmittedVsCentral.Mean)
		for k, rival := range p.Rivals {
			far, window := i%columns == columns-1, rival.Name != "central_client" // which only ever goes forward
			part, exceeded := rival.AdmittedVsCentral.Mean, rival.BoundExceededBy.Worst
			over := part > 1.5 && exceeded > right.Rivals[k].BoundExceededBy.Worst+1000
			testkit.Check(t, !far || !window || over, "%s: %s admitted %v of one central bucket, exceeded by %v",
				r.Label(&p), rival.Name, part, exceeded)
		}
	}
}

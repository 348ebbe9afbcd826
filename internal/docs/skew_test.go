package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim"
	scenfile "github.com/yuzhi-go/yuzhi/sim/scenario/file"
	"github.com/yuzhi-go/yuzhi/sim/search"
)

// lesson is the line that stands above the picture and in the pages that show it.
const lesson = "Limiters that go by Redis's clock admit the same whatever other clocks say; leases of " +
	"stopped processes need StrictExpiry."

// skewed is the scenario of the picture, and skews are the sweeps of it that stand side by side there.
const skewed = "example:clock-skew"

const stops = "groups[0].pauses={every: 5s, for: 3s}"

var skews = []struct {
	sets []string
	axis search.Axis
}{
	{nil, search.Axis{Path: "clock.offset", Values: []string{"0s", "10ms", "100ms", "1s", "10s"}}},
	{[]string{"clock.offset=0s"},
		search.Axis{Path: "clock.drift", Values: []string{"500ppm", "10000ppm", "100000ppm"}}},
	{[]string{"clock.offset=0s", stops},
		search.Axis{Path: "policy.strict_expiry", Values: []string{"false", "true"}}},
}

// TestTheCommandsOfThePictureAskForIt: the page and the example have the commands whose maps the picture
// shows.
func TestTheCommandsOfThePictureAskForIt(t *testing.T) {
	for _, file := range []string{"docs/simulator.md", "sim/scenario/file/examples/clock-skew.yaml"} {
		text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(file)))
		testkit.NoErr(t, err)
		for _, s := range skews {
			want := "leasesim sweep -f " + skewed + " --rivals"
			for _, set := range s.sets {
				if strings.Contains(set, " ") {
					set = "'" + set + "'"
				}
				want += " --set " + set
			}
			want += " --vary " + s.axis.Path + "=" + strings.Join(s.axis.Values, ",") + "\n"
			testkit.Check(t, strings.Contains(string(text), want), "%s does not have the command %s", file,
				want)
		}
	}
}

// TestThePictureOfClocksThatDisagree: the simulator still shows the picture's lesson.
func TestThePictureOfClocksThatDisagree(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "simulator.md"))
	testkit.NoErr(t, err)
	line := strings.ReplaceAll(lesson, "StrictExpiry", "`StrictExpiry`")
	testkit.Check(t, strings.Contains(strings.Join(strings.Fields(string(text)), " "), line),
		"docs/simulator.md does not have the lesson")
	testkit.LongOnly(t) // TestTheCallersTimeIsThatOfAsking in sim/engine has whose clock counts
	for k, skew := range skews {
		s, err := scenfile.Load(skewed)
		testkit.NoErr(t, err)
		testkit.NoErr(t, scenfile.Set(&s, skew.sets...))
		lab := search.Lab{Run: sim.Runner{Parallel: 1}.Run}
		r, err := lab.Sweep(t.Context(), s, []search.Axis{skew.axis})
		testkit.NoErr(t, err)
		for i, p := range r.Points {
			showsTheLesson(t, k, r.Label(&p), p, r.Points[0], i == len(r.Points)-1)
		}
	}
}

// showsTheLesson checks a point of a sweep of skews against the first point, which has the best clocks.
func showsTheLesson(t *testing.T, sweep int, name string, p, first search.Point, last bool) {
	t.Helper()
	admitted, exceeded := p.Figures.AdmittedVsCentral.Mean, p.Figures.BoundExceededBy.Worst
	late := sweep == 2 && !last // without StrictExpiry
	testkit.Check(t, admitted > 0.98 && (exceeded > 0) == late,
		"%s: admitted %v of one central bucket, exceeded by %v", name, admitted, exceeded)
	for k, rival := range p.Rivals {
		part, right := rival.AdmittedVsCentral.Mean, first.Rivals[k].AdmittedVsCentral.Mean
		byProcess, central := strings.HasSuffix(rival.Name, "_client"), rival.Name == "central_client"
		testkit.Check(t, byProcess || part == right, "%s: %s admitted %v, with right clocks %v", name,
			rival.Name, part, right)
		wrong := byProcess && last && sweep < 2
		testkit.Check(t, !wrong || rival.BoundExceededBy.Worst > 1000 && (central || part > 1.5),
			"%s: %s admitted %v of one central bucket, exceeded by %v", name, rival.Name, part,
			rival.BoundExceededBy.Worst)
		testkit.Check(t, rival.Admitted.Mean < 0.9*p.Figures.Offered.Mean,
			"%s: %s admitted all that was offered", name, rival.Name)
	}
}

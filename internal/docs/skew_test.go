package docs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim"
	scenfile "github.com/yuzhi-go/yuzhi/sim/scenario/file"
)

// lesson is the line that stands above the picture and in the pages that show it.
const lesson = "Limiters that go by Redis's clock admit the same whatever other clocks say; leases of " +
	"stopped processes need StrictExpiry."

// skewed is the scenario of the picture, and skews are the fields that vary in its three maps, with the values.
const skewed = "example:clock-skew"

const stops = "groups[0].pauses={every: 5s, for: 3s}"

var skews = []struct {
	sets   []string
	field  string
	values []string
}{
	{nil, "clock.offset", []string{"0s", "10ms", "100ms", "1s", "10s"}},
	{[]string{"clock.offset=0s"}, "clock.drift", []string{"500ppm", "10000ppm", "100000ppm"}},
	{[]string{"clock.offset=0s", stops}, "policy.strict_expiry", []string{"false", "true"}},
}

// TestTheCommandsOfThePictureAskForIt: the page and the example have the commands with the last column of each
// of the picture's maps.
func TestTheCommandsOfThePictureAskForIt(t *testing.T) {
	for _, file := range []string{"docs/simulator.md", "sim/scenario/file/examples/clock-skew.yaml"} {
		text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(file)))
		testkit.NoErr(t, err)
		for _, s := range skews {
			want := "leasesim compare -f " + skewed
			for _, set := range append(slices.Clone(s.sets), s.field+"="+s.values[len(s.values)-1]) {
				if strings.Contains(set, " ") {
					set = "'" + set + "'"
				}
				want += " --set " + set
			}
			testkit.Check(t, strings.Contains(string(text), want+"\n"), "%s does not have the command %s", file,
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
		var first sim.Report
		for i, value := range skew.values {
			s, err := scenfile.Load(skewed)
			testkit.NoErr(t, err)
			name := skew.field + "=" + value
			testkit.NoErr(t, scenfile.Set(&s, append(slices.Clone(skew.sets), name)...))
			r, err := sim.Run(t.Context(), s)
			testkit.NoErr(t, err)
			if i == 0 {
				first = r
			}
			showsTheLesson(t, k, name, r, first, i == len(skew.values)-1)
		}
	}
}

// showsTheLesson checks a report of the map k against the map's first report, which has the best clocks.
func showsTheLesson(t *testing.T, k int, name string, r, first sim.Report, last bool) {
	t.Helper()
	admitted, exceeded := r.AdmittedVsCentral.Mean, r.BoundExceededBy.Worst
	late := k == 2 && !last // without StrictExpiry
	testkit.Check(t, admitted > 0.98 && (exceeded > 0) == late,
		"%s: admitted %v of one central bucket, exceeded by %v", name, admitted, exceeded)
	for i, rival := range r.Rivals {
		part, right := rival.AdmittedVsCentral.Mean, first.Rivals[i].AdmittedVsCentral.Mean
		byProcess, central := strings.HasSuffix(rival.Name, "_client"), rival.Name == "central_client"
		testkit.Check(t, byProcess || part == right, "%s: %s admitted %v, with right clocks %v", name,
			rival.Name, part, right)
		wrong := byProcess && last && k < 2
		testkit.Check(t, !wrong || rival.BoundExceededBy.Worst > 1000 && (central || part > 1.5),
			"%s: %s admitted %v of one central bucket, exceeded by %v", name, rival.Name, part,
			rival.BoundExceededBy.Worst)
		testkit.Check(t, rival.Admitted.Mean < 0.9*r.Offered.Mean,
			"%s: %s admitted all that was offered", name, rival.Name)
	}
}

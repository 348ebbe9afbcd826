package view

import (
	"crypto/sha256"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

var nan, inf = math.NaN(), math.Inf(1)

// TestTheLibraryIsTheOneThatWasPublished: uplot 1.6.32 of the npm registry, with its licence.
func TestTheLibraryIsTheOneThatWasPublished(t *testing.T) {
	for file, want := range map[string]string{
		"uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
		"uPlot.min.css":     "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
		"LICENSE":           "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
	} {
		text, err := os.ReadFile(filepath.Join("uplot", file))
		testkit.NoErr(t, err)
		got := fmt.Sprintf("%x", sha256.Sum256(text))
		testkit.Check(t, got == want, "%s has the digest %s, want %s", file, got, want)
	}
	says(t, library[:100], "(v1.6.32)")
}

func TestAChartLeavesOutWhatIsNoNumber(t *testing.T) {
	c := Chart{Title: "t", X: Axis{Names: []string{"10ms", "1s"}, At: Points{0, 1}}, Y: Axis{Unit: "%", FromZero: true},
		Lines: []Line{{Name: "a", X: Points{0, 1}, Y: Points{2, nan}, Low: Points{1, inf}, Series: Grey, Mark: Dashed}}}
	got, err := c.JSON()
	testkit.NoErr(t, err)
	want := `{"title":"t","x":{"names":["10ms","1s"],"at":[0,1]},"y":{"unit":"%","fromZero":true},"lines":[{"name":"a",` +
		`"x":[0,1],"y":[2,null],"low":[1,null],"series":-1,"mark":"dashed"}]}`
	testkit.Check(t, got == want, "%s", got)
}

// chartsOf are the titles of all charts of a document.
func chartsOf(d Document) (titles []string) {
	for _, s := range d.Sections {
		for _, c := range s.Charts {
			titles = append(titles, c.Title)
		}
	}
	return titles
}

// TestAFlatChartIsASentence: a line that stays within its bands, or within a fiftieth of its largest value,
// shows nothing. Its chart is not drawn, and its question is answered in words.
func TestAFlatChartIsASentence(t *testing.T) {
	for _, c := range []struct {
		ys     []float64
		band   float64
		answer string // "" for a chart
	}{
		{[]float64{0, 0, 0}, 0, "0"},
		{[]float64{1000, 1000 + 1e-9, nan}, 0, "1,000"},
		{[]float64{99.9, 100, 99.8}, 1, "99.8 to 100"},
		{[]float64{50, 90, 100}, 1, ""},
		{[]float64{1, 2}, 0.5, ""},
		{[]float64{1, 2}, 1, "1 to 2"},
	} {
		line := Line{X: c.ys, Y: c.ys}
		for _, y := range c.ys {
			line.Low, line.High = append(line.Low, y-c.band/2), append(line.High, y+c.band/2)
		}
		var s Section
		grey := Line{Series: Grey, X: []float64{0, 1}, Y: []float64{0, 9}}
		s.draw(Chart{Title: "How much?", Lines: []Line{line, grey}})
		text := strings.Join(s.Text, "")
		testkit.Check(t, len(s.Charts) == 1 == (c.answer == "") &&
			strings.HasPrefix(text, either(c.answer == "", "", "How much? "+c.answer+" at every point")),
			"%v ± %v: %d charts, %q", c.ys, c.band, len(s.Charts), text)
	}
}

func TestASweepDrawsOnlyWhatDiffers(t *testing.T) {
	// Given a sweep in which only the calls and the false rejects differ,
	r := swept(t, "policy.target=10ms,20ms,80ms", "policy.ttl=1s")
	// then these two have charts, and the others a sentence.
	d := Sweep(r, "", "")
	want := []string{questions[0].question, questions[1].question}
	testkit.Check(t, slices.Equal(chartsOf(d), want), "%q", chartsOf(d))
	says(t, strings.Join(d.Sections[0].Text, " "), questions[2].question+" 100 at every point.",
		questions[3].question+" 0 at every point.")
	// A sweep of which one point ran draws nothing;
	r.Finished = 1
	testkit.Check(t, chartsOf(Sweep(r, "", "")) == nil, "%q", chartsOf(Sweep(r, "", "")))
}

// TestNothingIsShownTwice: no page has two charts that are the same, or two headings.
func TestNothingIsShownTwice(t *testing.T) {
	shown := regexp.MustCompile(`data-chart="(.*?)"|<h[23]>(.*?)</h[23]>`)
	for name, page := range pages(t) {
		seen := map[string]bool{}
		for _, m := range shown.FindAllString(page, -1) {
			testkit.Check(t, !seen[m], "%s: twice: %.200s", name, m)
			seen[m] = true
		}
	}
}

// TestEveryChartAnswersAQuestion that is its title.
func TestEveryChartAnswersAQuestion(t *testing.T) {
	titles := regexp.MustCompile(`<figure>\s<h3>(.*?)</h3>`)
	for name, page := range pages(t) {
		for _, title := range titles.FindAllStringSubmatch(page, -1) {
			testkit.Check(t, strings.HasSuffix(title[1], "?"), "%s: %q is no question", name, title[1])
		}
	}
}

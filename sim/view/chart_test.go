package view

import (
	"crypto/sha256"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
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
	c := Chart{Title: "t", X: Axis{Names: []string{"10ms", "1s"}, At: Points{0, 1}}, Y: Axis{Unit: "%"},
		Lines: []Line{{Name: "a", X: Points{0, 1}, Y: Points{2, nan}, Low: Points{1, inf}, Series: Grey, Mark: Dashed}}}
	got, err := c.JSON()
	testkit.NoErr(t, err)
	want := `{"title":"t","x":{"names":["10ms","1s"],"at":[0,1]},"y":{"unit":"%"},"lines":[{"name":"a",` +
		`"x":[0,1],"y":[2,null],"low":[1,null],"series":-1,"mark":"dashed"}]}`
	testkit.Check(t, got == want, "%s", got)
}

func TestASweepOfOneParameterHasAChartForEachQuestion(t *testing.T) {
	// Given a sweep of one parameter, then each question has its chart;
	r := swept(t, "policy.target=10ms,20ms,80ms")
	charts := Sweep(r, "", "").Sections[0].Charts
	testkit.Must(t, len(charts) == len(questions), "%d charts", len(charts))
	for i, c := range charts {
		testkit.Check(t, c.Title == questions[i].question, "%+v", c)
	}
	// but two parameters have none.
	d := Sweep(swept(t, "policy.target=10ms,20ms", "groups.web.count=1,2"), "", "")
	testkit.Check(t, len(d.Sections) == 1 && d.Sections[0].Charts == nil, "%+v", d.Sections)
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

package view

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

var nan, inf = math.NaN(), math.Inf(1)

func drawn(t *testing.T, c Chart) (svg string, p picture) {
	t.Helper()
	p, err := c.picture()
	testkit.Must(t, err == nil, "%+v: %v", c, err)
	return strings.ToLower(string(p.Wide)), p
}

// filled counts what is filled with the colour of a series.
func filled(svg string, n int) int { return strings.Count(svg, `"fill:`+string(css(series[n]))+`"`) }

func stroked(svg string, n int) int { return strings.Count(svg, "stroke:"+string(css(series[n]))) }

func TestLinesHaveTheirColoursAndLeaveOutWhatIsNoNumber(t *testing.T) {
	xs := []float64{0, 1, 2, 3, 4}
	svg, p := drawn(t, Chart{Lines: []Line{
		{Name: "whole", X: xs, Y: []float64{1, 2, 3, 2, 1}, Series: 0, Low: xs, High: xs},
		{Name: "dotted", X: xs, Y: []float64{1, 2, nan, 2, 1}, Series: 1, Mark: Dotted},
		{Name: "nothing", X: []float64{0, 1}, Y: []float64{inf, nan}, Series: 2},
		{Name: "one point is seen", X: []float64{0, 1, 2}, Y: []float64{nan, 5, nan}, Series: 3},
	}})
	for n, want := range [][2]int{{1, 0}, {1, 4}, {0, 0}, {0, 1}} {
		testkit.Check(t, stroked(svg, n) == want[0] && filled(svg, n) == want[1],
			"series %d: %d strokes and %d dots, want %v", n, stroked(svg, n), filled(svg, n), want)
	}
	testkit.Check(t, strings.Count(svg, "fill-opacity") == 1, "no band")
	want := "[{whole line #0072b2} {dotted line dotted #d55e00} {nothing line #00926a} {one point is seen " +
		"line #b8608f}]"
	if got := fmt.Sprint(p.Legend); got != want {
		t.Error(got)
	}
}

func TestNamesAreWrittenAtTheirPlacesAndNotTooMany(t *testing.T) {
	svg, _ := drawn(t, Chart{Names: []string{"10ms", "1s"},
		Lines: []Line{{X: []float64{0, 1}, Y: []float64{2000, 30000}}}})
	for _, label := range []string{">10ms<", ">1s<", ">10,000<", ">20,000<"} {
		testkit.Check(t, strings.Contains(svg, label), "no %s", label)
	}
	for _, c := range []struct {
		low, high float64
		want      string
	}{
		{0, 30, "0 5 10 15 20 25 30"}, {0, 1, "0 0.2 0.4 0.6 0.8 1"},
		{0, 104000, "0 20,000 40,000 60,000 80,000 100,000"},
		{0.97, 1.003, "0.97 0.975 0.98 0.985 0.99 0.995 1"}, {-3, 3, "-3 -2 -1 0 1 2 3"}, {0, 9, "0 2 4 6 8"},
		{5, 5, ""}, {0, inf, ""},
	} {
		var labels []string
		for _, tick := range numberTicks(7)(c.low, c.high) {
			labels = append(labels, tick.Label)
		}
		got := strings.Join(labels, " ")
		testkit.Check(t, got == c.want, "ticks of [%v, %v] are %q, want %q", c.low, c.high, got, c.want)
	}
	many := slices.Repeat([]string{"a name"}, 100)
	for _, width := range []float64{280, 700} {
		got := len(namedTicks(many, width))
		testkit.Check(t, got >= 4 && float64(got)*textWidth("a name") < width, "%d names are written in %v px", got,
			width)
	}
}

func TestChartsOfNothingAreDrawn(t *testing.T) {
	for _, c := range []Chart{
		Chart{}, Chart{FromZero: true}, Chart{Names: []string{"a"}}, Chart{Names: []string{}},
		Chart{FromZero: true, Lines: []Line{{X: []float64{1, 2}, Y: []float64{0, 0}}}},
		Chart{FromZero: true, Lines: []Line{{X: []float64{1, 1}, Y: []float64{-3, -3}}}},
		Chart{Lines: []Line{{X: []float64{5}, Y: []float64{7}}}},
	} {
		if svg, _ := drawn(t, c); !strings.HasPrefix(svg, "<svg ") || strings.Contains(svg, "nan") ||
			strings.Contains(svg, "inf") {
			t.Errorf("%+v: %s", c, svg)
		}
	}
}

// A browser without the font that a chart is drawn with makes its texts as wide as they were drawn.
func TestTextsOfAChartKeepTheirWidthInAnyFont(t *testing.T) {
	svg, _ := drawn(t, Chart{Title: "t", XLabel: "seconds",
		Lines: []Line{{Name: "a", X: []float64{1, 2}, Y: []float64{3, 4}}}})
	texts, wide := strings.Count(svg, "<text "), strings.Count(svg, `" lengthadjust="spacingandglyphs">`)
	testkit.Check(t, texts >= 5 && texts == wide, "%d of %d texts have a width:\n%s", wide, texts, svg)
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

func TestAChartThatShowsNothingIsNotDrawn(t *testing.T) {
	// Given a sweep in which only the calls and the false rejects differ,
	r := swept(t, "policy.target=10ms,20ms,80ms", "policy.ttl=1s")
	want := []string{"false_reject_ratio", "calls_per_s"}
	testkit.Check(t, slices.Equal(chartsOf(Sweep(r, "", "")), want), "%q", chartsOf(Sweep(r, "", "")))
	// when only one of its points ran, then there is nothing to draw;
	r.Points[1].Figures, r.Points[2].Figures = nil, nil
	testkit.Check(t, chartsOf(Sweep(r, "", "")) == nil, "%q", chartsOf(Sweep(r, "", "")))
	// and of two parameters there is a map in the place of lines.
	d := Sweep(swept(t, "policy.target=10ms,20ms", "groups.web.count=1,2"), "", "")
	testkit.Check(t, d.Sections[0].Heat != nil && chartsOf(d) == nil, "%q", chartsOf(d))
}

// An axis of one value that cannot be negative does not begin below zero.
func TestAnAxisOfOneValueBeginsAtIt(t *testing.T) {
	svg, _ := drawn(t, Chart{Lines: []Line{{X: []float64{5, 9}, Y: []float64{0, 0}}}})
	testkit.Check(t, !strings.Contains(svg, ">-"), "a number below zero in\n%s", svg)
}

package view

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim"
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
		{Name: "dots", X: xs, Y: xs, Series: 4, Mark: Dots},
	}})
	for n, want := range [][2]int{{1, 0}, {1, 4}, {0, 0}, {0, 1}, {0, 5}} {
		testkit.Check(t, stroked(svg, n) == want[0] && filled(svg, n) == want[1],
			"series %d: %d strokes and %d dots, want %v", n, stroked(svg, n), filled(svg, n), want)
	}
	testkit.Check(t, strings.Count(svg, "fill-opacity") == 1, "no band")
	want := "[{whole line #0072b2} {dotted line dotted #d55e00} {nothing line #00926a} {one point is seen " +
		"line #b8608f} {dots dot #b98500}]"
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
	// Numbers below a narrow chart are as many as fit, too.
	for _, x := range []struct {
		high float64
		want int
	}{{9.96, 5}, {80_000, 5}, {80_000_000, 2}} {
		got := len(fitting(250, numberTicks(5), numberTicks(2))(0, x.high))
		testkit.Check(t, got == x.want, "%d numbers up to %v", got, x.high)
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
		Lines: []Line{{Name: "a", X: []float64{1, 2}, Y: []float64{3, 4}, Labels: []string{"one", "two"}}}})
	texts, wide := strings.Count(svg, "<text "), strings.Count(svg, `" lengthadjust="spacingandglyphs">`)
	testkit.Check(t, texts >= 5 && texts == wide, "%d of %d texts have a width:\n%s", wide, texts, svg)
}

// TestNoColourMeansTwoThings: with more groups than colours they have one, and titles name them; of
// more lines the further ones are dashed.
func TestNoColourMeansTwoThings(t *testing.T) {
	for _, groups := range []int{2, len(series), len(series) + 1} {
		r := madeUp()
		r.Report.Members = nil
		for i := range groups {
			r.Report.Members = append(r.Report.Members,
				sim.Member{Group: fmt.Sprint("group ", i), Admitted: 7, Share: 8})
		}
		lines := r.shares().Charts[0].Lines[1:]
		named := map[int]bool{}
		for _, l := range lines {
			testkit.Check(t, !named[l.Series%len(series)], "%d groups: the colour of %s comes again", groups, l.Name)
			named[l.Series%len(series)] = true
		}
		last := lines[len(lines)-1].Titles
		testkit.Check(t, last[len(last)-1] == fmt.Sprintf("group %d: 7 admitted, a share of 8", groups-1),
			"%d groups: %q", groups, last)
	}
	d := Sweep(swept(t, "policy.target=10ms..1s:log:8", "groups.web.count=1,2"), "", "")
	looks := map[string]bool{}
	for _, l := range sectionOf(t, d, "Over groups.web.count").Charts[0].Lines {
		look := fmt.Sprint(l.Series%len(series), l.Mark)
		testkit.Check(t, !looks[look], "the look of %s comes again", l.Name)
		looks[look] = true
	}
}

func sectionOf(t *testing.T, d Document, title string) Section {
	t.Helper()
	i := slices.IndexFunc(d.Sections, func(s Section) bool { return s.Title == title })
	testkit.Must(t, i >= 0, "there is no section %s", title)
	return d.Sections[i]
}

// An axis of one value that cannot be negative does not begin below zero.
func TestAnAxisOfOneValueBeginsAtIt(t *testing.T) {
	svg, _ := drawn(t, Chart{Lines: []Line{{Mark: Dots, X: []float64{5, 9}, Y: []float64{0, 0}}}})
	testkit.Check(t, !strings.Contains(svg, ">-"), "a number below zero in\n%s", svg)
}

package view

import (
	"fmt"
	"math"
	"regexp"
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
	// and two parameters have a map, which is not drawn either where all of it has one colour.
	r = swept(t, "policy.target=10ms,20ms", "groups.web.count=1,2")
	d = Sweep(r, "", "")
	testkit.Check(t, d.Sections[0].Heat == nil && chartsOf(d) == nil, "%+v", d.Sections[0])
	says(t, d.Sections[0].Text[0], "100 at every point.")
	for _, change := range []func(f *sim.Figures){
		func(f *sim.Figures) { f.AdmittedVsCentral.Mean = 0.9 },
		func(f *sim.Figures) { f.BoundExceededBy.Worst = 1 },
	} {
		was := *r.Points[1].Figures
		change(r.Points[1].Figures)
		testkit.Check(t, Sweep(r, "", "").Sections[0].Heat != nil, "no map of %+v", r.Points[1].Figures)
		*r.Points[1].Figures = was
	}
}

// TestASweepBesideRivalsIsAMap: of one parameter with a row for each algorithm, and no chart of the same
// figures; of three with a row for each pair of values of the first two.
func TestASweepBesideRivalsIsAMap(t *testing.T) {
	r := swept(t, "policy.target=10ms,20ms,80ms")
	for i := range r.Points {
		r.Points[i].Rivals = madeUp().Report.Rivals
	}
	r.Points[1].Figures.AdmittedVsCentral.Mean = 0.5
	d := Sweep(r, "", "")
	says(t, written(t, d, FormatTable), "algorithm ↓  target →", "\nyuzhi ", "\nfixed_window ")
	testkit.Check(t, !slices.Contains(chartsOf(d), questions[2].question), "%q", chartsOf(d))
	// No table repeats the map; a cell that is pointed at says all.
	page := written(t, d, FormatHTML)
	testkit.Check(t, !strings.Contains(page, "<td>fixed_window"), "a table of the map's cells")
	says(t, page, "<title>106.235 ± 0.030 %, excess 1,987</title>")
	r = swept(t, "policy.target=10ms,20ms", "groups.web.count=1,2", "clock.offset=0s,1s")
	for i := range r.Points {
		r.Points[i].Rivals = madeUp().Report.Rivals
	}
	says(t, written(t, Sweep(r, "", ""), FormatTable), "target count ↓  offset →", "\nyuzhi 20ms 2 ",
		"\nfixed_window 20ms 2 ")
}

// TestNothingIsShownTwice: no page has two pictures that are the same, or two headings, or a heading that
// is that of a picture too.
func TestNothingIsShownTwice(t *testing.T) {
	heading := regexp.MustCompile(`(?s)<svg .*?</svg>|<h[23]>(.*?)</h[23]>`)
	inside := regexp.MustCompile(`<text [^>]*font-weight="bold">(.*?)</text>`)
	for name, page := range pages(t) {
		seen := map[string]bool{}
		see := func(shown string) {
			testkit.Check(t, !seen[shown], "%s: twice: %.200s", name, shown)
			seen[shown] = shown != ""
		}
		for _, m := range heading.FindAllStringSubmatch(page, -1) {
			see(either(m[1] == "", m[0], m[1]))
			for _, title := range inside.FindAllStringSubmatch(m[0], -1) {
				see(title[1])
			}
		}
	}
}

// TestEveryChartAnswersAQuestion that is its title.
func TestEveryChartAnswersAQuestion(t *testing.T) {
	titles := regexp.MustCompile(`<figcaption><h3>(.*?)</h3>`)
	for name, page := range pages(t) {
		for _, title := range titles.FindAllStringSubmatch(page, -1) {
			testkit.Check(t, strings.HasSuffix(title[1], "?"), "%s: %q is no question", name, title[1])
		}
	}
}

// An axis of one value that cannot be negative does not begin below zero.
func TestAnAxisOfOneValueBeginsAtIt(t *testing.T) {
	svg, _ := drawn(t, Chart{Lines: []Line{{X: []float64{5, 9}, Y: []float64{0, 0}}}})
	testkit.Check(t, !strings.Contains(svg, ">-"), "a number below zero in\n%s", svg)
}

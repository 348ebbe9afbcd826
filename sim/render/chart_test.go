package render

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"gonum.org/v1/plot"
)

var nan, inf = math.NaN(), math.Inf(1)

// drawn is a chart's picture, which must be well-formed XML.
func drawn(t *testing.T, c Chart) (svg string, p picture) {
	t.Helper()
	p, err := c.picture()
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(strings.NewReader(string(p.SVG))); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return string(p.SVG), p
		} else if err != nil {
			t.Fatalf("%v in %s", err, p.SVG)
		}
	}
}

// strokes counts the paths in a shade.
func strokes(svg string, s shade) int { return strings.Count(svg, "stroke:"+s.variable()+";") }

func fills(svg string, s shade) int { return strings.Count(svg, `"fill:`+s.variable()+`"`) }

func TestALineHasGapsWhereItHasNoValues(t *testing.T) {
	svg, p := drawn(t, Lines{Lines: []Line{
		{Name: "whole", X: []float64{0, 1, 2, 3, 4}, Y: []float64{1, 2, 3, 2, 1}, Shade: 0},
		{Name: "in two", X: []float64{0, 1, 2, 3, 4}, Y: []float64{1, 2, nan, 2, 1}, Shade: 1, Dashed: true},
		{Name: "nothing", X: []float64{0, nan}, Y: []float64{inf, 2}, Shade: 2},
	}})
	if strokes(svg, nth(0)) != 1 || strokes(svg, nth(1)) != 2 || strokes(svg, nth(2)) != 0 {
		t.Errorf("%d, %d, %d strokes", strokes(svg, nth(0)), strokes(svg, nth(1)), strokes(svg, nth(2)))
	}
	if got := fmt.Sprint(p.Legend); got != "[{whole line var(--s1)} {in two dashed var(--s2)} {nothing line var(--s3)}]" {
		t.Error(got)
	}
}

func TestAPointAloneIsSeen(t *testing.T) {
	svg, _ := drawn(t, Lines{Lines: []Line{{X: []float64{0, 1, 2}, Y: []float64{nan, 5, nan}}}})
	if fills(svg, nth(0)) != 1 {
		t.Error(svg)
	}
}

func TestALogarithmicAxisLeavesOutWhatItCannotShow(t *testing.T) {
	svg, _ := drawn(t, Lines{LogX: true, LogY: true, Lines: []Line{{X: []float64{0, 1, 10, 100, -1, 1000}, Y: []float64{1, 10, 0, 1000, 5, 10000}}}})
	if fills(svg, nth(0)) != 3 || strokes(svg, nth(0)) != 0 { // at 1, 100 and 1000, each alone
		t.Errorf("%d points, %d lines", fills(svg, nth(0)), strokes(svg, nth(0)))
	}
	for _, label := range []string{">1<", ">10<", ">1000<", ">10,000<"} {
		if !strings.Contains(svg, label) {
			t.Errorf("no %s", label)
		}
	}
	drawn(t, Lines{LogX: true, LogY: true, Lines: []Line{{X: []float64{5}, Y: []float64{7}}}})
}

func TestChartsOfNothingAreDrawn(t *testing.T) {
	for _, c := range []Chart{
		Lines{}, Lines{LogX: true, LogY: true, FromZero: true}, Lines{Names: []string{"a"}}, Lines{Names: []string{}},
		Lines{FromZero: true, Lines: []Line{{X: []float64{1, 2}, Y: []float64{0, 0}}}},
		Lines{FromZero: true, Lines: []Line{{X: []float64{1, 1}, Y: []float64{-3, -3}}}},
		Dots{}, Dots{FromZero: true, Series: []Line{{X: []float64{1}, Y: []float64{nan}}}},
		Bars{}, Bars{Bars: []Bar{{Name: "a"}}}, Bars{Bars: []Bar{{Name: "a", Value: nan}, {Name: "b", Value: -5}, {Name: "c", Value: inf, Strong: true}}},
		HeatMap{X: []string{"1"}, Y: []string{"1"}, Z: [][]float64{{nan}}},
		HeatMap{X: []string{"1"}, Y: []string{"1"}, Z: [][]float64{{5}}},
		HeatMap{X: []string{"1", "2"}, Y: []string{"1"}, Z: [][]float64{{inf, -5}}},
	} {
		if svg, _ := drawn(t, c); !strings.HasPrefix(svg, "<svg ") || strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
			t.Errorf("%+v: %s", c, svg)
		}
	}
}

func TestChartsThatDoNotFitAreErrors(t *testing.T) {
	for _, c := range []Chart{
		Lines{Lines: []Line{{X: []float64{1}, Y: []float64{1, 2}}}},
		Dots{Series: []Line{{X: []float64{1}}}},
		Dots{Line: &Line{Y: []float64{1}}},
		HeatMap{},
		HeatMap{X: []string{"1"}, Y: []string{"1", "2"}, Z: [][]float64{{1}}},
		HeatMap{X: []string{"1"}, Y: []string{"1"}, Z: [][]float64{{1, 2}}},
	} {
		if _, err := c.picture(); err == nil {
			t.Errorf("%+v was drawn", c)
		}
		page := Page{Sections: []Section{{Charts: []Titled{{Title: "wrong", Chart: c}}}}}
		if err := page.Write(io.Discard); err == nil || !strings.Contains(err.Error(), `"wrong"`) {
			t.Errorf("the page's error is %v", err)
		}
	}
}

func TestBarsHaveNamesAndValues(t *testing.T) {
	svg, _ := drawn(t, Bars{Format: Percent, Bars: []Bar{{Name: "first", Value: 0.25}, {Name: "second", Value: 0.5, Strong: true}, {Name: "none", Value: nan}}})
	for _, want := range []string{">first<", ">25 %<", ">second<", ">50 %<", ">none<", ">– %<"} {
		if !strings.Contains(svg, want) {
			t.Errorf("no %s in %s", want, svg)
		}
	}
	if strings.Index(svg, ">first<") < strings.Index(svg, ">second<") {
		t.Error("the axis goes up: the last name comes first")
	}
}

func TestAHeatMapShowsValuesMarksAndGaps(t *testing.T) {
	svg, p := drawn(t, HeatMap{
		XLabel: "policy.target", YLabel: "clock.offset", X: []string{"10ms", "100ms", "1s"}, Y: []string{"0s", "10s"},
		Z: [][]float64{{0, 1.5, 3}, {2, nan, 12}}, Marked: func(x, y int) bool { return x == 2 && y == 0 }, Mark: "on the front",
	})
	for _, want := range []string{">policy.target<", ">clock.offset<", ">10ms<", ">10s<", ">1.5<", ">12<", ">–<"} {
		if !strings.Contains(svg, want) {
			t.Errorf("no %s in %s", want, svg)
		}
	}
	if strokes(svg, paper) != 1 {
		t.Errorf("%d rings", strokes(svg, paper))
	}
	if fills(svg, grid) != 1 {
		t.Errorf("%d cells without a value", fills(svg, grid))
	}
	lowest, highest := hex(viridis[0]), hex(viridis[len(viridis)-1])
	if strings.Count(svg, `"fill:`+lowest+`"`) != 1 || strings.Count(svg, `"fill:`+highest+`"`) != 1 {
		t.Error("the lowest and the highest value have not the palette's ends")
	}
	if p.Scale.Low != "0" || p.Scale.High != "12" || !strings.Contains(string(p.Scale.Gradient), lowest) || !strings.Contains(string(p.Scale.Gradient), highest) {
		t.Errorf("%+v", p.Scale)
	}
	if len(p.Legend) != 1 || p.Legend[0].Name != "on the front" {
		t.Errorf("%+v", p.Legend)
	}
	// Where all are alike they have a colour, and not that of a cell without a value.
	if svg, _ := drawn(t, HeatMap{X: []string{"1"}, Y: []string{"1"}, Z: [][]float64{{5}}}); fills(svg, grid) != 0 || !strings.Contains(svg, lowest) {
		t.Error(svg)
	}
	// Cells too small for a number have none.
	many := HeatMap{X: make([]string, 100), Y: []string{"1"}, Z: [][]float64{make([]float64, 100)}}
	for i := range many.X {
		many.X[i], many.Z[0][i] = fmt.Sprint(i), 123456
	}
	if svg, _ := drawn(t, many); strings.Contains(svg, "123,456") {
		t.Error("numbers run over each other")
	}
}

func TestTicksAreRoundAndInRange(t *testing.T) {
	labels := func(ticks []plot.Tick) string {
		var all []string
		for _, tick := range ticks {
			all = append(all, tick.Label)
		}
		return strings.Join(all, " ")
	}
	for _, c := range []struct {
		ticks     ticks
		low, high float64
		want      string
	}{
		{ticks{most: 7}, 0, 30, "0 5 10 15 20 25 30"},
		{ticks{most: 7}, 0, 1, "0 0.2 0.4 0.6 0.8 1"},
		{ticks{most: 7}, 0, 104000, "0 20,000 40,000 60,000 80,000 100,000"},
		{ticks{most: 7}, 0.97, 1.003, "0.97 0.98 0.99 1"},
		{ticks{most: 7}, -3, 3, "-3 -2 -1 0 1 2 3"},
		{ticks{most: 2}, 0, 9, "0"},
		{ticks{most: 7}, 5, 5, ""},
		{ticks{most: 7}, 0, inf, ""},
		{ticks{log: true}, 1, 100000, "1 10 100 1000 10,000 100,000"},
		{ticks{log: true}, 3, 60, "5 10 20 50"},
		{ticks{log: true}, 0.001, 0.1, "0.001 0.002 0.005 0.01 0.02 0.05 0.1"},
	} {
		if got := labels(c.ticks.Ticks(c.low, c.high)); got != c.want {
			t.Errorf("%+v of [%v, %v] are %q, want %q", c.ticks, c.low, c.high, got, c.want)
		}
	}
	if got := labels(named{"a", "b"}.Ticks(0, 0)); got != "a b" {
		t.Error(got)
	}
	if got := len(named(make([]string, 100)).Ticks(0, 0)); got > 16 {
		t.Errorf("%d names are written", got)
	}
}

func TestManyProcessesAreThinnedOut(t *testing.T) {
	// Given a report with thousands of processes, some of which were due nothing,
	r := madeUp()
	r.Report.Rivals = nil
	one := r.Report.Members[0]
	for len(r.Report.Members) < 4000 {
		r.Report.Members = append(r.Report.Members, one)
	}
	for i := range 100 {
		r.Report.Members[i].Share = 0
	}
	// when its page is written,
	page := written(t, Run, FormatHTML, r)
	// then not all are drawn, and of those that were due nothing no percentage, and the page says so.
	if n := fills(page, nth(0)); n > 2*membersMax-100/8 || n < 2*membersMax-100 {
		t.Errorf("%d dots", n)
	}
	if !strings.Contains(page, "One process of 8 is drawn.") {
		t.Error("the page does not say that processes were left out")
	}
}

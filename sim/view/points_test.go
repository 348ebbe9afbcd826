package view

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/search"
)

func TestEveryPointSaysWhatItIs(t *testing.T) {
	c := Chart{XLabel: "seconds", Names: []string{"1s", "2s", "3s"}, Lines: []Line{
		{Name: "plain", X: []float64{0, 1, 2}, Y: []float64{5, nan, 7}},
		{Name: "told", X: []float64{0, 1}, Y: []float64{1, 2}, Titles: []string{"first", "<second>"}},
		{Name: "banded", X: []float64{2}, Y: []float64{3}, Low: []float64{2.5}, High: []float64{3.5}},
	}}
	svg, p := drawn(t, c)
	for _, title := range []string{"plain: 5 at seconds 1s", "plain: 7 at seconds 3s", "first", "&lt;second&gt;",
		"banded: 3 at seconds 3s (2.5 to 3.5)"} {
		testkit.Check(t, strings.Contains(svg, "<title>"+title+"</title>"), "no title %q", title)
	}
	testkit.Check(t, strings.Count(svg, "<title>") == 5, "%d titles", strings.Count(svg, "<title>"))
	testkit.Check(t, !strings.Contains(string(p.Narrow), "<title>"), "nothing can rest on a telephone")
}

func TestLabelsStandWhereThereIsRoom(t *testing.T) {
	// Given points that are far from each other, and a crowd at one place,
	xs, ys, labels := []float64{0, 10}, []float64{0, 10}, []string{"low", "high"}
	for range 30 {
		xs, ys, labels = append(xs, 5), append(ys, 5), append(labels, "crowd")
	}
	svg, _ := drawn(t, Chart{Lines: []Line{{X: xs, Y: ys, Labels: labels, Mark: Dots}}})
	// then the former have labels, and of the latter not more than there is room for.
	for label, want := range map[string][2]int{"low": {1, 1}, "high": {1, 1}, "crowd": {1, 8}} {
		got := strings.Count(svg, ">"+label+"</text>")
		testkit.Check(t, want[0] <= got && got <= want[1], "%d labels %q, want %v", got, label, want)
	}
}

// TestLabelsOfALineAreNotAcrossIt: a level line goes through the place beside each of its points.
func TestLabelsOfALineAreNotAcrossIt(t *testing.T) {
	xs, labels := []float64{0, 1, 2}, []string{"one", "two", "three"}
	svg, _ := drawn(t, Chart{YLeast: 2,
		Lines: []Line{{X: xs, Y: []float64{5, 5, 5}, Labels: labels, Mark: Dotted}}})
	dots := regexp.MustCompile(`<circle cx="[0-9.]+" cy="([0-9.]+)"`).FindStringSubmatch(svg)
	texts := regexp.MustCompile(`<text x="[0-9.]+" y="([0-9.]+)" font-size="12px"`).FindAllStringSubmatch(svg,
		-1)
	testkit.Must(t, dots != nil && len(texts) >= 2, "%d labels in %s", len(texts), svg)
	line, err := strconv.ParseFloat(dots[1], 64)
	testkit.NoErr(t, err)
	for _, m := range texts {
		foot, err := strconv.ParseFloat(m[1], 64)
		testkit.NoErr(t, err)
		testkit.Check(t, foot < line-2 || foot-textSize > line-2, "a label ends at %v, the line is at %v", foot,
			line)
	}
}

// span returns how far the vertical axis of a chart reaches, as drawn.
func span(t *testing.T, c Chart) float64 {
	p := c.axes(wideChart)
	for _, l := range c.Lines {
		parts, err := l.plotters(l.shade())
		testkit.NoErr(t, err)
		p.Add(parts...)
	}
	widen(&p.Y, c.YLeast)
	return p.Y.Max - p.Y.Min
}

func TestAnAxisIsNotStretchedOverNoise(t *testing.T) {
	chart := func(means ...float64) Chart {
		r := swept(t, "policy.target=10ms,20ms,80ms")
		for i := range r.Points {
			r.Points[i].Figures.AdmittedVsCentral = fig(means[i], 0.01, means[i], 1)
		}
		for _, s := range Sweep(r, "", "").Sections {
			for _, c := range s.Charts {
				if c.Title == "admitted_vs_central" {
					return c
				}
			}
		}
		t.Fatal("there is no chart")
		return Chart{}
	}
	// Means that differ by less than their intervals of ± 1 % have an axis of more than these,
	noise := span(t, chart(0.999, 1, 0.998))
	testkit.Check(t, noise >= 4, "an axis of %v %% for what differs by 0.2 ± 1 %%", noise)
	// and what differs by more on one of its own.
	signal := span(t, chart(0.5, 0.9, 1))
	testkit.Check(t, signal > 50 && signal < 60, "an axis of %v %% for what differs by 50 %%", signal)

	// Without intervals it is a part of the value, not of what the sum was rounded by.
	x := sim.Figures{CallsPerS: fig(1000, 0, 1000, 1)}
	y := x
	y.CallsPerS.Mean += 1e-9
	got := leastSpan("calls_per_s", []*sim.Figures{&x, &y})
	testkit.Check(t, math.Abs(got-20) < 1e-6, "least span %v", got)
}

// TestThePlansChoiceLiesOnItsFront: also where the front, which is thinned, was left without it.
func TestThePlansChoiceLiesOnItsFront(t *testing.T) {
	whole, thinned := planned(t), planned(t)
	thinned.TradeOffs = slices.DeleteFunc(slices.Clone(whole.TradeOffs),
		func(c search.Candidate) bool { return c.Policy == whole.Chosen.Policy })
	for _, p := range []search.Plan{whole, thinned} {
		lines := planView{&p}.tradeOff().Charts[0].Lines
		front, chosen := lines[0], lines[1]
		testkit.Must(t, len(chosen.X) == 1 && chosen.Labels[0] == "chosen: "+p.Chosen.Policy.Target,
			"chosen is %+v", chosen)
		at := slices.Index(front.X, chosen.X[0])
		testkit.Check(t, at >= 0 && front.Y[at] == chosen.Y[0], "%v, %v is not on %v, %v", chosen.X, chosen.Y,
			front.X, front.Y)
		testkit.Check(t, slices.IsSorted(front.X) && front.Mark == Dotted, "the front is no line: %v", front.X)
	}
}

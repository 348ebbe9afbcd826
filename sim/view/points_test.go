package view

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/search"
)

func TestPointsSayWhatTheyAre(t *testing.T) {
	c := Chart{Lines: []Line{
		{X: []float64{0, 1, 2}, Y: []float64{1, nan, 2}, Titles: []string{"first", "none", "<third>"}},
	}}
	svg, p := drawn(t, c)
	for _, title := range []string{"first", "&lt;third&gt;"} {
		testkit.Check(t, strings.Contains(svg, "<title>"+title+"</title>"), "no title %q", title)
	}
	testkit.Check(t, strings.Count(svg, "<title>") == 2, "%d titles", strings.Count(svg, "<title>"))
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
		testkit.Check(t, slices.IsSorted(front.X) && front.Mark == Dots, "the front is not in order: %v", front.X)
	}
}

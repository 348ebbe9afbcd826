package view

import (
	"math"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim"
)

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

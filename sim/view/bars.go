package view

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Bars is a chart of horizontal bars, the first one on top, with the value at the end of each.
type Bars struct {
	Bars   []Bar
	Format func(float64) string // of the values
}

// Bar is one bar of Bars. One whose value is not finite is not drawn.
type Bar struct {
	Name   string
	Value  float64
	Strong bool // the one that the chart is about
}

func (b Bars) picture() (picture, error) {
	p := newPlot("", "")
	n := len(b.Bars)
	names := make([]string, n)
	values := [2]plotter.Values{make(plotter.Values, n), make(plotter.Values, n)} // weak and strong
	labels := plotter.XYLabels{XYs: make(plotter.XYs, n), Labels: make([]string, n)}
	for i, bar := range b.Bars {
		row, shown := n-1-i, bar.Value // the axis goes up
		if !finite(shown) {
			shown = 0
		}
		kind := 0
		if bar.Strong {
			kind = 1
		}
		values[kind][row] = shown
		names[row], labels.Labels[row] = bar.Name, b.Format(bar.Value)
		labels.XYs[row] = plotter.XY{X: max(shown, 0), Y: float64(row)}
	}
	for kind, shade := range []color.Color{color.RGBA{0xb3, 0xbc, 0xc6, 255}, series[0]} {
		if n == 0 {
			break
		}
		chart, err := plotter.NewBarChart(values[kind], 13)
		if err != nil {
			return picture{}, fmt.Errorf("view: %w", err)
		}
		chart.Horizontal, chart.Color, chart.LineStyle.Width = true, shade, 0
		p.Add(chart)
	}
	text, err := plotter.NewLabels(labels)
	if err != nil {
		return picture{}, fmt.Errorf("view: %w", err)
	}
	for i := range text.TextStyle {
		text.TextStyle[i] = textStyle(ink, draw.XLeft, draw.YCenter)
	}
	text.Offset = vg.Point{X: 5, Y: 2}
	p.Add(text)
	p.Y.Tick.Marker, p.Y.Tick.Length, p.Y.Padding = namedTicks(names), 0, 12
	p.Y.Tick.Label = textStyle(ink, draw.XRight, draw.YCenter)
	p.Y.Min, p.Y.Max = -0.6, float64(n)-0.4
	p.X.Min = min(p.X.Min, 0)
	if p.X.Max <= p.X.Min {
		p.X.Max = 1
	}
	svg, err := svgOf(p, float64(44+20*n))
	return picture{SVG: svg}, err
}

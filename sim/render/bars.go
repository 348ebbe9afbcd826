package render

import (
	"fmt"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Bar is one bar of Bars.
type Bar struct {
	Name   string
	Value  float64 // not finite: no bar
	Strong bool    // the one that the chart is about
}

// Bars is a chart of horizontal bars, the first one on top, with the value at the end of each.
type Bars struct {
	XLabel string
	Bars   []Bar
	Format func(float64) string // of the values; nil means Number
}

func (b Bars) picture() (picture, error) {
	format := b.Format
	if format == nil {
		format = Number
	}
	p := newPlot(b.XLabel, "")
	n := len(b.Bars)
	names := make(named, n)
	weak, strong := make(plotter.Values, n), make(plotter.Values, n)
	labels := plotter.XYLabels{XYs: make(plotter.XYs, n), Labels: make([]string, n)}
	for i, bar := range b.Bars {
		row := n - 1 - i // the axis goes up
		names[row] = bar.Name
		value := bar.Value
		if !finite(value) {
			value = 0
		}
		if bar.Strong {
			strong[row] = value
		} else {
			weak[row] = value
		}
		labels.XYs[row] = plotter.XY{X: max(value, 0), Y: float64(row)}
		labels.Labels[row] = format(bar.Value)
	}
	var pic picture
	for i, values := range []plotter.Values{weak, strong} {
		if n == 0 {
			break
		}
		chart, err := plotter.NewBarChart(values, 13)
		if err != nil {
			return pic, fmt.Errorf("render: %w", err)
		}
		chart.Horizontal = true
		chart.Color = []shade{bars, nth(0)}[i].colour()
		chart.LineStyle.Width = 0
		p.Add(chart)
	}
	text, err := plotter.NewLabels(labels)
	if err != nil {
		return pic, fmt.Errorf("render: %w", err)
	}
	for i := range text.TextStyle {
		text.TextStyle[i] = textStyle(ink, draw.XLeft, draw.YCenter)
	}
	text.Offset = vg.Point{X: 5, Y: 2}
	p.Add(text)
	p.Y.Tick.Marker, p.Y.Padding = everyName(names), 12
	p.Y.Min, p.Y.Max = -0.6, float64(n)-0.4
	p.Y.Tick.Label = textStyle(ink, draw.XRight, draw.YCenter)
	setAxis(&p.X, false, true)
	p.Add(edge{})
	pic.SVG, err = svgOf(p, float64(44+20*n))
	return pic, err
}

// everyName are names, none left out.
type everyName []string

func (n everyName) Ticks(float64, float64) (out []plot.Tick) {
	for i, name := range n {
		out = append(out, plot.Tick{Value: float64(i), Label: name})
	}
	return out
}

// edge is the line that bars start from.
type edge struct{}

func (edge) Plot(c draw.Canvas, p *plot.Plot) {
	x, _ := p.Transforms(&c)
	at := x(0)
	c.StrokeLine2(draw.LineStyle{Color: muted.colour(), Width: 1}, at, c.Min.Y, at, c.Max.Y)
}

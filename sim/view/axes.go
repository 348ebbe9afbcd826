package view

import (
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg/draw"
)

// letters are those of all text in a chart.
var letters = text.Style{
	Color: muted, Font: font.Font{Typeface: "Liberation", Variant: "Sans", Size: textSize},
	Handler: plot.DefaultTextHandler,
}

const (
	textSize   = 12
	ticksMax   = 7  // numbers beside an axis; fewer below a narrow chart
	yAxisWidth = 60 // about what the numbers of the vertical axis take
	yAxisLeast = 14 // and the least that they do
	nameGap    = 8  // between the names below a chart
)

// textWidth is about how wide a text is.
func textWidth(s string) float64 { return float64(letters.Width(s)) }

// axes are an empty plot without a frame, with light lines across and small grey labels.
func (c Chart) axes(width float64) *plot.Plot {
	p := plot.New()
	label := func(x text.XAlignment, y text.YAlignment) text.Style {
		style := letters
		style.XAlign, style.YAlign = x, y
		return style
	}
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.LineStyle.Width, axis.Padding = 0, 4
		axis.Tick.LineStyle, axis.Tick.Length = draw.LineStyle{Color: faint, Width: 1}, 3
		axis.Tick.Marker = numberTicks(ticksMax)
		axis.Label.TextStyle = label(draw.XCenter, draw.YBottom)
	}
	p.X.Label.Text, p.X.Tick.Label = c.XLabel, label(draw.XCenter, draw.YTop)
	p.Y.Tick.Label = label(draw.XRight, draw.YCenter)
	if width < wideChart {
		p.X.Tick.Marker = numberTicks(2) // as many as have room where they are long
	}
	if c.Names != nil {
		p.X.Tick.Marker = namedTicks(c.Names, width-yAxisWidth)
	}
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Horizontal.Width, grid.Vertical.Width = faint, 0.75, 0
	p.Add(grid)
	return p
}

// numberTicks places about `most` ticks at 1, 2 or 5 times a power of ten, with the labels of Number.
func numberTicks(most float64) plot.TickerFunc {
	return func(low, high float64) (ticks []plot.Tick) {
		if !(high > low) || !finite(high-low) {
			return nil
		}
		step := math.Pow10(exponent((high - low) / most))
		for _, factor := range []float64{2, 2.5, 2} {
			if (high-low)/step > most {
				step *= factor
			}
		}
		for i := math.Ceil(low / step); i*step <= high; i++ {
			ticks = append(ticks, plot.Tick{Value: i * step, Label: Number(i * step)})
		}
		return ticks
	}
}

// namedTicks are names at 0, 1, 2, ...; where they do not all fit into a width, only some are
// written, and none of them wider than a third of it.
func namedTicks(names []string, width float64) (ticks plot.ConstantTicks) {
	short, widest := make([]string, len(names)), 1.0
	for i, name := range names {
		letter := []rune(name)
		for len(letter) > 1 && textWidth(string(letter)) > width/3 {
			letter = letter[:len(letter)-1]
			name = string(letter) + "…"
		}
		short[i] = name
		widest = max(widest, textWidth(name)+nameGap)
	}
	fit := max(1, int(width/widest))
	for i := 0; i < len(names); i += 1 + (len(names)-1)/fit {
		ticks = append(ticks, plot.Tick{Value: float64(i), Label: short[i]})
	}
	return ticks
}

// widen makes an axis of one value span something around it, but not below zero for that.
func widen(axis *plot.Axis) {
	if axis.Min < axis.Max {
		return
	}
	span := max(1, math.Abs(axis.Max)/10)
	low := axis.Min - span/2
	if axis.Min >= 0 {
		low = max(low, 0)
	}
	axis.Min, axis.Max = low, low+span
}

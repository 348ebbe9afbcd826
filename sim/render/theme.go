package render

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	plotfont "gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg/draw"
)

// shade is a colour of the page's style, which differs between a light and a dark page. Plots are drawn with stand-ins
// that no palette has; svgOf puts the names of the style's variables in their place.
type shade int

// The shades. From series on they tell series apart.
const (
	ink shade = iota
	muted
	grid
	bars
	paper
	series // the first of seriesCount
)

// seriesCount is how many series can be told apart; the next one has the colour of the first again.
const seriesCount = 6

// colour is the stand-in for s.
func (s shade) colour() color.Color { return color.RGBA{R: 1, G: 2, B: uint8(3 + s), A: 255} }

// variable is the style's name for s.
func (s shade) variable() string {
	switch s {
	case ink:
		return "var(--ink)"
	case muted:
		return "var(--muted)"
	case grid:
		return "var(--grid)"
	case bars:
		return "var(--bars)"
	case paper:
		return "var(--paper)"
	}
	return fmt.Sprintf("var(--s%d)", s-series+1)
}

// nth is the shade of the n-th series, numbered from 0.
func nth(n int) shade { return series + shade(n%seriesCount) }

// textSize is in the units of the picture, which is shown at about its own size.
const textSize = 11

// textStyle is for text whose width is measured with a face that the page then replaces by its own: sans-serif faces
// are about as wide.
func textStyle(s shade, x text.XAlignment, y text.YAlignment) text.Style {
	face := plotfont.Font{Typeface: "Liberation", Variant: "Sans", Size: textSize}
	return text.Style{Color: s.colour(), Font: face, Handler: plot.DefaultTextHandler, XAlign: x, YAlign: y}
}

// newPlot is an empty plot in the page's style: no frame, light lines across, small grey labels.
func newPlot(xLabel, yLabel string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.LineStyle.Width = 0
		axis.Padding = 4
		axis.Tick.LineStyle = draw.LineStyle{Color: grid.colour(), Width: 0.75}
		axis.Tick.Length = 0
		axis.Label.Padding = 4
		axis.Label.TextStyle = textStyle(muted, draw.XCenter, draw.YBottom)
	}
	p.X.LineStyle = draw.LineStyle{Color: grid.colour(), Width: 1}
	p.X.Tick.Length = 3
	p.X.Tick.Marker, p.Y.Tick.Marker = ticks{most: 11}, ticks{most: 7}
	p.X.Tick.Label = textStyle(muted, draw.XCenter, draw.YTop)
	p.Y.Tick.Label = textStyle(muted, draw.XRight, draw.YCenter)
	p.X.Label.Text, p.Y.Label.Text = xLabel, yLabel
	return p
}

// named are ticks at 0, 1, 2, ... with names; where there are many, only some are written.
type named []string

func (n named) Ticks(float64, float64) []plot.Tick {
	const most = 16
	every := (len(n) + most - 1) / most
	out := make([]plot.Tick, 0, len(n))
	for i, name := range n {
		if i%every == 0 {
			out = append(out, plot.Tick{Value: float64(i), Label: name})
		}
	}
	return out
}

// rules are the lines across, at the ticks of the vertical axis.
type rules struct{}

func (rules) Plot(c draw.Canvas, p *plot.Plot) {
	_, y := p.Transforms(&c)
	style := draw.LineStyle{Color: grid.colour(), Width: 0.75}
	for _, tick := range p.Y.Tick.Marker.Ticks(p.Y.Min, p.Y.Max) {
		if at := y(tick.Value); c.ContainsY(at) {
			c.StrokeLine2(style, c.Min.X, at, c.Max.X, at)
		}
	}
}

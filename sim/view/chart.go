package view

import (
	"bytes"
	"fmt"
	"html/template"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// picture is a chart as a page shows it.
type picture struct {
	SVG    template.HTML
	Legend []legend
}

// legend says what one colour and shape means: line, dashed or dot.
type legend struct {
	Name, Shape string
	Color       template.CSS
}

// The colours of all charts. Those of series can be told apart by people who do not see all colours
// (Okabe and Ito, 2008).
var (
	muted  = color.RGBA{0x6a, 0x73, 0x7d, 255}
	faint  = color.RGBA{0xdf, 0xe3, 0xe8, 255}
	series = []color.RGBA{
		{0x00, 0x72, 0xb2, 255}, {0xd5, 0x5e, 0x00, 255}, {0x00, 0x92, 0x6a, 255},
		{0xb8, 0x60, 0x8f, 255}, {0xb9, 0x85, 0x00, 255}, {0x4a, 0x9f, 0xd0, 255},
	}
)

func css(c color.Color) template.CSS {
	r, g, b, _ := c.RGBA()
	return template.CSS(fmt.Sprintf("#%02x%02x%02x", r>>8, g>>8, b>>8))
}

// newPlot is an empty plot without a frame, with light lines across and small grey labels.
func newPlot(xLabel, yLabel string) *plot.Plot {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = xLabel, yLabel
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.LineStyle.Width, axis.Padding = 0, 4
		axis.Tick.LineStyle, axis.Tick.Length = draw.LineStyle{Color: faint, Width: 1}, 3
		axis.Tick.Marker = numberTicks{}
		axis.Label.TextStyle = textStyle(muted, draw.XCenter, draw.YBottom)
	}
	p.X.Tick.Label = textStyle(muted, draw.XCenter, draw.YTop)
	p.Y.Tick.Label = textStyle(muted, draw.XRight, draw.YCenter)
	return p
}

func textStyle(c color.Color, x text.XAlignment, y text.YAlignment) text.Style {
	face := font.Font{Typeface: "Liberation", Variant: "Sans", Size: 11}
	return text.Style{Color: c, Font: face, Handler: plot.DefaultTextHandler, XAlign: x, YAlign: y}
}

// numberTicks are at 1, 2 or 5 times a power of ten, and labelled as this package writes numbers.
type numberTicks struct{}

// Ticks implements plot.Ticker.
func (numberTicks) Ticks(low, high float64) (ticks []plot.Tick) {
	const most = 7
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

// namedTicks are names at 0, 1, 2, ...; where there are many, only some are written.
func namedTicks(names []string) (ticks plot.ConstantTicks) {
	const most = 16
	for i := 0; i < len(names); i += 1 + (len(names)-1)/most {
		ticks = append(ticks, plot.Tick{Value: float64(i), Label: names[i]})
	}
	return ticks
}

// counting is 0, 1, 2, ..., n of them.
func counting(n int) []float64 {
	xs := make([]float64, n)
	for i := range xs {
		xs[i] = float64(i)
	}
	return xs
}

// svgOf draws a plot as an element of a page, which scales it to its column.
func svgOf(p *plot.Plot, height float64) (template.HTML, error) {
	const width = 760
	canvas := vgsvg.New(width, vg.Length(height))
	p.Draw(draw.Crop(draw.New(canvas), 2, -8, 2, -8))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return "", err
	}
	return template.HTML(b.Bytes()[bytes.Index(b.Bytes(), []byte("<svg")):]), nil
}

// Lines is a chart of lines or of points over numbers or over names.
type Lines struct {
	XLabel, YLabel string
	Lines          []Line
	Names          []string // of x = 0, 1, 2, ...; nil where x is a number
	FromZero       bool     // the vertical axis starts at 0
	Height         float64
}

// Line is one line of Lines. A point that is not finite is left out.
type Line struct {
	Name      string
	X, Y      []float64 // equally long
	Low, High []float64 // the ends of a band around the line, as long as it; nil for none
	Series    int       // its colour, from 0; Grey for what others are compared with
	Dashed    bool
	Mark      Mark
}

// Grey is the Series of a line that others are compared with.
const Grey = -1

// Mark is how a line's points are drawn.
type Mark int

// The marks.
const (
	LineOnly Mark = iota
	LineAndDots
	DotsOnly
)

func (l Lines) picture() (picture, error) {
	p := newPlot(l.XLabel, l.YLabel)
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Horizontal.Width, grid.Vertical.Width = faint, 0.75, 0
	p.Add(grid)
	var pic picture
	drawn := false
	for _, line := range l.Lines {
		shade, shape := muted, "line"
		if line.Series >= 0 {
			shade = series[line.Series%len(series)]
		}
		var points, band plotter.XYs
		for i, y := range line.Y {
			if finite(y) {
				points = append(points, plotter.XY{X: line.X[i], Y: y})
			}
		}
		for i := range line.High {
			if finite(line.High[i]) {
				band = append(band, plotter.XY{X: line.X[i], Y: line.High[i]})
			}
		}
		for i := len(line.Low) - 1; i >= 0; i-- {
			if finite(line.Low[i]) {
				band = append(band, plotter.XY{X: line.X[i], Y: line.Low[i]})
			}
		}
		if len(band) > 2 {
			polygon, err := plotter.NewPolygon(band)
			if err != nil {
				return pic, fmt.Errorf("view: %w", err)
			}
			polygon.Color, polygon.LineStyle.Width = color.NRGBA{shade.R, shade.G, shade.B, 0x2e}, 0
			p.Add(polygon)
		}
		if len(points) > 0 {
			drawn = true
			path, dots, err := plotter.NewLinePoints(points)
			if err != nil {
				return pic, fmt.Errorf("view: %w", err)
			}
			path.LineStyle = draw.LineStyle{Color: shade, Width: 1.75}
			if line.Dashed {
				path.Dashes = []vg.Length{5, 3}
			}
			dots.GlyphStyle = draw.GlyphStyle{Color: shade, Radius: 2.5, Shape: draw.CircleGlyph{}}
			if line.Mark != DotsOnly {
				p.Add(path)
			}
			if line.Mark != LineOnly || len(points) == 1 {
				p.Add(dots)
			}
		}
		switch {
		case line.Mark == DotsOnly:
			shape = "dot"
		case line.Dashed:
			shape = "dashed"
		}
		pic.Legend = append(pic.Legend, legend{line.Name, shape, css(shade)})
	}
	if !drawn {
		p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 1, 0, 1
	}
	if l.Names != nil {
		p.X.Tick.Marker = namedTicks(l.Names)
	}
	if l.FromZero {
		p.Y.Min = min(p.Y.Min, 0)
	}
	if l.Height == 0 {
		l.Height = 240
	}
	var err error
	pic.SVG, err = svgOf(p, l.Height)
	return pic, err
}

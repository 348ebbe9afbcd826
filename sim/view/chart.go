package view

import (
	"bytes"
	"cmp"
	"fmt"
	"html/template"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Chart is lines or points over numbers or over names.
type Chart struct {
	Title, Note    string // above and below the chart
	XLabel, YLabel string
	Lines          []Line
	Names          []string // of x = 0, 1, 2, ...; nil where x is a number
	FromZero       bool     // the vertical axis starts at 0
	Height         float64  // 0 means 240
}

// Line is one line of a Chart. A point that is not finite is left out.
type Line struct {
	Name      string
	X, Y      []float64 // equally long
	Low, High []float64 // the ends of a band around the line, as long as it; nil for none
	Series    int       // its colour, from 0; Grey for what others are compared with
	Mark      Mark
}

// add appends a point.
func (l *Line) add(x, y float64) { l.X, l.Y = append(l.X, x), append(l.Y, y) }

// Grey is the Series of a line that others are compared with.
const Grey = -1

// Mark is how a line is drawn, and the class of its sign in the legend of a page.
type Mark string

// The marks.
const (
	Solid  Mark = "line"
	Dotted Mark = "line dotted" // solid, with a dot at each point
	Dashed Mark = "dashed"
	Dots   Mark = "dot" // no line
)

// picture is a chart as a page shows it.
type picture struct {
	SVG    template.HTML
	Legend []legend
}

// legend says what one colour and mark mean.
type legend struct {
	Name  string
	Mark  Mark
	Color template.CSS
}

// The colours of all charts. Those of series can be told apart by people who do not see all colours
// (Okabe and Ito, 2008).
var (
	muted  = color.NRGBA{0x6a, 0x73, 0x7d, 255}
	faint  = color.NRGBA{0xdf, 0xe3, 0xe8, 255}
	series = []color.NRGBA{
		{0x00, 0x72, 0xb2, 255}, {0xd5, 0x5e, 0x00, 255}, {0x00, 0x92, 0x6a, 255},
		{0xb8, 0x60, 0x8f, 255}, {0xb9, 0x85, 0x00, 255}, {0x4a, 0x9f, 0xd0, 255},
	}
)

func css(c color.NRGBA) template.CSS {
	return template.CSS(fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B))
}

// picture draws the chart as an element of a page, which scales it to its column.
func (c Chart) picture() (pic picture, err error) {
	p := c.axes()
	empty := true
	for _, line := range c.Lines {
		shade := muted
		if line.Series >= 0 {
			shade = series[line.Series%len(series)]
		}
		pic.Legend = append(pic.Legend, legend{line.Name, cmp.Or(line.Mark, Solid), css(shade)})
		parts, err := line.plotters(shade)
		if err != nil {
			return pic, fmt.Errorf("view: %w", err)
		}
		p.Add(parts...)
		empty = empty && len(parts) == 0
	}
	if empty {
		p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 1, 0, 1
	}
	if c.FromZero {
		p.Y.Min = min(p.Y.Min, 0)
	}
	canvas := vgsvg.New(760, vg.Length(cmp.Or(c.Height, 240)))
	p.Draw(draw.Crop(draw.New(canvas), 2, -8, 2, -8))
	var b bytes.Buffer
	_, err = canvas.WriteTo(&b)
	pic.SVG = template.HTML(b.Bytes()[bytes.Index(b.Bytes(), []byte("<svg")):])
	return pic, err
}

// plotters draw a line: its band, then the line, then its dots. There are none if it has no point.
func (l Line) plotters(shade color.NRGBA) (parts []plot.Plotter, err error) {
	finitePoints := func(ys []float64) (points plotter.XYs) {
		for i, y := range ys {
			if finite(y) {
				points = append(points, plotter.XY{X: l.X[i], Y: y})
			}
		}
		return points
	}
	low := finitePoints(l.Low)
	slices.Reverse(low)
	if band := append(finitePoints(l.High), low...); len(band) > 2 {
		polygon, err := plotter.NewPolygon(band)
		if err != nil {
			return nil, err
		}
		polygon.Color, polygon.LineStyle.Width = color.NRGBA{shade.R, shade.G, shade.B, 0x2e}, 0
		parts = append(parts, polygon)
	}
	points := finitePoints(l.Y)
	if len(points) == 0 {
		return parts, nil
	}
	path, dots, err := plotter.NewLinePoints(points)
	if err != nil {
		return nil, err
	}
	path.LineStyle = draw.LineStyle{Color: shade, Width: 1.75}
	if l.Mark == Dashed {
		path.Dashes = []vg.Length{5, 3}
	}
	if l.Mark != Dots {
		parts = append(parts, path)
	}
	dots.GlyphStyle = draw.GlyphStyle{Color: shade, Radius: 2.5, Shape: draw.CircleGlyph{}}
	if l.Mark == Dots || l.Mark == Dotted || len(points) == 1 {
		parts = append(parts, dots)
	}
	return parts, nil
}

// axes are an empty plot without a frame, with light lines across and small grey labels.
func (c Chart) axes() *plot.Plot {
	p := plot.New()
	label := func(x text.XAlignment, y text.YAlignment) text.Style {
		face := font.Font{Typeface: "Liberation", Variant: "Sans", Size: 11}
		return text.Style{Color: muted, Font: face, Handler: plot.DefaultTextHandler, XAlign: x, YAlign: y}
	}
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.LineStyle.Width, axis.Padding = 0, 4
		axis.Tick.LineStyle, axis.Tick.Length = draw.LineStyle{Color: faint, Width: 1}, 3
		axis.Tick.Marker = plot.TickerFunc(numberTicks)
		axis.Label.TextStyle = label(draw.XCenter, draw.YBottom)
	}
	p.X.Label.Text, p.X.Tick.Label = c.XLabel, label(draw.XCenter, draw.YTop)
	p.Y.Label.Text, p.Y.Tick.Label = c.YLabel, label(draw.XRight, draw.YCenter)
	if c.Names != nil {
		p.X.Tick.Marker = namedTicks(c.Names)
	}
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Horizontal.Width, grid.Vertical.Width = faint, 0.75, 0
	p.Add(grid)
	return p
}

// numberTicks are at 1, 2 or 5 times a power of ten, and labelled as this package writes numbers.
func numberTicks(low, high float64) (ticks []plot.Tick) {
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

// spaced are n numbers at equal distances.
func spaced(n int, first, step float64) []float64 {
	xs := make([]float64, n)
	for i := range xs {
		xs[i] = first + step*float64(i)
	}
	return xs
}

package render

import (
	"fmt"
	"html/template"
	"image/color"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// HeatMap is a chart of a value over a grid of two parameters.
type HeatMap struct {
	XLabel, YLabel string
	X, Y           []string    // the values of the parameters
	Z              [][]float64 // by row y from below, then by column x; NaN where there is none
	Format         func(float64) string
	// Marked rings a cell; nil means none. Mark says what for.
	Marked func(x, y int) bool
	Mark   string
	Height float64 // 0 means what the rows need
}

func (h HeatMap) picture() (picture, error) {
	var pic picture
	if len(h.X) == 0 || len(h.Y) == 0 || len(h.Z) != len(h.Y) {
		return pic, fmt.Errorf("render: a heat map of %d columns and %d rows has %d rows of values", len(h.X), len(h.Y), len(h.Z))
	}
	for y, row := range h.Z {
		if len(row) != len(h.X) {
			return pic, fmt.Errorf("render: row %d of a heat map has %d values for %d columns", y, len(row), len(h.X))
		}
	}
	if h.Format == nil {
		h.Format = Number
	}
	low, high := h.span()
	p := newPlot(h.XLabel, h.YLabel)
	p.X.LineStyle.Width, p.X.Tick.Length = 0, 0
	p.X.Tick.Marker, p.Y.Tick.Marker = named(h.X), named(h.Y)
	cells := plotter.NewHeatMap(cellGrid{h, low}, viridis)
	cells.Min, cells.Max = low, high
	if low == high {
		cells.Max = low + 1 // gonum divides by the span
	}
	cells.NaN = grid.colour()
	p.Add(cells, cellText{h, low, high})
	p.X.Min, p.X.Max = -0.5, float64(len(h.X))-0.5
	p.Y.Min, p.Y.Max = -0.5, float64(len(h.Y))-0.5
	pic.Scale = &scale{Low: h.Format(low), High: h.Format(high), Gradient: viridis.gradient()}
	if h.Marked != nil {
		pic.Legend = []legend{{Name: h.Mark, Shape: "ring", Color: template.CSS(ink.variable())}}
	}
	var err error
	pic.SVG, err = svgOf(p, orElse(h.Height, float64(60+max(120, 34*len(h.Y)))))
	return pic, err
}

// span is the least and the largest finite value; 0 and 0 without any.
func (h HeatMap) span() (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, row := range h.Z {
		for _, z := range row {
			if finite(z) {
				low, high = min(low, z), max(high, z)
			}
		}
	}
	if low > high {
		return 0, 0
	}
	return low, high
}

// cellGrid is a HeatMap as gonum wants it.
type cellGrid struct {
	HeatMap
	low float64
}

func (g cellGrid) Dims() (c, r int) { return len(g.HeatMap.X), len(g.HeatMap.Y) }
func (g cellGrid) X(c int) float64  { return float64(c) }
func (g cellGrid) Y(r int) float64  { return float64(r) }
func (g cellGrid) Min() float64     { return g.low }
func (g cellGrid) Max() float64     { return g.low }
func (g cellGrid) Z(c, r int) float64 {
	if z := g.HeatMap.Z[r][c]; finite(z) {
		return z
	}
	return math.NaN()
}

// cellText writes the values into the cells where there is room, and rings those that are marked.
type cellText struct {
	HeatMap
	low, high float64
}

func (t cellText) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	wide, tall := x(1)-x(0), y(1)-y(0)
	for row, values := range t.Z {
		for column, z := range values {
			at := vg.Point{X: x(float64(column)), Y: y(float64(row))}
			label := t.Format(z)
			style := textStyle(ink, draw.XCenter, draw.YCenter)
			if finite(z) {
				// Dark text on the light end of the palette, light text on its dark end.
				style.Color = color.Gray{Y: 0xf8}
				if t.high > t.low && (z-t.low)/(t.high-t.low) > 0.6 {
					style.Color = color.Gray{Y: 0x10}
				}
			}
			if style.Width(label)+6 < wide && style.Height(label)+4 < tall {
				c.FillText(style, at.Add(vg.Point{Y: 2}), label)
			}
			if t.Marked != nil && t.Marked(column, row) {
				ring(c, at, wide/2-3, tall/2-3)
			}
		}
	}
}

// ring draws a frame around a point, so far to the sides and so far up and down, in a colour that every cell shows.
func ring(c draw.Canvas, at vg.Point, dx, dy vg.Length) {
	corners := []vg.Point{
		{X: at.X - dx, Y: at.Y - dy}, {X: at.X + dx, Y: at.Y - dy}, {X: at.X + dx, Y: at.Y + dy}, {X: at.X - dx, Y: at.Y + dy},
		{X: at.X - dx, Y: at.Y - dy}, {X: at.X + dx, Y: at.Y - dy},
	}
	c.StrokeLines(draw.LineStyle{Color: ink.colour(), Width: 3.5}, corners)
	c.StrokeLines(draw.LineStyle{Color: paper.colour(), Width: 1.5}, corners)
}

// palette are colours from low to high.
type palette []color.Color

// Colors implements gonum's palette.Palette.
func (p palette) Colors() []color.Color { return p }

// gradient is the palette as a background of the page.
func (p palette) gradient() template.CSS {
	const stops = 10
	parts := make([]string, stops)
	for i := range parts {
		parts[i] = hex(p[i*(len(p)-1)/(stops-1)])
	}
	return template.CSS("linear-gradient(to right, " + strings.Join(parts, ", ") + ")")
}

// viridis is even to the eye, also to one that does not tell red from green, and in print without colour. Its ten
// anchors are those of Nathaniel Smith and Stefan van der Walt's map (matplotlib, 2015, CC0); between them it is linear.
var viridis = func() (p palette) {
	anchors := [][3]int{
		{0x44, 0x01, 0x54}, {0x48, 0x28, 0x78}, {0x3e, 0x49, 0x89}, {0x31, 0x68, 0x8e}, {0x26, 0x82, 0x8e},
		{0x1f, 0x9e, 0x89}, {0x35, 0xb7, 0x79}, {0x6e, 0xce, 0x58}, {0xb5, 0xde, 0x2b}, {0xfd, 0xe7, 0x25},
	}
	const between = 8
	for i, a := range anchors[:len(anchors)-1] {
		b := anchors[i+1]
		for k := range between {
			mix := func(n int) uint8 { return uint8(a[n] + (b[n]-a[n])*k/between) }
			p = append(p, color.RGBA{mix(0), mix(1), mix(2), 255})
		}
	}
	last := anchors[len(anchors)-1]
	return append(p, color.RGBA{uint8(last[0]), uint8(last[1]), uint8(last[2]), 255})
}()

package view

import (
	"fmt"
	"html/template"
	"image/color"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/palette/moreland"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// HeatMap is a chart of a value over a grid of two parameters.
type HeatMap struct {
	XLabel, YLabel string
	X, Y           []string    // the values of the parameters, at least one each
	Z              [][]float64 // by row y from below, then by column x; NaN where there is none
	Format         func(float64) string
	Marked         func(x, y int) bool // the cells to ring
	Mark           string              // what for
}

func (h HeatMap) picture() (picture, error) {
	cells := cells{h, math.Inf(1), math.Inf(-1)}
	for _, row := range h.Z {
		for _, z := range row {
			if finite(z) {
				cells.low, cells.high = min(cells.low, z), max(cells.high, z)
			}
		}
	}
	if cells.low > cells.high {
		cells.low, cells.high = 0, 0
	}
	palette := moreland.Kindlmann().Palette(64)
	heat := plotter.NewHeatMap(cells, palette)
	heat.Min, heat.Max, heat.NaN = cells.low, cells.high, faint
	if heat.Min == heat.Max {
		heat.Max++ // gonum divides by the span
	}
	p := newPlot(h.XLabel, h.YLabel)
	p.X.Tick.Length, p.Y.Tick.Length = 0, 0
	p.X.Tick.Marker, p.Y.Tick.Marker = namedTicks(counting(len(h.X)), h.X), namedTicks(counting(len(h.Y)), h.Y)
	p.Add(heat, cells)
	p.X.Min, p.X.Max = -0.5, float64(len(h.X))-0.5
	p.Y.Min, p.Y.Max = -0.5, float64(len(h.Y))-0.5

	var stops []string
	for i := 0; i < 64; i += 9 {
		stops = append(stops, string(css(palette.Colors()[i])))
	}
	pic := picture{
		Legend:   []legend{{h.Mark, "ring", css(ink)}},
		Low:      h.Format(cells.low),
		High:     h.Format(cells.high),
		Gradient: template.CSS(fmt.Sprintf("linear-gradient(to right, %s)", strings.Join(stops, ", "))),
	}
	var err error
	pic.SVG, err = svgOf(p, float64(60+max(120, 34*len(h.Y))))
	return pic, err
}

// cells are a heat map's cells as gonum wants them. As a plotter it writes the values into the cells
// where there is room, and rings those that are marked.
type cells struct {
	HeatMap
	low, high float64
}

func (c cells) Dims() (columns, rows int) { return len(c.HeatMap.X), len(c.HeatMap.Y) }
func (c cells) X(column int) float64      { return float64(column) }
func (c cells) Y(row int) float64         { return float64(row) }
func (c cells) Z(column, row int) float64 { return c.HeatMap.Z[row][column] }
func (c cells) isBright(z float64) bool   { return (z-c.low)/max(c.high-c.low, 1e-300) > 0.55 }
func (c cells) Plot(to draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&to)
	wide, tall := x(1)-x(0), y(1)-y(0)
	for row, values := range c.HeatMap.Z {
		for column, z := range values {
			at := vg.Point{X: x(float64(column)), Y: y(float64(row))}
			var shade color.Color = color.White
			if !finite(z) || c.isBright(z) {
				shade = ink
			}
			label, style := c.Format(z), textStyle(shade, draw.XCenter, draw.YCenter)
			if style.Width(label)+6 < wide && style.Height(label)+4 < tall {
				to.FillText(style, at.Add(vg.Point{Y: 2}), label)
			}
			if c.Marked(column, row) {
				dx, dy := wide/2-3, tall/2-3
				ring := []vg.Point{
					at.Add(vg.Point{X: -dx, Y: -dy}), at.Add(vg.Point{X: dx, Y: -dy}), at.Add(vg.Point{X: dx, Y: dy}),
					at.Add(vg.Point{X: -dx, Y: dy}), at.Add(vg.Point{X: -dx, Y: -dy}), at.Add(vg.Point{X: dx, Y: -dy}),
				}
				to.StrokeLines(draw.LineStyle{Color: color.White, Width: 4}, ring)
				to.StrokeLines(draw.LineStyle{Color: ink, Width: 2}, ring)
			}
		}
	}
}

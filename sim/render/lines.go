package render

import (
	"fmt"
	"html/template"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Line is one line of Lines.
type Line struct {
	Name string
	X, Y []float64 // equally long. A point that is not finite leaves a gap
	// Low and High are the ends of a band around the line, as long as it; nil for none.
	Low, High []float64
	// Shade is the colour, numbered from 0, or Grey.
	Shade  int
	Dashed bool
	Points bool // mark each point
	Thin   bool
}

// Grey is the Shade of a line that others are compared with.
const Grey = -1

// Lines is a chart of lines over numbers or over names.
type Lines struct {
	XLabel, YLabel string
	// Names, if any, are those of x = 0, 1, 2, ...; without them x is a number.
	Names []string
	Lines []Line
	// LogX and LogY are for values above 0; others are left out.
	LogX, LogY bool
	FromZero   bool    // the vertical axis starts at 0
	From, To   float64 // of the horizontal axis; To 0 means what the lines need. Ignored with Names
	Height     float64 // 0 means 240
}

func (l Lines) picture() (picture, error) {
	p := newPlot(l.XLabel, l.YLabel)
	p.Add(rules{})
	var pic picture
	drawn := 0
	for _, line := range l.Lines {
		if len(line.X) != len(line.Y) {
			return pic, fmt.Errorf("render: line %q has %d x and %d y", line.Name, len(line.X), len(line.Y))
		}
		if err := l.addBand(p, line); err != nil {
			return pic, err
		}
		style, entry := line.style()
		for _, run := range l.runs(line) {
			drawn++
			if err := addRun(p, run, style, line.Points || len(run) == 1); err != nil {
				return pic, err
			}
		}
		pic.Legend = append(pic.Legend, entry)
	}
	if drawn == 0 {
		p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 1, 0, 1
		l.LogX, l.LogY = false, false
	}
	if l.Names != nil {
		p.X.Tick.Marker = named(l.Names)
		p.X.Min, p.X.Max = 0, float64(max(len(l.Names)-1, 1))
	}
	if l.To != 0 && l.Names == nil {
		p.X.Min, p.X.Max = l.From, l.To
	}
	setAxis(&p.X, l.LogX, false)
	setAxis(&p.Y, l.LogY, l.FromZero)
	var err error
	pic.SVG, err = svgOf(p, orElse(l.Height, 240))
	return pic, err
}

// style is how the line is drawn, and its entry in the legend.
func (l Line) style() (draw.LineStyle, legend) {
	color := shadeOf(l)
	style := draw.LineStyle{Color: color.colour(), Width: 1.75}
	if l.Thin {
		style.Width = 0.9
	}
	entry := legend{Name: l.Name, Shape: "line", Color: template.CSS(color.variable())}
	if l.Dashed {
		style.Dashes = []vg.Length{5, 3}
		entry.Shape = "dashed"
	}
	return style, entry
}

func shadeOf(l Line) shade {
	if l.Shade < 0 {
		return muted
	}
	return nth(l.Shade)
}

// runs are the pieces of a line between its gaps.
func (l Lines) runs(line Line) (runs []plotter.XYs) {
	var run plotter.XYs
	for i := range line.X {
		x, y := line.X[i], line.Y[i]
		if finite(x) && finite(y) && !(l.LogX && x <= 0) && !(l.LogY && y <= 0) {
			run = append(run, plotter.XY{X: x, Y: y})
			continue
		}
		if run != nil {
			runs = append(runs, run)
		}
		run = nil
	}
	if run != nil {
		runs = append(runs, run)
	}
	return runs
}

func addRun(p *plot.Plot, run plotter.XYs, style draw.LineStyle, points bool) error {
	line, err := plotter.NewLine(run)
	if err != nil {
		return fmt.Errorf("render: %w", err)
	}
	line.LineStyle = style
	p.Add(line)
	if !points {
		return nil
	}
	marks, err := plotter.NewScatter(run)
	if err != nil {
		return fmt.Errorf("render: %w", err)
	}
	marks.GlyphStyle = draw.GlyphStyle{Color: style.Color, Radius: 2.5, Shape: draw.CircleGlyph{}}
	p.Add(marks)
	return nil
}

// setAxis sets the scale, and for a linear one that starts at 0 some room above.
func setAxis(a *plot.Axis, log, fromZero bool) {
	switch {
	case log:
		a.Scale, a.Tick.Marker = plot.LogScale{}, ticks{log: true}
		if a.Min == a.Max { // gonum would make room by going down to 0
			a.Min, a.Max = a.Min/2, a.Max*2
		}
	case fromZero:
		a.Min = min(a.Min, 0)
		if a.Max > 0 {
			a.Max *= 1.04
		} else if a.Min == 0 {
			a.Max = 1
		}
	}
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

func orElse(x, other float64) float64 {
	if x == 0 {
		return other
	}
	return x
}

package render

import (
	"fmt"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg/draw"
)

// Dots is a chart of points in one or more series, over a line of what they should be.
type Dots struct {
	XLabel, YLabel string
	Series         []Line // drawn as points; gaps, X, Y and Shade as for Lines
	Line           *Line
	FromZero       bool
	Height         float64 // 0 means 240
}

func (d Dots) picture() (picture, error) {
	p := newPlot(d.XLabel, d.YLabel)
	p.Add(rules{})
	var pic picture
	all := d.Series
	if d.Line != nil {
		all = append([]Line{*d.Line}, all...)
	}
	drawn := 0
	for i, s := range all {
		if len(s.X) != len(s.Y) {
			return pic, fmt.Errorf("render: series %q has %d x and %d y", s.Name, len(s.X), len(s.Y))
		}
		style, entry := s.style()
		line := d.Line != nil && i == 0
		for _, run := range (Lines{}).runs(s) {
			drawn++
			if line {
				if err := addRun(p, run, style, false); err != nil {
					return pic, err
				}
				continue
			}
			marks, err := plotter.NewScatter(run)
			if err != nil {
				return pic, fmt.Errorf("render: %w", err)
			}
			marks.GlyphStyle = draw.GlyphStyle{Color: style.Color, Radius: 2.25, Shape: draw.CircleGlyph{}}
			p.Add(marks)
		}
		if !line {
			entry.Shape = "dot"
		}
		pic.Legend = append(pic.Legend, entry)
	}
	if drawn == 0 {
		p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 1, 0, 1
	}
	setAxis(&p.Y, false, d.FromZero)
	var err error
	pic.SVG, err = svgOf(p, orElse(d.Height, 240))
	return pic, err
}

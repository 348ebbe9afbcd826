package render

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
)

// faint is a shade that lets what is behind it through.
type faint struct{ shade }

// RGBA implements color.Color. The parts are rounded up, so that vgsvg, which divides them by the opacity and cuts what is
// left, writes the stand-in.
func (f faint) RGBA() (r, g, b, a uint32) {
	const opacity = 0x2e00
	full := f.colour().(color.RGBA)
	part := func(x uint8) uint32 { return (uint32(x)*opacity + 254) / 255 }
	return part(full.R), part(full.G), part(full.B), opacity
}

// addBand fills what is between Low and High, wherever both are known at two neighbouring points.
func (l Lines) addBand(p *plot.Plot, line Line) error {
	if line.Low == nil && line.High == nil {
		return nil
	}
	if len(line.Low) != len(line.X) || len(line.High) != len(line.X) {
		return fmt.Errorf("render: line %q has %d x, and a band from %d to %d values", line.Name, len(line.X), len(line.Low), len(line.High))
	}
	shown := func(i int) bool {
		x, low, high := line.X[i], line.Low[i], line.High[i]
		return finite(x) && finite(low) && finite(high) && !(l.LogX && x <= 0) && !(l.LogY && low <= 0)
	}
	for from := 0; from < len(line.X); from++ {
		to := from
		for to < len(line.X) && shown(to) {
			to++
		}
		if to-from < 2 {
			continue
		}
		var edge plotter.XYs
		for i := from; i < to; i++ {
			edge = append(edge, plotter.XY{X: line.X[i], Y: line.High[i]})
		}
		for i := to - 1; i >= from; i-- {
			edge = append(edge, plotter.XY{X: line.X[i], Y: line.Low[i]})
		}
		band, err := plotter.NewPolygon(edge)
		if err != nil {
			return fmt.Errorf("render: %w", err)
		}
		band.Color, band.LineStyle.Width = faint{shadeOf(line)}, 0
		p.Add(band)
		from = to
	}
	return nil
}

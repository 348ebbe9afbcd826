package view

import (
	"fmt"
	"math"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/search"
)

// unknown is a figure of what did not run.
var unknown = sim.Figure{Mean: math.NaN(), Low: math.NaN(), High: math.NaN()}

// charts draw each figure that differs between points over the values of the only parameter that varies.
func (v sweepView) charts(across search.Axis) Section {
	bands := fmt.Sprintf("The means, with their %s intervals, or the ranges of the replications, as bands.",
		Percent(v.Confidence))
	s := Section{Title: "Over " + across.Path, Text: []string{bands}}
	all := v.figures()
	for _, name := range withAll(sweepFigures, search.BoundFigure) {
		scale, note := drawnIn(name)
		line, differs := Line{Name: "mean", Mark: Dotted}, false
		for i := range v.Points {
			f, p := unknown, &v.Points[i]
			if p.Figures != nil {
				f = search.FigureOf(p.Figures, name)
				differs = differs || f.Mean != search.FigureOf(all[0], name).Mean
			}
			line.add(float64(i), f.Mean*scale)
			line.Low, line.High = append(line.Low, f.Low*scale), append(line.High, f.High*scale)
		}
		if differs {
			s.Charts = append(s.Charts, Chart{
				Title: name, Note: note, XLabel: across.Path, Names: across.Values, Lines: []Line{line},
				FromZero: name != "admitted_vs_central", YLeast: leastSpan(name, all),
			})
		}
	}
	return s
}

// figures are those of the points that ran.
func (v sweepView) figures() (all []*sim.Figures) {
	for i := range v.Points {
		if f := v.Points[i].Figures; f != nil {
			all = append(all, f)
		}
	}
	return all
}

// leastSpan returns the least that an axis for a figure spans, as drawn: twice the widest interval and
// a fiftieth of the largest value, so that what is luck does not look like a slope.
func leastSpan(name string, all []*sim.Figures) (span float64) {
	scale, _ := drawnIn(name)
	for _, f := range all {
		if x := search.FigureOf(f, name); finite(x.Mean) {
			span = max(span, math.Abs(x.Mean)*scale/50)
			if finite(x.High - x.Low) {
				span = max(span, 2*(x.High-x.Low)*scale)
			}
		}
	}
	return span
}

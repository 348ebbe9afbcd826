package view

import (
	"fmt"
	"math"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/search"
)

// unknown is a figure of what did not run.
var unknown = sim.Figure{Mean: math.NaN(), Low: math.NaN(), High: math.NaN()}

// questions are those that the charts of a sweep answer, each by one figure.
var questions = []struct{ figure, question, unit string }{
	{"false_reject_ratio", "How much is rejected wrongly, in percent?", "%"},
	{"calls_per_s", "How many lease calls does the fleet make each second?", "calls/s"},
	{"admitted_vs_central", "How much is admitted, in percent of what one central bucket admits?", "%"},
	{search.BoundFigure, "By how many tokens is the bound exceeded?", "tokens"},
}

// charts draw figures over the values of the only parameter that varies: all, or those that a map lacks.
func (v sweepView) charts(across search.Axis, mapped bool) Section {
	s := Section{Title: "Over " + across.Path}
	for _, q := range questions[:either(mapped, 2, len(questions))] {
		scale := scaleOf(q.figure)
		line := Line{Mark: Dotted}
		for i := range v.Points {
			f, p := unknown, &v.Points[i]
			if p.Figures != nil {
				f = search.FigureOf(p.Figures, q.figure)
			}
			line.add(float64(i), f.Mean*scale)
			line.Low, line.High = append(line.Low, f.Low*scale), append(line.High, f.High*scale)
		}
		s.draw(Chart{Title: q.question, X: Axis{Label: across.Path, Names: across.Values},
			Y: Axis{Unit: q.unit, FromZero: q.figure != "admitted_vs_central"}, Lines: []Line{line}})
	}
	if s.Charts != nil {
		s.Text = append(s.Text, fmt.Sprintf("Dots are means. Bands are their %s intervals, or the ranges of "+
			"the replications.", Percent(v.Confidence)))
	}
	return s
}

package view

import (
	"fmt"
	"math"
	"strings"

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
	for _, name := range withAll(v.shown, search.BoundFigure) {
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
			line.Titles = append(line.Titles, v.about(p)+": "+name+" "+Figure(name, f))
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

// tradeOff draws two objectives against each other.
func (v sweepView) tradeOff() Section {
	points, front := Line{Name: "points", Series: Grey}, Line{Name: "Pareto front"}
	x, y := v.Objectives[1].Figure, v.Objectives[0].Figure
	for i := range v.Points {
		p := &v.Points[i]
		switch {
		case p.Figures == nil:
		case p.Front:
			front.addFigures(p.Figures, x, y, v.about(p), strings.Join(p.Values, " "))
		default:
			points.addFigures(p.Figures, x, y, v.about(p), "")
		}
	}
	return tradeOff(x, y, v.figures(), points, front)
}

// addFigures appends the point at which two figures are, by their names. about says of what.
func (l *Line) addFigures(f *sim.Figures, x, y, about, label string) {
	scaleX, _ := drawnIn(x)
	scaleY, _ := drawnIn(y)
	atX, atY := search.FigureOf(f, x), search.FigureOf(f, y)
	l.add(atX.Mean*scaleX, atY.Mean*scaleY)
	l.Labels = append(l.Labels, label)
	l.Titles = append(l.Titles, fmt.Sprintf("%s: %s %s, %s %s", about, x, Figure(x, atX), y, Figure(y, atY)))
}

// tradeOff draws two figures of some figures against each other.
func tradeOff(x, y string, all []*sim.Figures, lines ...Line) Section {
	_, note := drawnIn(y)
	for i := range lines {
		lines[i].Mark = Dots
	}
	chart := Chart{
		Title: y + " against " + x, Note: note, XLabel: x, YLabel: y, Lines: lines,
		XLeast: leastSpan(x, all), YLeast: leastSpan(y, all),
	}
	return Section{Title: "The trade-off", Charts: []Chart{chart}}
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

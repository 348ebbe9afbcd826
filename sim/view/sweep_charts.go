package view

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/search"
)

// unknown is a figure of what did not run.
var unknown = sim.Figure{Mean: math.NaN(), Low: math.NaN(), High: math.NaN()}

// charts draw each figure over the values of the last parameter, with a line for each value of the
// other one, if there are two.
func (v sweepView) charts() Section {
	across := v.Axes[len(v.Axes)-1]
	bands := fmt.Sprintf("The means, with their %s intervals, or the ranges of the replications, as bands.",
		Percent(v.Confidence))
	s := Section{Title: "Over " + across.Path, Text: []string{bands}}
	zero := func(name string) bool {
		return !slices.ContainsFunc(v.figures(),
			func(f *sim.Figures) bool { return !search.FigureOf(f, name).IsZero() })
	}
	for _, name := range slices.DeleteFunc(withAll(v.shown, search.BoundFigure), zero) {
		scale, note := drawnIn(name)
		chart := Chart{
			Title: name, Note: note, XLabel: across.Path, Names: across.Values,
			FromZero: name != "admitted_vs_central",
			YLeast:   leastSpan(name, v.figures()),
		}
		for points := range slices.Chunk(v.Points, len(across.Values)) {
			line := Line{Name: "mean", Series: len(chart.Lines), Mark: Dotted}
			if line.Series >= len(series) {
				line.Mark = Dashed // as the colours come again
			}
			if len(v.Axes) == 2 {
				line.Name = v.Axes[0].Path + " " + v.value(0, points[0].Values[0])
			}
			for i, p := range points {
				f := unknown
				if p.Figures != nil {
					f = search.FigureOf(p.Figures, name)
				}
				line.add(float64(i), f.Mean*scale)
				at := v.about(&p) + ": " + name + " "
				line.Titles = append(line.Titles, at+Figure(name, f))
				if len(v.Axes) == 1 {
					line.Labels = append(line.Labels, Mean(name, f))
				}
				line.Low, line.High = append(line.Low, f.Low*scale), append(line.High, f.High*scale)
			}
			chart.Lines = append(chart.Lines, line)
		}
		s.Charts = append(s.Charts, chart)
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
		lines[i].Mark = cmp.Or(lines[i].Mark, Dots)
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

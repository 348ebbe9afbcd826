package view

import (
	"fmt"
	"math"
	"slices"
	"strings"

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

// HeatOf is the map of a sweep: what each algorithm admits of what one central bucket would have. The columns
// are the values of the last parameter. The rows are the algorithms, at the values of the parameters before
// it. Where those are of the leases' policy, which the other algorithms do not know, each of these has one
// row, at their first values.
func HeatOf(r search.SweepReport) Heat {
	last := len(r.Axes) - 1
	v, across := sweepView{&r}, r.Axes[last]
	h := Heat{Title: "How much is admitted, in % of what one central bucket admits?", Down: "algorithm",
		Across: across}
	known := false
	for k, a := range r.Axes[:last] {
		h.Down = either(k == 0, "", h.Down+" ") + a.Path
		known = known || !strings.HasPrefix(a.Path, "policy.")
	}
	add := func(algorithm string, all bool, cell func(p *search.Point) (part, excess sim.Figure)) {
		for points := range slices.Chunk(r.Points, len(across.Values)) {
			values := strings.Join(points[0].Values[:last], " ")
			row := HeatRow{Name: strings.TrimSpace(algorithm + either(all, " "+values, ""))}
			for i := range points {
				c := HeatCell{Part: unknown}
				if p := &points[i]; p.Figures != nil {
					part, excess := cell(p)
					c = HeatCell{part, excess.Worst}
				}
				row.Cells = append(row.Cells, c)
			}
			if h.Rows = append(h.Rows, row); !all {
				return
			}
		}
	}
	add(Own, true, func(p *search.Point) (part, excess sim.Figure) {
		return p.Figures.AdmittedVsCentral, p.Figures.BoundExceededBy
	})
	for k, name := range v.rivals() {
		add(name, known, func(p *search.Point) (part, excess sim.Figure) {
			return p.Rivals[k].AdmittedVsCentral, p.Rivals[k].BoundExceededBy
		})
	}
	return h
}

// rivals are the names of the other algorithms, of which each point that ran has the figures.
func (v sweepView) rivals() (names []string) {
	for i := range v.Points {
		for k := range v.Points[i].Rivals {
			names = append(names, v.Points[i].Rivals[k].Name)
		}
		if names != nil {
			break
		}
	}
	return names
}

// section shows the map, or where all of it has one colour and the bound holds, a sentence that says so.
func (h Heat) section() Section {
	low, high := math.Inf(1), math.Inf(-1)
	for _, row := range h.Rows {
		for _, c := range row.Cells {
			if finite(c.Part.Mean) {
				low, high = min(low, c.Part.Mean), max(high, c.Part.Mean)
			}
		}
	}
	if h.Exceeded() || low > high || heatStepOf(low) != heatStepOf(high) {
		s := Section{Title: h.Title, Text: []string{h.explained()}}
		t := h.table()
		s.Heat, s.Table = &h, &t
		return s
	}
	return Section{Title: h.Title, Text: []string{throughout(100*low, 100*high)}}
}

package view

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/search"
)

// unknown is the value of a figure at a point that did not run.
var unknown = sim.Figure{Mean: math.NaN(), Low: math.NaN(), High: math.NaN()}

// questions has, for each chart of a sweep, the question and the figure.
var questions = []struct{ figure, question, unit string }{
	{"false_reject_ratio", "How much is rejected wrongly, in percent?", "%"},
	{"calls_per_s", "How many lease calls does the fleet make each second?", "calls/s"},
	{"admitted_vs_central", "How much is admitted, in percent of what one central bucket admits?", "%"},
	{search.BoundFigure, "By how many tokens is the bound exceeded?", "tokens"},
}

// charts returns a section with charts of figures over the only parameter that varies: of all figures, or, if
// the page has a map, of the figures that the map lacks.
func (v sweepView) charts(across search.Axis, mapped bool) Section {
	s := Section{Title: "Over " + across.Path}
	at, logarithmic := placesOf(across.Values)
	for _, q := range questions[:either(mapped, 2, len(questions))] {
		scale := scaleOf(q.figure)
		line := Line{Mark: Dotted}
		for i := range v.Points {
			f, p := unknown, &v.Points[i]
			if p.Figures != nil {
				f = search.FigureOf(p.Figures, q.figure)
			}
			line.add(at[i], f.Mean*scale)
			line.Low, line.High = append(line.Low, f.Low*scale), append(line.High, f.High*scale)
		}
		s.draw(Chart{Title: q.question,
			X: Axis{Label: across.Path + either(logarithmic, " (logarithmic)", ""), Names: across.Values, At: at},
			Y: Axis{Unit: q.unit, FromZero: q.figure != "admitted_vs_central"}, Lines: []Line{line}})
	}
	if s.Charts != nil {
		s.Text = append(s.Text, fmt.Sprintf("Dots are means. Bands are their %s intervals, or the ranges of "+
			"the replications.", Percent(v.Confidence)))
	}
	return s
}

// placesOf returns the positions of a parameter's values on an axis: proportional to the values, and on a
// logarithmic axis if the largest value is ten times the smallest. Values without an order, such as names,
// have equal distances.
func placesOf(values []string) (at Points, logarithmic bool) {
	for i, text := range values {
		x, ok := quantity(text)
		if !ok || i > 0 && x <= at[i-1] {
			return evenly(len(values)), false
		}
		at = append(at, x)
	}
	if logarithmic = at[0] > 0 && at[len(at)-1] >= 10*at[0]; logarithmic {
		for i, x := range at {
			at[i] = math.Log(x)
		}
	}
	return at, logarithmic
}

// evenly returns 0 to n-1.
func evenly(n int) (at Points) {
	for i := range n {
		at = append(at, float64(i))
	}
	return at
}

// quantity parses a duration in seconds, a percentage, or a number.
func quantity(text string) (x float64, ok bool) {
	if d, err := time.ParseDuration(text); err == nil {
		return d.Seconds(), true
	}
	x, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	return x, err == nil && finite(x)
}

// admissions returns the map of a sweep: each algorithm's admissions in percent of the central bucket's
// admissions. This table has a column for each value of the last parameter. Each algorithm has a row for each
// combination of the other parameters. If all other parameters belong to the lease policy, which rivals do
// not have, each rival has a single row. A "!" follows a value that exceeds the bound, and the end of the row
// has the largest excess. A flat map becomes a sentence.
func (v sweepView) admissions() Section {
	s := Section{Title: "How much is admitted, in % of what one central bucket admits?"}
	last := len(v.Axes) - 1
	across, down, known := v.Axes[last], []string{"algorithm"}, false
	for k, a := range v.Axes[:last] {
		down = append(down[:k], a.Path)
		known = known || !strings.HasPrefix(a.Path, "policy.")
	}
	names := shortest(append(down, across.Path)...)
	t := Table{Columns: []string{strings.Join(names[:len(down)], " ") + " ↓  " + names[len(down)] + " →"}}
	t.head(across.Values...)
	low, high, worst := math.Inf(1), math.Inf(-1), 0.0
	add := func(algorithm string, all bool, cell func(p *search.Point) (part, excess sim.Figure)) {
		for points := range slices.Chunk(v.Points, len(across.Values)) {
			values, most := strings.Join(points[0].Values[:last], " "), 0.0
			row := []string{strings.TrimSpace(algorithm + either(all, " "+values, ""))}
			for i := range points {
				if points[i].Figures == nil {
					row = append(row, "– ")
					continue
				}
				part, excess := cell(&points[i])
				low, high, most = min(low, part.Mean), max(high, part.Mean), max(most, excess.Worst)
				row = append(row, decimal(100*part.Mean, 1, 1)+either(excess.Worst > 0, "!", " "))
			}
			worst = max(worst, most)
			if t.Add(append(row, Number(most))...); !all {
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
	if worst == 0 && low <= high && high-low <= flatPart*high {
		s.Text = []string{throughout(100*low, 100*high)}
		return s
	}
	if worst > 0 {
		t.Columns = append(t.Columns, "?>excess")
	}
	s.Table, s.Text = &t, []string{"100 % is a limit that is kept and fully used. A ! marks a bound that is exceeded " +
		"in some window" + either(worst > 0, ", and excess is the most tokens above it in a row.", ".")}
	return s
}

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

package sweep

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/render"
)

// page is the report with pictures: lines where one parameter varies, heat maps where two do, and the trade-off between two
// objectives always.
func (v View) page() render.Page {
	r := &v.Report
	var sections []render.Section
	switch len(r.Axes) {
	case 1:
		sections = append(sections, r.lineSection())
	case 2:
		sections = append(sections, r.heatSection())
	}
	if len(r.Objectives) == 2 {
		sections = append(sections, r.tradeSection())
	}
	points := r.points()
	sections = append(sections, render.Section{Title: "All points", Table: &points})
	if v.Text != "" {
		sections = append(sections, render.Section{Title: "Scenario file", Code: v.Text})
	}
	if v.Command != "" {
		sections = append(sections, render.Section{
			Title: "How to repeat it",
			Text:  []string{fmt.Sprintf("The same scenario (hash %s), axes and seed give the same figures on any machine.", r.ScenarioHash)},
			Code:  v.Command,
		})
	}
	return render.Page{
		Title:    render.Heading(r.Scenario) + ": a sweep",
		Subtitle: r.subtitle(),
		Verdicts: r.verdicts(),
		Facts: []render.Fact{
			{Name: "scenario", Value: render.Heading(r.Scenario)},
			{Name: "hash", Value: r.ScenarioHash},
			{Name: "seed", Value: fmt.Sprint(r.Seed)},
			{Name: "replications", Value: fmt.Sprint(r.Reps)},
			{Name: "confidence", Value: render.Percent(r.Confidence)},
			{Name: "schema", Value: fmt.Sprint(r.SchemaVersion)},
		},
		Sections: sections,
		Machine:  render.Machine(r.Machine),
	}
}

// drawn are the figures that get a picture of their own, the objectives first.
func (r *Report) drawn() []string {
	names := r.shown()
	if !slices.Contains(names, "bound_exceeded_by") {
		names = append(names, "bound_exceeded_by")
	}
	return names
}

// shownAs is the unit of a picture: a figure that is a part of one is drawn in percent.
func shownAs(figure string) (scale float64, format func(float64) string) {
	if strings.HasSuffix(render.Value(figure, 0), "%") {
		return 100, func(x float64) string { return render.Number(x) + " %" }
	}
	return 1, render.Number
}

// lineSection draws each figure against the one parameter, with its interval.
func (r *Report) lineSection() render.Section {
	axis := r.Axes[0]
	xs, label, ok := numbers(axis)
	s := render.Section{Title: "Against " + axis.Path}
	for _, name := range r.drawn() {
		scale, _ := shownAs(name)
		line := render.Line{Name: fmt.Sprintf("mean, with its %s interval", render.Percent(r.Confidence)), X: xs, Points: true}
		for i := range r.Points {
			f := sim.Figure{Mean: math.NaN(), Low: math.NaN(), High: math.NaN()}
			if r.Points[i].Figures != nil {
				f = FigureOf(r.Points[i].Figures, name)
			}
			line.Y = append(line.Y, float64(f.Mean*scale))
			line.Low = append(line.Low, float64(f.Low*scale))
			line.High = append(line.High, float64(f.High*scale))
		}
		chart := render.Lines{XLabel: label, Lines: []render.Line{line}, FromZero: name != "admitted_vs_central"}
		if ok {
			chart.LogX = xs[0] > 0 && xs[len(xs)-1]/xs[0] >= 20
		} else {
			chart.Names = axis.Values
		}
		s.Charts = append(s.Charts, render.Titled{Title: name, Note: noteOf(name), Chart: chart})
	}
	return s
}

func noteOf(figure string) string {
	note := render.About(figure)
	if scale, _ := shownAs(figure); scale == 100 {
		note += ", in percent"
	}
	return strings.ToUpper(note[:1]) + note[1:] + "."
}

// numbers are an axis's values as numbers to draw, with what they are; not ok where they are words, or do not rise.
func numbers(a Axis) (xs []float64, label string, ok bool) {
	ok = true
	unit := ""
	for i, text := range a.Values {
		x, u, err := withUnit(text)
		if d, errD := time.ParseDuration(text); errD == nil {
			x, u, err = float64(d)/1e6, "ms", nil
		}
		if x == 0 {
			u = "" // 0 is of any unit, and not of time because a duration may be 0
		}
		if unit == "" {
			unit = u
		}
		if err != nil || u != "" && u != unit || i > 0 && x <= xs[i-1] {
			ok = false
		}
		xs = append(xs, x)
	}
	if !ok {
		for i := range xs {
			xs[i] = float64(i)
		}
		return xs, a.Path, false
	}
	if unit == "" {
		return xs, a.Path, true
	}
	return xs, a.Path + ", " + unit, true
}

// heatSection draws each figure over the two parameters.
func (r *Report) heatSection() render.Section {
	down, across := r.Axes[0], r.Axes[1]
	s := render.Section{Title: fmt.Sprintf("Over %s and %s", across.Path, down.Path)}
	for _, name := range r.drawn() {
		scale, format := shownAs(name)
		m := render.HeatMap{
			XLabel: across.Path, YLabel: down.Path, X: across.Values, Y: down.Values, Format: format,
			Marked: func(x, y int) bool { return r.Points[y*len(across.Values)+x].Front },
			Mark:   "no other point is better in every objective",
		}
		for y := range down.Values {
			row := make([]float64, len(across.Values))
			for x := range across.Values {
				row[x] = math.NaN()
				if f := r.Points[y*len(across.Values)+x].Figures; f != nil {
					row[x] = float64(FigureOf(f, name).Mean * scale)
				}
			}
			m.Z = append(m.Z, row)
		}
		s.Charts = append(s.Charts, render.Titled{Title: name, Note: noteOf(name), Chart: m})
	}
	return s
}

// tradeSection draws the two objectives against each other.
func (r *Report) tradeSection() render.Section {
	a, b := r.Objectives[1], r.Objectives[0]
	scaleA, _ := shownAs(a.Figure)
	scaleB, _ := shownAs(b.Figure)
	others, front := render.Line{Name: "points", Shade: render.Grey}, render.Line{Name: "none is better in both"}
	for i := range r.Points {
		p := &r.Points[i]
		if p.Figures == nil {
			continue
		}
		line := &others
		if p.Front {
			line = &front
		}
		line.X = append(line.X, float64(FigureOf(p.Figures, a.Figure).Mean*scaleA))
		line.Y = append(line.Y, float64(FigureOf(p.Figures, b.Figure).Mean*scaleB))
	}
	return render.Section{Title: "The trade-off", Charts: []render.Titled{{
		Title: fmt.Sprintf("%s against %s", b.Figure, a.Figure),
		Chart: render.Dots{XLabel: a.Figure, YLabel: b.Figure, Series: []render.Line{others, front}},
	}}}
}

package view

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/search"
)

// Sweep shows a sweep of a scenario, whose file's text and whose command line stand at the end.
// JSON is the report itself; CSV has a line per point. The page has lines for one or two
// parameters.
func Sweep(r search.SweepReport, text, command string) Document {
	v := sweepView{&r, []string{}}
	for _, o := range r.Objectives {
		v.shown = append(v.shown, o.Figure)
	}
	for _, name := range []string{"admitted_vs_central", "false_reject_ratio", "calls_per_s"} {
		if !slices.Contains(v.shown, name) {
			v.shown = append(v.shown, name)
		}
	}
	table := v.table()
	sections := append(v.charts(), Section{Title: "All points", Table: &table})
	rows := [][]string{figureHead}
	for i := range r.Points {
		if p := &r.Points[i]; p.Figures != nil {
			rows = append(rows, figureRows(r.Label(p), p.Figures.All())...)
		}
	}
	axes := make([]string, len(r.Axes))
	for i, a := range r.Axes {
		axes[i] = fmt.Sprintf("%s (%d)", a.Path, len(a.Values))
	}
	return Document{
		Title: nameOf(r.Scenario) + ": a sweep",
		Subtitle: fmt.Sprintf("%s: %s, %s of %s s each, all on the same seeds", strings.Join(axes, " x "),
			count(len(r.Points), "point"), count(r.Reps, "replication"), Number(r.DurationS)),
		Facts: []Fact{
			{"hash", r.ScenarioHash},
			{"seed", fmt.Sprint(r.Seed)},
			{"replications", fmt.Sprint(r.Reps)},
			{"confidence", Percent(r.Confidence)},
		},
		Verdicts: v.verdicts(),
		Sections: append(sections, Closing(text, command)...),
		Machine:  r.Machine,
		Data:     &r,
		Rows:     rows,
	}
}

type sweepView struct {
	*search.SweepReport
	shown []string // the figures in the table: the objectives, and what most readers want beside them
}

func (v sweepView) table() Table {
	t := Table{Columns: []string{""}}
	for _, a := range v.Axes {
		t.Columns = append(t.Columns, ">"+a.Path)
	}
	for _, name := range v.shown {
		t.Columns = append(t.Columns, ">"+name)
	}
	for _, o := range v.Objectives {
		t.Columns = append(t.Columns, ">Δ "+o.Figure)
	}
	t.Columns = append(t.Columns, "bound")
	for i := range v.Points {
		p := &v.Points[i]
		mark := ""
		if p.Front {
			mark = "*"
		}
		if i == 0 {
			mark += " base"
		}
		row := append([]string{strings.TrimSpace(mark)}, p.Values...)
		if p.Figures == nil {
			why := "did not run"
			if p.Invalid != "" {
				why = "invalid: " + p.Invalid
			}
			row = append(append(row, make([]string, len(v.shown)+len(v.Objectives))...), why)
			t.Add(row...)
			continue
		}
		for _, name := range v.shown {
			row = append(row, Figure(name, search.FigureOf(p.Figures, name)))
		}
		for _, o := range v.Objectives {
			row = append(row, v.difference(p, o.Figure))
		}
		bound := "holds"
		if over := p.Figures.BoundExceededBy.Worst; over > 0 {
			bound = "exceeded by " + Number(over)
		}
		t.Add(append(row, bound)...)
	}
	return t
}

// difference writes a point's difference from the base, with its interval; in parentheses where it
// may be luck.
func (v sweepView) difference(p *search.Point, figure string) string {
	d, ok := p.Differences[figure]
	if !ok || p == &v.Points[0] {
		return ""
	}
	text := Figure(figure, sim.Figure{Mean: d.Mean, Low: d.Low, High: d.High})
	if d.Mean > 0 {
		text = "+" + text
	}
	if !d.Certain() && d.Mean != 0 {
		text = "(" + text + ")"
	}
	return text
}

// verdicts say in words what the table shows.
func (v sweepView) verdicts() (all []Verdict) {
	say := func(mood Mood, format string, args ...any) {
		all = append(all, Verdict{mood, fmt.Sprintf(format, args...)})
	}
	exceeded := 0
	for _, p := range v.Points {
		if p.Figures != nil && p.Figures.BoundExceededBy.Worst > 0 {
			exceeded++
		}
	}
	if exceeded > 0 {
		say(Bad, "The bound is exceeded at %s.", count(exceeded, "point"))
	} else if v.Finished > 0 {
		say(Good, "The bound holds at every point that ran.")
	}
	if left := len(v.Points) - v.Finished - v.Invalid; left > 0 {
		say(Neutral, "Interrupted: %d of %d points did not run.", left, len(v.Points))
	}
	if v.Invalid > 0 {
		say(Neutral, "%d of %d points cannot run; the table says why.", v.Invalid, len(v.Points))
	}
	goals := make([]string, len(v.Objectives))
	for i, o := range v.Objectives {
		if goals[i] = "a small " + o.Figure; o.Max {
			goals[i] = "a large " + o.Figure
		}
	}
	say(Neutral, "* No other point is at least as good for %s, and better for one.", strings.Join(goals, " and "))
	if base := &v.Points[0]; base.Figures == nil {
		say(Neutral, "There are no differences, because the base (%s) has no figures.", v.Label(base))
	} else {
		say(Neutral, "Δ is the difference from the base (%s), paired by replication, with its %s interval; in parentheses "+
			"where that holds 0.", v.Label(base), Percent(v.Confidence))
	}
	return all
}

// charts draw each figure over the values of one parameter, with a line for each value of a second
// one; and two objectives against each other.
func (v sweepView) charts() (sections []Section) {
	if len(v.Axes) <= 2 {
		across := v.Axes[len(v.Axes)-1]
		bands := fmt.Sprintf("The means, with their %s intervals as bands.", Percent(v.Confidence))
		s := Section{Title: "Over " + across.Path, Text: []string{bands}}
		drawn := v.shown
		if !slices.Contains(drawn, search.BoundFigure) {
			drawn = append(slices.Clip(drawn), search.BoundFigure)
		}
		for _, name := range drawn {
			scale, note := drawnIn(name)
			chart := Lines{XLabel: across.Path, Names: across.Values, FromZero: name != "admitted_vs_central"}
			for from := 0; from < len(v.Points); from += len(across.Values) {
				line := v.line(v.Points[from:from+len(across.Values)], name, scale)
				line.Series = len(chart.Lines)
				if len(v.Axes) == 2 {
					line.Name = v.Axes[0].Path + " " + v.Points[from].Values[0]
				}
				chart.Lines = append(chart.Lines, line)
			}
			s.Charts = append(s.Charts, TitledChart{name, note, chart})
		}
		sections = append(sections, s)
	}
	if len(v.Objectives) == 2 {
		goals := [2]string{v.Objectives[1].Figure, v.Objectives[0].Figure}
		var points, front []*sim.Figures
		for _, p := range v.Points {
			switch {
			case p.Figures == nil:
			case p.Front:
				front = append(front, p.Figures)
			default:
				points = append(points, p.Figures)
			}
		}
		sections = append(sections, tradeOff(goals, "points", points, "none is better in both", front))
	}
	return sections
}

// line is a figure at points, with its interval. A point that did not run is left out.
func (v sweepView) line(points []search.Point, name string, scale float64) Line {
	line := Line{Name: "mean", X: counting(len(points)), Mark: LineAndDots}
	for _, p := range points {
		f := sim.Figure{Mean: math.NaN(), Low: math.NaN(), High: math.NaN()}
		if p.Figures != nil {
			f = search.FigureOf(p.Figures, name)
		}
		line.Y = append(line.Y, f.Mean*scale)
		line.Low, line.High = append(line.Low, f.Low*scale), append(line.High, f.High*scale)
	}
	return line
}

// tradeOff draws two figures against each other, of many and of some that stand out.
func tradeOff(goals [2]string, many string, points []*sim.Figures, some string, marked []*sim.Figures) Section {
	scaleX, _ := drawnIn(goals[0])
	scaleY, note := drawnIn(goals[1])
	line := func(name string, series int, all []*sim.Figures) Line {
		l := Line{Name: name, Series: series, Mark: DotsOnly}
		for _, f := range all {
			l.X = append(l.X, search.FigureOf(f, goals[0]).Mean*scaleX)
			l.Y = append(l.Y, search.FigureOf(f, goals[1]).Mean*scaleY)
		}
		return l
	}
	chart := Lines{XLabel: goals[0], YLabel: goals[1], Lines: []Line{line(many, Grey, points), line(some, 0, marked)}}
	return Section{Title: "The trade-off", Charts: []TitledChart{{goals[1] + " against " + goals[0], note, chart}}}
}

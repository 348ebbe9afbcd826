package sweep

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/render"
)

// View is a report with what a reader needs beside it.
type View struct {
	Report  Report
	Text    string // of the scenario's file
	Command string // the command line that repeats it
}

// Write writes the report in one of render.Formats. JSON is the report itself; CSV has a line per point.
func (v View) Write(w io.Writer, format string) error {
	switch format {
	case render.FormatTable:
		return v.table(w)
	case render.FormatJSON:
		return render.WriteJSON(w, &v.Report)
	case render.FormatCSV:
		return v.csv(w)
	case render.FormatHTML:
		return v.page().Write(w)
	}
	return fmt.Errorf("sweep: there is no format %q", format)
}

// shown are the figures that a table of points has: the objectives, and what most readers want beside them.
func (r *Report) shown() (names []string) {
	for _, o := range r.Objectives {
		names = append(names, o.Figure)
	}
	for _, name := range []string{"admitted_vs_central", "false_reject_ratio", "calls_per_s"} {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func (v View) table(w io.Writer) error {
	r := &v.Report
	var b strings.Builder
	fmt.Fprintf(&b, "%s  (hash %s, seed %d)\n%s\n\n", render.Heading(r.Scenario), r.ScenarioHash, r.Seed, render.Wrap(r.subtitle()))
	t := r.points()
	if err := t.Write(&b); err != nil {
		return err
	}
	b.WriteByte('\n')
	for _, verdict := range r.verdicts() {
		fmt.Fprintln(&b, render.Wrap(verdict.Text))
	}
	m := render.Machine(r.Machine)
	fmt.Fprintf(&b, "\nThis machine simulated %s requests in %s, %s per second.\n", m[1].Value, m[0].Value, m[2].Value)
	_, err := io.WriteString(w, b.String())
	return err
}

// points is the table of all points.
func (r *Report) points() render.Table {
	t := render.Table{Columns: []render.Column{render.Left("")}}
	for _, a := range r.Axes {
		t.Columns = append(t.Columns, render.Right(a.Path))
	}
	names := r.shown()
	for _, name := range names {
		t.Columns = append(t.Columns, render.Right(name))
	}
	for _, o := range r.Objectives {
		t.Columns = append(t.Columns, render.Right("Δ "+o.Figure))
	}
	t.Columns = append(t.Columns, render.Left("bound"))
	add := func(p *Point) {
		row := []string{r.mark(p)}
		for k := range r.Axes {
			if p == r.Own {
				row = append(row, "as given")
			} else {
				row = append(row, p.Values[k])
			}
		}
		nothing := make([]string, len(names)+len(r.Objectives))
		switch {
		case p.Invalid != "":
			row = append(append(row, nothing...), "invalid: "+p.Invalid)
		case p.Figures == nil:
			row = append(append(row, nothing...), "did not run")
		default:
			for _, name := range names {
				row = append(row, render.Figure(name, FigureOf(p.Figures, name)))
			}
			for _, o := range r.Objectives {
				row = append(row, r.difference(p, o.Figure))
			}
			bound := "holds"
			if over := p.Figures.BoundExceededBy.Worst; over > 0 {
				bound = "exceeded by " + render.Number(over)
			}
			row = append(row, bound)
		}
		t.Add(row...)
	}
	if r.Own != nil {
		add(r.Own)
	}
	for i := range r.Points {
		add(&r.Points[i])
	}
	return t
}

// mark is a star for a point of the front, and "base" for the base.
func (r *Report) mark(p *Point) string {
	words := ""
	if p.Front {
		words = "*"
	}
	if p == r.BasePoint() {
		words += " base"
	}
	return strings.TrimSpace(words)
}

// difference writes a point's difference from the base, with its interval; in parentheses where it may be luck.
func (r *Report) difference(p *Point, figure string) string {
	d, ok := p.Differences[figure]
	if !ok || p == r.BasePoint() {
		return ""
	}
	text := render.Figure(figure, sim.Figure{Mean: d.Mean, Low: d.Low, High: d.High})
	if d.Mean > 0 {
		text = "+" + text
	}
	if !d.Certain() && d.Mean != 0 {
		text = "(" + text + ")"
	}
	return text
}

func (r *Report) subtitle() string {
	parts := make([]string, len(r.Axes))
	for i, a := range r.Axes {
		parts[i] = fmt.Sprintf("%s (%d)", a.Path, len(a.Values))
	}
	return fmt.Sprintf("%s: %s, %s of %s s each, all on the same seeds",
		strings.Join(parts, " x "), render.Count(len(r.Points), "point"), render.Count(r.Reps, "replication"), render.Number(r.DurationS))
}

// verdicts say in words what the table shows.
func (r *Report) verdicts() []render.Verdict {
	neutral := func(format string, args ...any) render.Verdict {
		return render.Verdict{Mood: render.Neutral, Text: fmt.Sprintf(format, args...)}
	}
	var all []render.Verdict
	if left := len(r.Points) - r.Finished - r.Invalid; left > 0 {
		all = append(all, neutral("Interrupted: %d of %d points did not run.", left, len(r.Points)))
	}
	if r.Invalid > 0 {
		all = append(all, neutral("%d of %d points cannot run; the table says why.", r.Invalid, len(r.Points)))
	}
	goals := make([]string, len(r.Objectives))
	for i, o := range r.Objectives {
		goals[i] = "a small " + o.Figure
		if o.Max {
			goals[i] = "a large " + o.Figure
		}
	}
	all = append(all, neutral("* No other point is at least as good for %s, and better for one.", strings.Join(goals, " and ")))
	if r.BasePoint().Figures == nil {
		all = append(all, neutral("There are no differences, because the base (%s) has no figures.", r.Label(r.BasePoint())))
	} else {
		all = append(all, neutral("Δ is the difference from the base (%s), paired by replication, with its %s interval; in parentheses where that holds 0.",
			r.Label(r.BasePoint()), render.Percent(r.Confidence)))
	}
	exceeded := 0
	for i := range r.Points {
		if f := r.Points[i].Figures; f != nil && f.BoundExceededBy.Worst > 0 {
			exceeded++
		}
	}
	if exceeded > 0 {
		all = append(all, render.Verdict{Mood: render.Bad, Text: fmt.Sprintf("The bound is exceeded at %s.", render.Count(exceeded, "point"))})
	} else if r.Finished > 0 {
		all = append(all, render.Verdict{Mood: render.Good, Text: "The bound holds at every point that ran."})
	}
	return all
}

// csv writes one line per point: the values, what it is, and of each figure the interval and that of its difference.
func (v View) csv(w io.Writer) error {
	r := &v.Report
	var head []string
	for _, a := range r.Axes {
		head = append(head, a.Path)
	}
	head = append(head, "scenario_hash", "base", "front", "invalid")
	names := FigureNames()
	for _, name := range names {
		head = append(head, name+".mean", name+".low", name+".high", name+".worst", name+".diff", name+".diff_low", name+".diff_high")
	}
	var rows [][]string
	add := func(p *Point) {
		row := slices.Clone(p.Values)
		if p == r.Own {
			row = slices.Repeat([]string{"as given"}, len(r.Axes))
		}
		row = append(row, p.ScenarioHash, fmt.Sprint(p == r.BasePoint()), fmt.Sprint(p.Front), p.Invalid)
		if p.Figures == nil {
			rows = append(rows, append(row, make([]string, 7*len(names))...))
			return
		}
		for _, f := range p.Figures.All() {
			row = append(row, render.Raw(f.Mean), render.Raw(f.Low), render.Raw(f.High), render.Raw(f.Worst))
			if d, ok := p.Differences[f.Name]; ok {
				row = append(row, render.Raw(d.Mean), render.Raw(d.Low), render.Raw(d.High))
			} else {
				row = append(row, "", "", "")
			}
		}
		rows = append(rows, row)
	}
	if r.Own != nil {
		add(r.Own)
	}
	for i := range r.Points {
		add(&r.Points[i])
	}
	return render.WriteCSV(w, head, rows)
}

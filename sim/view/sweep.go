package view

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/search"
)

// Sweep shows a sweep of a scenario. The scenario's text and the command line stand at the end. The
// document's JSON is the report. If one parameter varies, the page has charts.
func Sweep(r search.SweepReport, text, command string) Document {
	axes := make([]string, len(r.Axes))
	for i, a := range r.Axes {
		axes[i] = fmt.Sprintf("%s (%d)", a.Path, len(a.Values))
	}
	d := answer(r.Asked, r.Machine, &r, text, command)
	d.Title += ": a sweep"
	d.Subtitle = fmt.Sprintf("%s: %s, %s of %s s each, all on the same seeds", strings.Join(axes, " x "),
		Count(len(r.Points), "point"), Count(r.Reps, "replication"), Number(r.DurationS))
	v, interval := sweepView{&r}, ", without an interval"
	v.judge(&d)
	if len(r.Axes) == 1 {
		d.Sections = append(d.Sections, v.charts())
	}
	if r.Reps > 1 {
		interval = fmt.Sprintf(", paired by replication, with its %s interval, or its range over the "+
			"replications where an interval would promise too much; in parentheses if that includes 0",
			Percent(r.Confidence))
	}
	d.tabulate("All points", v.table(), glossary(sweepFigures...)+" Target in force: the length of "+
		"leases, which the burst may shorten and the budget of calls (policy.calls_per_second) lengthen.",
		fmt.Sprintf("Δ is the difference from the base (%s)%s.", r.Label(&r.Points[0]), interval))
	return d
}

type sweepView struct{ *search.SweepReport }

// sweepFigures begins with the two figures that leases trade against each other.
var sweepFigures = []string{"false_reject_ratio", "calls_per_s", "admitted_vs_central"}

func (v sweepView) table() Table {
	t := Table{Columns: []string{""}, Brief: true}
	for _, a := range v.Axes {
		t.head(a.Path)
	}
	rejects, calls, part := column(sweepFigures[0]), column(sweepFigures[1]), column(sweepFigures[2])
	t.head("target in force", rejects, calls, part, "Δ "+rejects, "Δ "+calls)
	t.Columns = append(t.Columns, "bound")
	for i := range v.Points {
		p := &v.Points[i]
		mark := either(search.Saturated(p.Figures.RedisCPU), "!", "") + either(i == 0, " base", "")
		row := append(append([]string{strings.TrimSpace(mark)}, p.Values...), p.TargetInForce)
		for _, name := range sweepFigures {
			row = append(row, Figure(name, search.FigureOf(&p.Figures, name)))
		}
		for _, name := range sweepFigures[:2] {
			row = append(row, v.difference(p, name))
		}
		over := p.Figures.BoundExceededBy.Worst
		t.Add(append(row, either(over > 0, "exceeded by "+Number(over), "holds"))...)
	}
	return t
}

// difference formats a point's difference from the base, in parentheses if chance may explain it.
func (v sweepView) difference(p *search.Point, figure string) string {
	if p == &v.Points[0] {
		return ""
	}
	d := p.Differences[figure]
	text := either(d.Mean > 0, "+", "") +
		Figure(figure, sim.Figure{Mean: d.Mean, Low: d.Low, High: d.High, Range: d.Range})
	return either(d.Certain() || d.Mean == 0, text, "("+text+")")
}

func (v sweepView) judge(d *Document) {
	exceeded, saturated := 0, false
	for _, p := range v.Points {
		if p.Figures.BoundExceededBy.Worst > 0 {
			exceeded++
		}
		saturated = saturated || search.Saturated(p.Figures.RedisCPU)
	}
	if exceeded > 0 {
		d.say(Bad, "The bound is exceeded at %s.", Count(exceeded, "point"))
	} else {
		d.say(Good, "The bound holds at every point.")
	}
	if saturated {
		d.say(Bad, "Redis is saturated at the points marked !: its busiest shard is always busy, and calls wait.")
	}
}

var questions = []struct{ figure, question, unit string }{
	{"false_reject_ratio", "How much is rejected wrongly, in percent?", "%"},
	{"calls_per_s", "How many lease calls does the fleet make each second?", "calls/s"},
	{"admitted_vs_central", "How much is admitted, in percent of what one central bucket admits?", "%"},
	{search.BoundFigure, "By how many tokens is the bound exceeded?", "tokens"},
}

func (v sweepView) charts() Section {
	across := v.Axes[0]
	s := Section{Title: "Over " + across.Path, Text: []string{fmt.Sprintf("Dots are means. Bands are their %s "+
		"intervals, or the ranges of the replications.", Percent(v.Confidence))}}
	at, logarithmic := placesOf(across.Values)
	for _, q := range questions {
		scale := scaleOf(q.figure)
		line := Line{Mark: Dotted}
		for i := range v.Points {
			f := search.FigureOf(&v.Points[i].Figures, q.figure)
			line.add(at[i], f.Mean*scale)
			line.Low, line.High = append(line.Low, f.Low*scale), append(line.High, f.High*scale)
		}
		s.Charts = append(s.Charts, Chart{Title: q.question,
			X: Axis{Label: across.Path + either(logarithmic, " (logarithmic)", ""), Names: across.Values, At: at},
			Y: Axis{Unit: q.unit}, Lines: []Line{line}})
	}
	return s
}

// placesOf returns the positions of values on an axis, which is logarithmic if the largest value is ten times
// the smallest. Values without an order, such as names, have equal distances.
func placesOf(values []string) (at Points, logarithmic bool) {
	for i, text := range values {
		x, ok := quantity(text)
		if !ok || i > 0 && x <= at[i-1] {
			at = nil
			for k := range values {
				at = append(at, float64(k))
			}
			return at, false
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

// quantity parses a duration, a percentage or a number.
func quantity(text string) (x float64, ok bool) {
	if d, err := time.ParseDuration(text); err == nil {
		return d.Seconds(), true
	}
	x, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	return x, err == nil && finite(x)
}

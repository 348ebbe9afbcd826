package render

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/yuzhi-go/yuzhi/sim"
)

// Own is the name of the leases among algorithms.
const Own = "yuzhi"

// Algorithms are the leases and their rivals, in that order, with the same figures of each.
func Algorithms(r sim.Report) []sim.RivalReport {
	own := sim.RivalReport{
		Name:              Own,
		Admitted:          r.Admitted,
		AdmittedVsCentral: r.AdmittedVsCentral,
		BoundExceededBy:   r.BoundExceededBy,
		FalseRejectRatio:  r.FalseRejectRatio,
		SwappedRatio:      r.SwappedRatio,
		RoundTripsPerS:    r.RoundTripsPerS,
		Jain:              r.Jain,
		WorstShare:        r.WorstShare,
	}
	return append([]sim.RivalReport{own}, r.Rivals...)
}

func (r Result) comparisonTable(w io.Writer) error {
	var b strings.Builder
	r.head(&b)
	if err := r.algorithms().Write(&b); err != nil {
		return err
	}
	b.WriteString("\n" + Wrap(excessNote+" "+Bases) + "\n")
	r.foot(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

const excessNote = "Excess: tokens above " + boundText + ", in the worst of all windows of all replications."

// algorithms is the table of all algorithms, side by side.
func (r Result) algorithms() Table {
	t := Table{Columns: []Column{
		Left("algorithm"), Right("admitted"), Right("of central"), Right("excess"), Right("false rejects"),
		Right("round trips/s"), Right("Jain"), Right("worst share"),
	}}
	for _, a := range Algorithms(r.Report) {
		t.Add(a.Name, Interval(a.Admitted), PercentInterval(a.AdmittedVsCentral), Number(a.BoundExceededBy.Worst),
			PercentInterval(a.FalseRejectRatio), Interval(a.RoundTripsPerS), Number(a.Jain.Mean), Percent(a.WorstShare.Mean))
	}
	return t
}

// comparisonCSV writes one line per algorithm, with four columns per figure.
func (r Result) comparisonCSV(w io.Writer) error {
	head := []string{"algorithm"}
	var rows [][]string
	for i, a := range Algorithms(r.Report) {
		row := []string{a.Name}
		for _, f := range a.All() {
			if i == 0 {
				head = append(head, f.Name+".mean", f.Name+".low", f.Name+".high", f.Name+".worst")
			}
			row = append(row, Raw(f.Mean), Raw(f.Low), Raw(f.High), Raw(f.Worst))
		}
		rows = append(rows, append(row, fmt.Sprint(r.Report.Reps), fmt.Sprint(r.Report.RepsAsked)))
	}
	return WriteCSV(w, append(head, "reps", "reps_asked"), rows)
}

func (r Result) comparisonPage() Page {
	sections := append(r.rivalSections(), r.timeSection())
	if len(r.Report.Members) > 1 {
		sections = append(sections, r.shareSection())
	}
	return r.pageOf(Heading(r.Report.Scenario)+": "+Own+" and its rivals", append(sections, r.closing()...))
}

// rivalSections set the algorithms side by side.
func (r Result) rivalSections() []Section {
	all := Algorithms(r.Report)
	table := r.algorithms()
	bars := func(figure func(sim.RivalReport) float64, format func(float64) string) Bars {
		chart := Bars{Format: format}
		for _, a := range all {
			chart.Bars = append(chart.Bars, Bar{Name: a.Name, Value: figure(a), Strong: a.Name == Own})
		}
		return chart
	}
	sections := []Section{{
		Title: "Side by side",
		Text:  []string{"Every algorithm saw the same requests. " + excessNote},
		Table: &table,
	}, {
		Title: "In pictures",
		Charts: []Titled{
			{"Worst excess over any window", "Tokens above " + boundText + ". No bar: the bound holds.",
				bars(func(a sim.RivalReport) float64 { return a.BoundExceededBy.Worst }, Number)},
			{"Admitted, of what one central bucket would have", "More than 100 % is more than the limit lets through.",
				bars(func(a sim.RivalReport) float64 { return a.AdmittedVsCentral.Mean * 100 }, percentOf)},
			{"Falsely rejected", "Rejected though one central bucket would have admitted it, in percent of what that admitted.",
				bars(func(a sim.RivalReport) float64 { return a.FalseRejectRatio.Mean * 100 }, percentOf)},
			{"Round trips to Redis per second", "", bars(func(a sim.RivalReport) float64 { return a.RoundTripsPerS.Mean }, Number)},
			{"The worst process's share", "In percent of its max-min share.",
				bars(func(a sim.RivalReport) float64 { return a.WorstShare.Mean * 100 }, percentOf)},
		},
	}}
	if r.Describe != nil {
		about := Section{Title: "The algorithms"}
		for _, a := range all[1:] {
			if text := r.Describe(a.Name); text != "" {
				about.Facts = append(about.Facts, Fact{a.Name, text})
			}
		}
		sections = append(sections, about)
	}
	return sections
}

// percentOf writes a number that is in percent already, to a tenth of a thousandth at best.
func percentOf(x float64) string {
	if math.IsNaN(x) {
		return Number(x)
	}
	return fmt.Sprintf("%s %%", Number(math.Round(x*1e4)/1e4))
}

package view

import (
	"github.com/yuzhi-go/yuzhi/sim"
)

// Own is the name of the leases among algorithms.
const Own = "yuzhi"

// Comparison shows the report of a run with rivals, side by side. JSON and CSV are those of Run.
func Comparison(r Result) Document {
	return r.document(nameOf(r.Report.Scenario)+": "+Own+" and its rivals", append(r.rivals(), r.charts()...))
}

// algorithms are the leases and their rivals, in that order, with the same figures of each.
func algorithms(r sim.Report) []sim.RivalReport {
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

// rivals set the algorithms side by side.
func (r Result) rivals() []Section {
	all := algorithms(r.Report)
	t := Table{Columns: []string{
		"algorithm", ">admitted", ">of central", ">excess", ">false rejects", ">round trips/s", ">Jain", ">worst share",
	}}
	for _, a := range all {
		t.Add(a.Name, Interval(a.Admitted), Figure("admitted_vs_central", a.AdmittedVsCentral), Number(a.BoundExceededBy.Worst),
			Figure("false_reject_ratio", a.FalseRejectRatio), Interval(a.RoundTripsPerS), Number(a.Jain.Mean), Percent(a.WorstShare.Mean))
	}
	sections := []Section{{
		Title: "Side by side",
		Table: &t,
		Text: []string{"Every algorithm saw the same requests. Excess: tokens above " + boundText +
			", in the worst of all windows of all replications. " + Bases},
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

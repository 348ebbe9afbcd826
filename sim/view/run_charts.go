package view

import (
	"fmt"
	"slices"
	"time"
)

// overTime returns a section with charts of the first replication over time.
func (r Result) overTime() Section {
	s, rep := r.Report.Series, &r.Report
	all := Section{
		Title: "Over time",
		Text: []string{fmt.Sprintf("The first replication (seed %d), one point per %s.", rep.Seed,
			Shortly(time.Duration(s.StepS*float64(time.Second))))},
	}
	line := func(name string, values []float64, series int) Line {
		l := Line{Name: name, Series: series}
		for i, y := range values {
			l.add(s.StepS+s.StepS*float64(i), y)
		}
		return l
	}
	level := func(name string, y float64) Line {
		end := s.StepS * float64(max(len(s.Admitted), 2))
		return Line{Name: name, X: []float64{0, end}, Y: []float64{y, y}, Series: Grey, Mark: Dashed}
	}
	draw := func(title, unit, note string, lines ...Line) {
		all.draw(Chart{Title: title, Note: note, X: Axis{Label: "seconds"},
			Y: Axis{Unit: unit, FromZero: true}, Lines: lines})
	}
	tokens := []Line{line("offered", s.Offered, Grey), line(r.kinds(centralText), s.Central, 1),
		line("admitted", s.Admitted, 0)}
	bucket := []Line{line("level", s.Level, 0), line("ledger", s.Ledger, 1)}
	if limits := r.Scenario.Limits; len(limits) > 0 {
		tokens = append(tokens, level("limit", r.limit()))
		bucket = append(bucket, level(either(limits[0].Windowed(), "window", "burst"),
			float64(limits[0].Capacity())))
	}
	draw("How many tokens are admitted each second?", "tokens/s",
		"The limit is what buckets refill; a full bucket lets more through for a while, here as in "+
			r.kinds(centralText)+".", tokens...)
	draw("How many tokens are in the bucket, and how many are leased from it?", "tokens",
		"Level: tokens in the bucket of the most popular key. Ledger: tokens that Redis counts as leased "+
			"from it.",
		bucket...)
	draw("How many round trips to Redis does the fleet make each second?", "round trips/s", "",
		line("", s.RoundTrips, 3))
	if len(s.Running) > 0 && slices.Min(s.Running) < slices.Max(s.Running) {
		draw("How many processes run?", "processes", "", line("", s.Running, 4))
	}
	return all
}

package view

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/sim"
)

// charts show how the first replication went, and what each process got.
func (r Result) charts() []Section {
	s, rep := r.Report.Series, &r.Report
	overTime := Section{
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
	draw := func(title, note string, lines ...Line) {
		overTime.Charts = append(overTime.Charts,
			Chart{Title: title, Note: note, XLabel: "seconds", Lines: lines, FromZero: true})
	}
	tokens := []Line{line("offered", s.Offered, Grey), line(r.kinds(centralText), s.Central, 1),
		line("admitted", s.Admitted, 0)}
	bucket := []Line{line("level", s.Level, 0), line("ledger", s.Ledger, 1)}
	if limits := r.Scenario.Limits; len(limits) > 0 {
		rate := math.Inf(1)
		for _, l := range limits {
			rate = min(rate, l.Rate())
		}
		tokens = append(tokens, level("limit", rate*float64(max(r.Scenario.Keys.Count, 1))))
		bucket = append(bucket, level(either(limits[0].Windowed(), "window", "burst"),
			float64(limits[0].Capacity())))
	}
	draw("Tokens per second", "The limit is what buckets refill; a full bucket lets more through for a while, "+
		"here as in "+r.kinds(centralText)+".", tokens...)
	draw("The bucket in Redis",
		"Level: tokens in the bucket of the most popular key. Ledger: tokens leased from it, as it knows.",
		bucket...)
	draw("Round trips to Redis per second", "", line("round trips", s.RoundTrips, 3))
	if len(s.Running) > 0 && slices.Min(s.Running) != slices.Max(s.Running) {
		draw("Processes", "", line("running", s.Running, 4))
	}
	if len(rep.Members) < 2 {
		return []Section{overTime}
	}
	return []Section{overTime, r.shares()}
}

// membersMax is how many processes are drawn: more would be one band.
const membersMax = 500

// shares shows what each process got beside what it was due.
func (r Result) shares() Section {
	members := slices.SortedStableFunc(slices.Values(r.Report.Members), func(a, b sim.Member) int {
		return cmp.Or(cmp.Compare(a.Share, b.Share), cmp.Compare(a.Admitted, b.Admitted))
	})
	chart := Chart{
		Title:  "Tokens per process",
		Note:   "In the order of the shares. On the line a process got exactly its share.",
		XLabel: "process", FromZero: true, Lines: []Line{{Name: "max-min share", Series: Grey}},
	}
	every := (len(members) + membersMax - 1) / membersMax
	if every > 1 {
		chart.Note += fmt.Sprintf(" One process of %d is drawn.", every)
	}
	for i := 0; i < len(members); i += every {
		m := members[i]
		chart.Lines[0].add(float64(i+1), m.Share)
		name, n := "admitted, "+m.Group, len(chart.Lines)
		of := slices.IndexFunc(chart.Lines, func(l Line) bool { return l.Name == name })
		if of < 0 {
			chart.Lines, of = append(chart.Lines, Line{Name: name, Series: n - 1, Mark: Dots}), n
		}
		chart.Lines[of].add(float64(i+1), float64(m.Admitted))
	}
	return Section{
		Title: "Share per process",
		Text: []string{fmt.Sprintf("The max-min share is a fair division of the same total: no process gets "+
			"more than it asked for, and the others get the same. Jain's index is %s; "+
			"the worst process got %s of its share.",
			Number(r.Report.Jain.Mean), Percent(r.Report.WorstShare.Mean))},
		Charts: []Chart{chart},
	}
}

package view

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/yuzhi-go/yuzhi/sim"
)

// charts show how the first replication went, and what each process got.
func (r Result) charts() []Section {
	s, rep := r.Report.Series, &r.Report
	line := func(name string, values []float64, series int) Line {
		l := Line{Name: name, Y: values, Series: series}
		for i := range values {
			l.X = append(l.X, s.StepS*float64(i+1))
		}
		return l
	}
	level := func(name string, y float64) Line {
		end := s.StepS * float64(max(len(s.Admitted), 2))
		return Line{Name: name, X: []float64{0, end}, Y: []float64{y, y}, Series: Grey, Dashed: true}
	}
	over := func(title, note string, height float64, lines ...Line) TitledChart {
		return TitledChart{title, note, Lines{XLabel: "seconds", Lines: lines, FromZero: true, Height: height}}
	}
	tokens := []Line{line("offered", s.Offered, Grey), line("one central bucket", s.Central, 1), line("admitted", s.Admitted, 0)}
	bucket := []Line{line("level", s.Level, 0), line("ledger", s.Ledger, 1)}
	if limits := r.Scenario.Limits; len(limits) > 0 {
		rate := math.Inf(1)
		for _, l := range limits {
			rate = min(rate, l.Rate())
		}
		tokens = append(tokens, level("limit", rate*float64(max(r.Scenario.Keys.Count, 1))))
		bucket = append(bucket, level("burst", float64(limits[0].Capacity())))
	}
	time := Section{
		Title: "Over time",
		Text:  []string{fmt.Sprintf("The first replication (seed %d), one point per %s s.", rep.Seed, Number(s.StepS))},
		Charts: []TitledChart{
			over("Tokens per second",
				"The limit is what buckets refill; a full bucket lets more through for a while, here as in one central bucket.", 240, tokens...),
			over("The bucket in Redis",
				"Level: tokens in the bucket of the most popular key. Ledger: tokens leased from it, as it knows.", 240, bucket...),
			over("Tokens in the processes", "", 180, line("held in all pools", s.Held, 2)),
			over("Round trips to Redis per second", "", 180, line("round trips", s.RoundTrips, 3)),
		},
	}
	if len(s.Running) > 0 && slices.Min(s.Running) != slices.Max(s.Running) {
		time.Charts = append(time.Charts, over("Processes", "", 160, line("running", s.Running, 4)))
	}
	if len(rep.Members) < 2 {
		return []Section{time}
	}
	return []Section{time, r.shares()}
}

// membersMax is how many processes are drawn: more would be one band.
const membersMax = 500

// shares shows what each process got beside what it was due.
func (r Result) shares() Section {
	members := slices.SortedStableFunc(slices.Values(r.Report.Members), func(a, b sim.Member) int {
		return cmp.Or(cmp.Compare(a.Share, b.Share), cmp.Compare(a.Admitted, b.Admitted))
	})
	var groups []string
	for _, m := range r.Report.Members {
		if !slices.Contains(groups, m.Group) {
			groups = append(groups, m.Group)
		}
	}
	due := Line{Name: "max-min share", Series: Grey}
	got := make([]Line, len(groups))
	for i, name := range groups {
		got[i] = Line{Name: "admitted, " + name, Series: i, Mark: DotsOnly}
	}
	every := (len(members) + membersMax - 1) / membersMax
	note := "In the order of the shares. On the line a process got exactly its share."
	if every > 1 {
		note += fmt.Sprintf(" One process of %d is drawn.", every)
	}
	for i := 0; i < len(members); i += every {
		m, x := members[i], float64(i+1)
		due.X, due.Y = append(due.X, x), append(due.Y, m.Share)
		l := &got[slices.Index(groups, m.Group)]
		l.X, l.Y = append(l.X, x), append(l.Y, float64(m.Admitted))
	}
	chart := Lines{XLabel: "process", FromZero: true, Lines: append([]Line{due}, got...)}
	return Section{
		Title: "Share per process",
		Text: []string{fmt.Sprintf("The max-min share is what a fair division of the same total would give: nobody more than "+
			"they asked for, and otherwise alike. Jain's index is %s; the worst process got %s of its share.",
			Number(r.Report.Jain.Mean), Percent(r.Report.WorstShare.Mean))},
		Charts: []TitledChart{{"Tokens per process", note, chart}},
	}
}

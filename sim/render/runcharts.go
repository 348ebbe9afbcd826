package render

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/yuzhi-go/yuzhi/sim"
)

// timeSection shows how the first replication went.
func (r Result) timeSection() Section {
	s := r.Report.Series
	at := func(values []float64) []float64 {
		x := make([]float64, len(values))
		for i := range x {
			x[i] = s.StepS * float64(i+1)
		}
		return x
	}
	line := func(name string, values []float64, shade int) Line {
		return Line{Name: name, X: at(values), Y: values, Shade: shade}
	}
	over := func(height float64, lines ...Line) Lines {
		return Lines{XLabel: "seconds", Lines: lines, FromZero: true, To: s.StepS * float64(len(s.Admitted)), Height: height}
	}
	offered := line("offered", s.Offered, Grey)
	offered.Thin = true
	central := line("one central bucket", s.Central, 1)
	admitted := []Line{offered, central, line("admitted", s.Admitted, 0)}
	if rate := r.rate(); rate > 0 {
		admitted = append(admitted, r.level("limit", rate))
	}
	bucket := []Line{line("level", s.Level, 0), line("ledger", s.Ledger, 1)}
	if len(r.Scenario.Limits) > 0 {
		bucket = append(bucket, r.level("burst", float64(r.Scenario.Limits[0].Capacity())))
	}
	charts := []Titled{
		{"Tokens per second", "The limit is what buckets refill; a full bucket lets more through for a while, here as in one central bucket.",
			over(0, admitted...)},
		{"The bucket in Redis", "Level: tokens in the bucket of the most popular key. Ledger: tokens leased from it, as it knows.",
			over(0, bucket...)},
		{"Tokens in the processes", "", over(180, line("held in all pools", s.Held, 2))},
		{"Round trips to Redis per second", "", over(180, line("round trips", s.RoundTrips, 3))},
	}
	if len(s.Running) > 0 && slices.Min(s.Running) != slices.Max(s.Running) {
		charts = append(charts, Titled{"Processes", "", over(160, line("running", s.Running, 4))})
	}
	text := fmt.Sprintf("The first replication (seed %d), one point per %s.", r.Report.Seed, seconds(s.StepS))
	return Section{Title: "Over time", Text: []string{text}, Charts: charts}
}

// rate is what the tightest limit gives all keys together, in tokens per second; 0 without limits.
func (r Result) rate() float64 {
	rate := 0.0
	for i, l := range r.Scenario.Limits {
		if i == 0 || l.Rate() < rate {
			rate = l.Rate()
		}
	}
	return rate * float64(max(r.Scenario.Keys.Count, 1))
}

// level is a dashed line at y over the whole series.
func (r Result) level(name string, y float64) Line {
	s := r.Report.Series
	return Line{Name: name, X: []float64{0, s.StepS * float64(max(len(s.Admitted), 2))}, Y: []float64{y, y}, Shade: Grey, Dashed: true}
}

// membersMax is how many processes are drawn: more would be one band.
const membersMax = 500

// shareSection shows what each process got beside what it was due.
func (r Result) shareSection() Section {
	var groups []string
	for _, m := range r.Report.Members {
		if !slices.Contains(groups, m.Group) {
			groups = append(groups, m.Group)
		}
	}
	every := (len(r.Report.Members) + membersMax - 1) / membersMax
	sample := ""
	if every > 1 {
		sample = fmt.Sprintf(" One process of %d is drawn.", every)
	}
	// sorted draws y of each process, in the order of by and then of y.
	sorted := func(by, y func(sim.Member) float64, fromZero bool) Dots {
		members := slices.SortedStableFunc(slices.Values(r.Report.Members), func(a, b sim.Member) int {
			return cmp.Or(cmp.Compare(by(a), by(b)), cmp.Compare(y(a), y(b)))
		})
		d := Dots{XLabel: "process", FromZero: fromZero, Line: &Line{Name: "max-min share", Shade: Grey}, Series: make([]Line, len(groups))}
		for i, g := range groups {
			d.Series[i] = Line{Name: "admitted, " + g, Shade: i}
		}
		for i := 0; i < len(members); i += every {
			m, x := members[i], float64(i+1)
			d.Line.X, d.Line.Y = append(d.Line.X, x), append(d.Line.Y, by(m))
			s := &d.Series[slices.Index(groups, m.Group)]
			s.X, s.Y = append(s.X, x), append(s.Y, y(m))
		}
		return d
	}
	tokens := sorted(func(m sim.Member) float64 { return m.Share }, func(m sim.Member) float64 { return float64(m.Admitted) }, true)
	percent := sorted(func(sim.Member) float64 { return 100 }, func(m sim.Member) float64 {
		if m.Share == 0 {
			return math.NaN() // it was due nothing
		}
		return float64(m.Admitted) / m.Share * 100
	}, false)
	return Section{
		Title: "Share per process",
		Text: []string{fmt.Sprintf("The max-min share is what a fair division of the same total would give: nobody more than they asked for, and otherwise alike. Jain's index is %s; the worst process got %s of its share.",
			Number(r.Report.Jain.Mean), Percent(r.Report.WorstShare.Mean))},
		Charts: []Titled{
			{"Tokens per process", "In the order of the shares. On the line a process got exactly its share." + sample, tokens},
			{"In percent of its share", "The same processes, in the order of what they got." + sample, percent},
		},
	}
}

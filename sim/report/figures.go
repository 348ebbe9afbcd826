package report

import (
	"math"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// Named is a figure with its JSON key.
type Named struct {
	Name string
	*Figure
}

// IsPart reports whether the figure with this JSON key is a ratio, which people write in percent.
func IsPart(name string) bool {
	switch name {
	case "admitted_ratio", "admitted_vs_central", "false_reject_ratio", "swapped_ratio", "redis_cpu",
		"worst_share":
		return true
	}
	return false
}

func moreIsBetter(name string) bool {
	switch name {
	case "offered", "admitted", "admitted_ratio", "central_admitted", "admitted_vs_central", "jain",
		"worst_share", "refunded":
		return true
	}
	return false
}

// All lists pointers to the figures in f, in the order of their declaration, with their JSON keys.
func (f *Figures) All() []Named { return figuresOf(f) }

// All lists the figures of r as Figures.All does.
func (r *RivalReport) All() []Named { return figuresOf(r) }

// All lists the figures of c as Figures.All does.
func (c *ClassReport) All() []Named { return figuresOf(c) }

func figuresOf(p any) (all []Named) {
	v := reflect.ValueOf(p).Elem()
	for i := range v.NumField() {
		if f, ok := reflect.TypeAssert[*Figure](v.Field(i).Addr()); ok {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			all = append(all, Named{name, f})
		}
	}
	return all
}

// Difference is the difference of a figure between two scenarios: the mean over replications with the same
// seeds, and the mean's confidence interval (Student's t). With one replication, Low and High equal the mean.
type Difference struct {
	Mean  float64 `json:"mean"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	Range bool    `json:"range,omitempty"` // see Figure.Range
}

// Certain reports whether the interval excludes zero, so that chance does not explain the difference.
func (d Difference) Certain() bool { return d.Low > 0 || d.High < 0 }

// Minus returns f minus g, replication by replication, over the replications that both figures have. Two
// replications with the same seed are alike, so the difference has a narrower interval than f and g. The
// difference has a range if f or g has a range.
func (f Figure) Minus(g Figure, confidence float64) Difference {
	off := make([]float64, min(len(f.Values), len(g.Values)))
	for i := range off {
		off[i] = f.Values[i] - g.Values[i]
	}
	if len(off) == 0 {
		return Difference{Mean: f.Mean - g.Mean, Low: f.Mean - g.Mean, High: f.Mean - g.Mean}
	}
	d := meanOf(off, confidence)
	if f.Range || g.Range {
		d.Range, d.Low, d.High = true, slices.Min(off), slices.Max(off)
	}
	return d
}

// meanOf returns the mean of xs with its confidence interval. xs must not be empty.
func meanOf(xs []float64, confidence float64) Difference {
	n, mean, squares, half := float64(len(xs)), 0.0, 0.0, 0.0
	for _, x := range xs {
		mean += x
	}
	mean /= n
	for _, x := range xs {
		squares += float64((x - mean) * (x - mean))
	}
	if squares > 0 { // equal values have an interval of length 0
		half = float64(studentsT(confidence, len(xs)-1) * math.Sqrt(squares/(n-1)/n))
	}
	return Difference{Mean: mean, Low: mean - half, High: mean + half}
}

// studentsT returns the t for which a t-distributed quantity lies in [-t, t] with probability confidence. It
// is rounded to a millionth, because gonum uses math.Log, whose last bit differs between machines.
func studentsT(confidence float64, freedom int) float64 {
	t := distuv.StudentsT{Sigma: 1, Nu: float64(freedom)}.Quantile((1 + confidence) / 2)
	return math.Round(t*1e6) / 1e6
}

// Outcome holds the results of one replication.
type Outcome struct {
	Seed     uint64
	Requests int64
	Most     int           // largest number of processes at a time
	Settled  bool          // see Accuracy.Ratios
	Figures  Figures       // the value of each figure is its Mean
	Rivals   []RivalReport // the value of each figure is its Mean
	Classes  []ClassReport // the value of each figure is its Mean
	Series   Series
	Members  []Member
}

// Part returns a/b, or none if b is 0.
func Part(a, b int64, none float64) float64 {
	if b == 0 {
		return none
	}
	return float64(a) / float64(b)
}

// even reports whether the figure of s with this JSON key sums up many small values, so that the mean of a
// few replications is about normal. Extremes, rare events, indices near a bound and values at single moments
// are not normal. Neither are calls of waiting requests, because queues are rare and long.
func even(s *scenario.Scenario, name string) bool {
	switch name {
	case "offered", "admitted", "admitted_ratio", "admitted_vs_central", "false_reject_ratio":
		return true
	case "calls_per_s", "round_trips_per_s", "redis_cpu":
		return !slices.ContainsFunc(s.Workloads(), func(w *scenario.Workload) bool {
			return w.Verb == scenario.VerbWait
		})
	}
	return false
}

// misfortunate reports whether a few events at random times dominate the figures of s.
func misfortunate(s *scenario.Scenario) bool {
	return slices.ContainsFunc(s.Workloads(), func(w *scenario.Workload) bool { return w.Kind == scenario.OnOff }) ||
		slices.ContainsFunc(s.Groups, func(g scenario.Group) bool { return g.Pauses.Every > 0 || g.Restarts.Every > 0 })
}

// Of summarises the replications of s. confidence is the confidence level of the intervals. A figure has an
// interval only if intervals of its kind contain the mean as often as confidence says (Figure.Range).
func Of(s *scenario.Scenario, outcomes []Outcome, confidence float64) Report {
	report := Report{
		SchemaVersion: SchemaVersion, Scenario: s.Name, ScenarioHash: s.Hash(), Seed: s.Seed,
		Reps: len(outcomes), RepsAsked: s.Reps,
		DurationS: s.Duration.Seconds(), WarmupS: s.Warmup.Seconds(), Confidence: confidence,
	}
	if len(outcomes) == 0 {
		return report
	}
	seeds := make([]uint64, len(outcomes))
	for i, o := range outcomes {
		seeds[i] = o.Seed
		report.Processes = max(report.Processes, o.Most)
		report.Machine.Requests += o.Requests
		if !o.Settled {
			report.Unsettled++
		}
	}
	trusted := confidence
	if misfortunate(s) {
		trusted = 0
	}
	sum := func(all []Named, replication func(rep int) []Named) {
		summarise(s, all, replication, seeds, trusted)
	}
	sum(report.Figures.All(), func(rep int) []Named { return outcomes[rep].Figures.All() })
	for k, name := range s.Rivals {
		rival := RivalReport{Name: name, Remote: outcomes[0].Rivals[k].Remote}
		sum(rival.All(), func(rep int) []Named { return outcomes[rep].Rivals[k].All() })
		report.Rivals = append(report.Rivals, rival)
	}
	for k, c := range outcomes[0].Classes {
		class := ClassReport{Headroom: c.Headroom, Groups: c.Groups}
		sum(class.All(), func(rep int) []Named { return outcomes[rep].Classes[k].All() })
		report.Classes = append(report.Classes, class)
	}
	report.Series, report.Members = outcomes[0].Series, outcomes[0].Members
	return report
}

// Finish fills in the speed of the simulation.
func (m *Machine) Finish(elapsed time.Duration, parallel int) {
	m.Elapsed, m.Parallel = elapsed, parallel
	m.RequestsPerS = float64(m.Requests) / max(elapsed.Seconds(), 1e-9)
	m.GoVersion, m.Platform = runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH
}

// summarise computes each figure from its values in the replications. With confidence 0, all have ranges.
func summarise(s *scenario.Scenario, all []Named, replication func(rep int) []Named, seeds []uint64,
	confidence float64) {
	values := make([][]float64, len(all))
	for rep := range seeds {
		for i, f := range replication(rep) {
			values[i] = append(values[i], f.Mean)
		}
	}
	for i, f := range all { // a queue at a busy Redis affects all figures
		if f.Name == "redis_cpu" && slices.Max(values[i]) > Saturated {
			confidence = 0
		}
	}
	for i, f := range all {
		c, most := confidence, math.Inf(1)
		if !even(s, f.Name) {
			c = 0
		}
		if IsPart(f.Name) {
			most = 1
		}
		*f.Figure = figureOf(values[i], seeds, c, moreIsBetter(f.Name), most)
	}
}

// Saturated is the fraction of busy time at which calls to a shard of Redis begin to queue. Their waits then
// show little about the policy.
const Saturated = 0.9

// fewest is the smallest number of replications for which a figure has an interval. Student's t assumes
// normal values. With five values of other kinds, 95 % intervals contained the mean in 92 % of the cases.
const fewest = 10

// figureOf returns the mean of xs with its interval. low marks a figure whose lowest value is the worst
// value. The figure has the range of xs instead of an interval in five cases: confidence is 0, xs are too
// few, a third of xs are equal (as with rare events), a value of xs is at a bound (0 or most), or the
// interval would cross a bound.
func figureOf(xs []float64, seeds []uint64, confidence float64, low bool, most float64) Figure {
	m := meanOf(xs, confidence)
	f := Figure{Mean: m.Mean, Low: m.Low, High: m.High, Worst: xs[0], WorstSeed: seeds[0], Values: xs}
	bounded := f.Low < 0 || f.High > most && slices.Max(xs) <= most
	for i, x := range xs {
		if low && x < f.Worst || !low && x > f.Worst {
			f.Worst, f.WorstSeed = x, seeds[i]
		}
		bounded = bounded || x == 0 || x == most
	}
	if len(xs) > 1 && (confidence == 0 || len(xs) < fewest || bounded || repeats(xs)) {
		f.Range, f.Low, f.High = true, slices.Min(xs), slices.Max(xs)
	}
	return f
}

// repeats reports whether a third of xs are equal, as in counts of a few events.
func repeats(xs []float64) bool {
	sorted := slices.Sorted(slices.Values(xs))
	alike := max(2, (len(xs)+2)/3)
	for i := range sorted[:len(sorted)-alike+1] {
		if sorted[i] == sorted[i+alike-1] {
			return true
		}
	}
	return false
}

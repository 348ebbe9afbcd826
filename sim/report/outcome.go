package report

import (
	"math"
	"runtime"
	"time"

	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// Outcome is what one replication showed.
type Outcome struct {
	Seed     uint64
	Requests int64
	Most     int           // processes that ran at one time
	Figures  Figures       // each has its value as Mean
	Rivals   []RivalReport // likewise
	Series   Series
	Members  []Member
}

// Part is a/b, or of where b is 0.
func Part(a, b int64, of float64) float64 {
	if b == 0 {
		return of
	}
	return float64(a) / float64(b)
}

// Of sums the replications of s up. confidence is that of the intervals.
func Of(s *scenario.Scenario, outcomes []Outcome, confidence float64) Report {
	report := Report{
		SchemaVersion: SchemaVersion, Scenario: s.Name, ScenarioHash: s.Hash(), Seed: s.Seed,
		Reps: len(outcomes), RepsAsked: s.Reps,
		DurationS: s.Duration.Seconds(), WarmupS: s.Warmup.Seconds(), Confidence: confidence,
	}
	if len(outcomes) == 0 {
		return report
	}
	quantile := 0.0
	if len(outcomes) > 1 {
		quantile = studentsT(confidence, len(outcomes)-1)
	}
	seeds := make([]uint64, len(outcomes))
	for i, o := range outcomes {
		seeds[i] = o.Seed
		report.Processes = max(report.Processes, o.Most)
		report.Machine.Requests += o.Requests
	}
	own := func(rep int) []Named { return outcomes[rep].Figures.All() }
	summarise(report.Figures.All(), own, seeds, quantile)
	for k, name := range s.Rivals {
		rival := RivalReport{Name: name}
		summarise(rival.All(), func(rep int) []Named { return outcomes[rep].Rivals[k].All() }, seeds, quantile)
		report.Rivals = append(report.Rivals, rival)
	}
	report.Series, report.Members = outcomes[0].Series, outcomes[0].Members
	return report
}

// Finish fills in how fast it went.
func (m *Machine) Finish(elapsed time.Duration, parallel int) {
	m.Elapsed, m.Parallel = elapsed, parallel
	m.RequestsPerS = float64(m.Requests) / max(elapsed.Seconds(), 1e-9)
	m.GoVersion, m.Platform = runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH
}

// summarise fills each figure from its values in the replications.
func summarise(all []Named, replication func(rep int) []Named, seeds []uint64, quantile float64) {
	values := make([][]float64, len(all))
	for rep := range seeds {
		for i, f := range replication(rep) {
			values[i] = append(values[i], f.Mean)
		}
	}
	for i, f := range all {
		*f.Figure = figureOf(values[i], seeds, quantile, MoreIsBetter(f.Name))
	}
}

// figureOf is the mean of xs with its interval. quantile is Student's t with len(xs)-1 degrees of
// freedom; low says that the worst value is the lowest.
func figureOf(xs []float64, seeds []uint64, quantile float64, low bool) Figure {
	n := float64(len(xs))
	total := 0.0
	f := Figure{Worst: xs[0], WorstSeed: seeds[0], Values: xs}
	for i, x := range xs {
		total += x
		if low && x < f.Worst || !low && x > f.Worst {
			f.Worst, f.WorstSeed = x, seeds[i]
		}
	}
	f.Mean = total / n
	f.Low, f.High = f.Mean, f.Mean
	if len(xs) > 1 {
		squares := 0.0
		for _, x := range xs {
			squares += float64((x - f.Mean) * (x - f.Mean))
		}
		half := float64(quantile * math.Sqrt(squares/(n-1)/n))
		f.Low, f.High = f.Mean-half, f.Mean+half
	}
	return f
}

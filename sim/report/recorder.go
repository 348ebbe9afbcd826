package report

import "time"

// seriesPoints is how many points a Series has: more than a picture shows.
const seriesPoints = 240

// Recorder takes the points of a Series.
type Recorder struct {
	Series Series
	Step   int64 // nanoseconds between two points

	last    Counts
	held    int64 // sum over the points since the warm-up
	samples int64
}

// Counts are what a point of the series shows the growth of.
type Counts struct{ Offered, Admitted, Central, RoundTrips int64 }

// Levels are what a point of the series shows as they are.
type Levels struct {
	Level, Ledger int64 // of the most popular key's bucket
	Held          int64 // tokens in all pools
	Running       int   // processes
}

// NewRecorder is for a run of this length.
func NewRecorder(duration time.Duration) Recorder {
	step := max(1, int64(duration)/seriesPoints)
	return Recorder{Step: step, Series: Series{StepS: float64(step) / 1e9}}
}

// Add takes a point.
func (r *Recorder) Add(now Counts, levels Levels) {
	r.held += levels.Held
	r.samples++
	s := &r.Series
	rate := func(now, last int64) float64 { return float64(now-last) / s.StepS }
	s.Offered = append(s.Offered, rate(now.Offered, r.last.Offered))
	s.Admitted = append(s.Admitted, rate(now.Admitted, r.last.Admitted))
	s.Central = append(s.Central, rate(now.Central, r.last.Central))
	s.RoundTrips = append(s.RoundTrips, rate(now.RoundTrips, r.last.RoundTrips))
	s.Level = append(s.Level, float64(levels.Level))
	s.Ledger = append(s.Ledger, float64(levels.Ledger))
	s.Held = append(s.Held, float64(levels.Held))
	s.Running = append(s.Running, float64(levels.Running))
	r.last = now
}

// Warm is for the end of the warm-up, when the counts begin anew after having been was.
func (r *Recorder) Warm(was Counts) {
	r.held, r.samples = 0, 0
	r.last.Offered -= was.Offered
	r.last.Admitted -= was.Admitted
	r.last.Central -= was.Central
	r.last.RoundTrips -= was.RoundTrips
}

// Stranded is how many tokens were in the pools, in the mean of the points since the warm-up.
func (r *Recorder) Stranded() float64 { return Part(r.held, r.samples, 0) }

package report

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Tally counts one algorithm's decisions since the warm-up. Figures defines false rejects and swaps.
type Tally struct {
	Admitted     int64
	ByProcess    []int64 // admitted tokens of the most popular key
	Swapped      int64
	FalseRejects int64

	// Credit counts admitted tokens that the central bucket denied, without those that have been swapped with
	// a false reject. credit has the same count for each key.
	Credit int64
	credit []int64
}

// NewTally returns an empty Tally.
func NewTally(processes, keys int) Tally {
	return Tally{ByProcess: make([]int64, processes), credit: make([]int64, keys)}
}

// Reset clears all counts but Credit, at the end of the warm-up.
func (t *Tally) Reset() {
	clear(t.ByProcess)
	*t = Tally{ByProcess: t.ByProcess, Credit: t.Credit, credit: t.credit}
}

// OfFirst returns the number of admitted tokens of the most popular key.
func (t *Tally) OfFirst() int64 { return sum(t.ByProcess) }

// Decided records a decision about n tokens of a key. central is the decision of one central bucket.
func (t *Tally) Decided(process, key int32, n int64, central, ok bool) {
	switch {
	case ok:
		t.Admitted += n
		if key == 0 {
			t.ByProcess[process] += n
		}
		if !central {
			t.credit[key] += n
			t.Credit += n
		}
	case central:
		swapped := min(t.credit[key], n)
		t.credit[key] -= swapped
		t.Credit -= swapped
		t.Swapped += swapped
		t.FalseRejects += n - swapped
	}
}

// Waits collects the waiting times of requests, from request to answer.
type Waits struct {
	histogram *hdrhistogram.Histogram // microseconds; only of requests that waited
	served    int64
	waited    int64 // number of requests in histogram
}

// NewWaits returns Waits for waiting times up to longest, precise to three digits.
func NewWaits(longest time.Duration) Waits {
	return Waits{histogram: hdrhistogram.New(1, max(longest.Microseconds(), 2), 3)}
}

// Add records one request with its waiting time in nanoseconds, 0 if the request did not wait.
func (w *Waits) Add(wait int64) {
	w.served++
	if wait > 0 {
		w.waited++
		_ = w.histogram.RecordValue(min(wait/1000, w.histogram.HighestTrackableValue()))
	}
}

// Reset deletes all recorded waiting times.
func (w *Waits) Reset() {
	w.served, w.waited = 0, 0
	w.histogram.Reset()
}

// Mean returns the mean waiting time. Requests that did not wait count as 0.
func (w *Waits) Mean() time.Duration {
	if w.served == 0 {
		return 0
	}
	return time.Duration(w.histogram.Mean() * 1000 * float64(w.waited) / float64(w.served))
}

// Quantile returns the waiting time in milliseconds that percent % of all requests do not exceed.
func (w *Waits) Quantile(percent int64) float64 {
	rank := (w.served*percent + 99) / 100 // rank of the request whose waiting time Quantile returns
	rank -= w.served - w.waited           // requests that did not wait have the lowest ranks
	if rank <= 0 {
		return 0
	}
	// The histogram computes a rank from a percentage, and processors round differently. A percentage in the
	// middle of the wanted rank gives the same rank on every processor.
	return float64(w.histogram.ValueAtQuantile(100*(float64(rank)-0.25)/float64(w.waited))) / 1000
}

const seriesPoints = 240 // more than a chart shows

// Recorder collects the points of a Series.
type Recorder struct {
	Series Series
	Step   int64 // nanoseconds between two points

	last    Counts
	held    int64 // sum of Levels.Held over the points since the warm-up
	samples int64
}

// Counts has quantities that only grow. A point of the series shows the growth of Counts over one step.
type Counts struct{ Offered, Admitted, Central, RoundTrips int64 }

func (c Counts) minus(o Counts) Counts {
	return Counts{c.Offered - o.Offered, c.Admitted - o.Admitted, c.Central - o.Central,
		c.RoundTrips - o.RoundTrips}
}

// Levels has quantities that rise and fall. A point of the series shows the value of Levels.
type Levels struct {
	Level, Ledger int64 // level and ledger of the most popular key's bucket
	Held          int64 // tokens in all pools
	Running       int   // number of processes
}

// NewRecorder returns a Recorder for a run of length duration.
func NewRecorder(duration time.Duration) Recorder {
	step := max(1, int64(duration)/seriesPoints)
	return Recorder{Step: step, Series: Series{StepS: float64(step) / 1e9}}
}

// Add adds a point to the Series.
func (r *Recorder) Add(now Counts, levels Levels) {
	r.held += levels.Held
	r.samples++
	s := &r.Series
	add := func(to *[]float64, x int64, of float64) { *to = append(*to, float64(x)/of) }
	d := now.minus(r.last)
	add(&s.Offered, d.Offered, s.StepS)
	add(&s.Admitted, d.Admitted, s.StepS)
	add(&s.Central, d.Central, s.StepS)
	add(&s.RoundTrips, d.RoundTrips, s.StepS)
	add(&s.Level, levels.Level, 1)
	add(&s.Ledger, levels.Ledger, 1)
	add(&s.Held, levels.Held, 1)
	add(&s.Running, int64(levels.Running), 1)
	r.last = now
}

// Warm ends the warm-up: counts restart from 0. was has the counts at the end of the warm-up.
func (r *Recorder) Warm(was Counts) {
	r.held, r.samples, r.last = 0, 0, r.last.minus(was)
}

// Stranded returns the mean number of tokens in all pools since the warm-up.
func (r *Recorder) Stranded() float64 { return Part(r.held, r.samples, 0) }

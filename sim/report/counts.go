package report

import (
	"cmp"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Tally counts the tokens that one algorithm decided on since the warm-up. See Figures for what
// false rejects are, and swapped requests.
type Tally struct {
	Admitted     int64
	ByProcess    []int64 // of Admitted: those of the most popular key
	Swapped      int64
	FalseRejects int64

	// credit is, of each key, what was admitted although the central bucket denied it, as far as it
	// has not been swapped yet.
	credit []int64
}

// NewTally has counted nothing.
func NewTally(processes, keys int) Tally {
	return Tally{ByProcess: make([]int64, processes), credit: make([]int64, keys)}
}

// Reset forgets everything, at the end of the warm-up.
func (t *Tally) Reset() {
	clear(t.ByProcess)
	clear(t.credit)
	*t = Tally{ByProcess: t.ByProcess, credit: t.credit}
}

// Decided books a decision on n tokens of a key; central is what one central bucket would have
// said.
func (t *Tally) Decided(process, key int32, n int64, central, ok bool) {
	switch {
	case ok:
		t.Admitted += n
		if key == 0 {
			t.ByProcess[process] += n
		}
		if !central {
			t.credit[key] += n
		}
	case central:
		swapped := min(t.credit[key], n)
		t.credit[key] -= swapped
		t.Swapped += swapped
		t.FalseRejects += n - swapped
	}
}

// Waits collects how long admitted requests waited, from asking to the answer.
type Waits struct {
	histogram *hdrhistogram.Histogram // microseconds; those who did not wait are not in it
	served    int64
	waited    int64 // of them: those in the histogram
}

// NewWaits takes waits up to longest, to three digits.
func NewWaits(longest time.Duration) Waits {
	return Waits{histogram: hdrhistogram.New(1, max(longest.Microseconds(), 2), 3)}
}

// Add books one request that waited so many nanoseconds; 0 for one that did not wait.
func (w *Waits) Add(wait int64) {
	w.served++
	if wait > 0 {
		w.waited++
		_ = w.histogram.RecordValue(min(wait/1000, w.histogram.HighestTrackableValue()))
	}
}

// Reset forgets everything.
func (w *Waits) Reset() {
	w.served, w.waited = 0, 0
	w.histogram.Reset()
}

// Mean is that of all requests, those who did not wait included.
func (w *Waits) Mean() time.Duration {
	if w.served == 0 {
		return 0
	}
	return time.Duration(w.histogram.Mean() * 1000 * float64(w.waited) / float64(w.served))
}

// Quantile is the wait, in milliseconds, that percent of all requests do not exceed.
func (w *Waits) Quantile(percent int64) float64 {
	rank := (w.served*percent + 99) / 100 // of the request whose wait it is
	rank -= w.served - w.waited           // those who did not wait come first
	if rank <= 0 {
		return 0
	}
	// The histogram computes the rank from a percentage, with a product and a sum that some
	// processors round otherwise. A percentage in the middle of the rank gives the same rank
	// everywhere.
	return float64(w.histogram.ValueAtQuantile(100*(float64(rank)-0.25)/float64(w.waited))) / 1000
}

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

// Fairness compares what each process was admitted with its max-min share. Who asks for less than
// its part by weight has that as its share; the others divide the rest by weight.
type fairness struct {
	Shares      []float64
	Jain, Worst float64
}

// FairnessOf judges the processes that asked for anything. The shares add up to what was admitted.
func FairnessOf(offered, admitted []int64, weights []int64) fairness {
	f := fairness{Shares: maxMin(offered, weights, sum(admitted)), Jain: 1, Worst: 1}
	total, squares, n := 0.0, 0.0, 0
	for i, share := range f.Shares {
		if share <= 0 {
			continue
		}
		x := float64(admitted[i]) / share
		f.Worst = min(f.Worst, x)
		total += x
		squares += float64(x * x)
		n++
	}
	if squares > 0 {
		f.Jain = float64(total*total) / float64(float64(n)*squares)
	}
	return f
}

// maxMin divides total by weight. Nobody gets more than it asked for.
func maxMin(asked, weights []int64, total int64) []float64 {
	shares := make([]float64, len(asked))
	order := make([]int, 0, len(asked))
	weight := int64(0)
	for i := range asked {
		if asked[i] > 0 {
			order = append(order, i)
			weight += weights[i]
		}
	}
	// Who asked for least for its weight comes first. Ties go by index, so that the order is the
	// same on every machine.
	slices.SortFunc(order, func(a, b int) int {
		x, y := float64(asked[a])/float64(weights[a]), float64(asked[b])/float64(weights[b])
		return cmp.Or(cmp.Compare(x, y), a-b)
	})
	left := float64(total)
	for _, i := range order {
		shares[i] = min(float64(asked[i]), float64(left*float64(weights[i]))/float64(weight))
		left -= shares[i]
		weight -= weights[i]
	}
	return shares
}

func sum(xs []int64) (n int64) {
	for _, x := range xs {
		n += x
	}
	return n
}

package report

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

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

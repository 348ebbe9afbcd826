package stamps

import "time"

// AddOffered counts n requests as offered, admitted or not. Like every counter here it is in shared
// memory, so the count outlives the process.
func (f *File) AddOffered(n int64) { f.head.offered.Add(n) }

// Offered returns the sum of AddOffered over all processes.
func (f *File) Offered() int64 { return f.head.offered.Load() }

// AddRoundTrips counts n round trips to the store.
func (f *File) AddRoundTrips(n int64) { f.head.trips.Add(n) }

// RoundTrips returns the sum of AddRoundTrips over all processes.
func (f *File) RoundTrips() int64 { return f.head.trips.Load() }

// Observe counts one decision that took d; a negative d counts as 0. Where d is a difference of two stamps,
// subtract Stamper.Slack, which is in there to make the span certain and is not part of the decision.
func (f *File) Observe(d time.Duration) { f.head.latency[bucketOf(d)].Add(1) }

// Latency returns a copy of the histogram of Observe over all processes.
func (f *File) Latency() *Histogram {
	h := new(Histogram)
	for i := range h.counts {
		h.counts[i] = f.head.latency[i].Load()
	}
	return h
}

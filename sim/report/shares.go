package report

import (
	"cmp"
	"slices"
)

// Fairness compares the admissions of each process with its max-min share. A process that requests less than
// its fraction by weight has its demand as its share. Other processes divide the remaining tokens by weight.
type Fairness struct{ Jain, Worst float64 }

// Judge compares admissions with shares. Judge ignores processes with a share of 0, which requested nothing.
func Judge(admitted []int64, shares []float64) Fairness {
	f := Fairness{Jain: 1, Worst: 1}
	total, squares, n := 0.0, 0.0, 0
	for i, share := range shares {
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

// maxMin divides total by weight, and gives no process more than its demand.
func maxMin(asked []int64, weights []float64, total float64) []float64 {
	shares := make([]float64, len(asked))
	order := make([]int, 0, len(asked))
	for i := range asked {
		if asked[i] > 0 && weights[i] > 0 {
			order = append(order, i)
		}
	}
	// Sort processes by demand divided by weight, and ties by index.
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(float64(asked[a])/weights[a], float64(asked[b])/weights[b]), a-b)
	})
	// Add up the weights from the end: subtraction would lose small weights to rounding.
	rest := make([]float64, len(order)+1)
	for k := len(order) - 1; k >= 0; k-- {
		rest[k] = rest[k+1] + weights[order[k]]
	}
	left := total
	for k, i := range order {
		shares[i] = min(float64(asked[i]), float64(left*weights[i])/rest[k])
		left -= shares[i]
	}
	return shares
}

func sum(xs []int64) (n int64) {
	for _, x := range xs {
		n += x
	}
	return n
}

// Spans divides a run into spans. A span ends at the first start or stop of a process after a point of the
// Series, and at a point by which spanShare tokens per running process were admitted. The processes that ran
// and requested tokens in a span share its admissions. A process that joins late, or requests nothing for a
// while, gets no share in the other spans.
//
// A point of the Series ends at most two spans. In a span with several starts and stops, the weight of a
// process counts for the fraction of the span in which the process ran.
type Spans struct {
	weights []int64
	since   []int64 // start time of each process; -1 while it does not run
	ran     []int64 // nanoseconds that each process ran in the current span, before since
	began   int64   // start of the current span
	asked   []int64 // tokens that each process had requested up to began
	cut     bool    // a span has ended since the last point
	mixed   bool    // a process has started or stopped in the current span
	shares  []spanShares
}

type spanShares struct { // the spans' totals for one algorithm
	admitted int64 // tokens admitted before the current span
	left     float64
	shares   []float64
}

// Count has the number of tokens that each process has requested, and that each algorithm has admitted.
type Count struct{ Asked, Admitted []int64 }

// NewSpans returns Spans for processes with the given weights, of which none runs yet.
func NewSpans(weights []int64, algorithms int) Spans {
	n := len(weights)
	s := Spans{
		weights: weights, since: make([]int64, n), ran: make([]int64, n), asked: make([]int64, n),
		shares: make([]spanShares, algorithms),
	}
	for i := range s.since {
		s.since[i] = -1
	}
	for k := range s.shares {
		s.shares[k].shares = make([]float64, n)
	}
	return s
}

// Runs records that a process starts or stops at a time in nanoseconds. Runs calls the function count only if
// a span ends.
func (s *Spans) Runs(process int32, yes bool, now int64, count func() Count) {
	if (s.since[process] >= 0) == yes {
		return
	}
	switch {
	case now == s.began:
	case s.cut:
		s.mixed = true
	default:
		s.End(now, count())
		s.cut = true
	}
	if yes {
		s.since[process] = now
		return
	}
	s.ran[process] += now - s.since[process]
	s.since[process] = -1
}

// spanShare is the number of tokens per running process that the first algorithm admits before a span ends.
// In a shorter span, chance would decide which processes request tokens.
const spanShare = 30

// Point records a point of the Series.
func (s *Spans) Point(now int64, count func() Count) {
	running := int64(0)
	for _, since := range s.since {
		if since >= 0 {
			running++
		}
	}
	if c := count(); s.mixed || c.Admitted[0]-s.shares[0].admitted >= spanShare*running {
		s.End(now, c)
	}
	s.cut = false
}

// End ends a span, and divides its admissions. Admissions beyond the span's demand count in the next span.
func (s *Spans) End(now int64, c Count) {
	if now == s.began {
		return
	}
	span := float64(now - s.began)
	asked, weights := make([]int64, len(s.weights)), make([]float64, len(s.weights))
	for i := range weights {
		if s.since[i] >= 0 {
			s.ran[i] += now - s.since[i]
			s.since[i] = now
		}
		asked[i], weights[i] = c.Asked[i]-s.asked[i], float64(float64(s.weights[i])*(float64(s.ran[i])/span))
	}
	for k := range s.shares {
		x := &s.shares[k]
		x.left += float64(c.Admitted[k] - x.admitted)
		x.admitted = c.Admitted[k]
		for i, share := range maxMin(asked, weights, x.left) {
			x.shares[i] += share
			x.left -= share
		}
		x.left = max(0, x.left)
	}
	s.begin(now)
	copy(s.asked, c.Asked)
}

// Reset clears all counts at the end of the warm-up. Running processes keep running.
func (s *Spans) Reset(now int64) {
	for i := range s.since {
		if s.since[i] >= 0 {
			s.since[i] = now
		}
	}
	clear(s.asked)
	for k := range s.shares {
		x := &s.shares[k]
		clear(x.shares)
		*x = spanShares{shares: x.shares}
	}
	s.begin(now)
}

func (s *Spans) begin(now int64) {
	s.began, s.mixed = now, false
	clear(s.ran)
}

// Shares returns the processes' shares of one algorithm's admissions in the spans that have ended.
func (s *Spans) Shares(algorithm int) []float64 { return s.shares[algorithm].shares }

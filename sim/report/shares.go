package report

import (
	"cmp"
	"slices"
)

// Fairness compares the admissions of each process with its max-min share. A process that asks for less
// than its part by weight has its demand as its share; the others divide the rest by weight.
type Fairness struct{ Jain, Worst float64 }

// FairnessOf judges processes that all ran from beginning to end, as Judge does.
func FairnessOf(offered, admitted []int64, weights []int64) Fairness {
	by := make([]float64, len(weights))
	for i, w := range weights {
		by[i] = float64(w)
	}
	return Judge(admitted, maxMin(offered, by, float64(sum(admitted))))
}

// Judge compares admissions with shares. A process without a share asked for nothing and is left out.
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

// maxMin divides total by weight. No process gets more than it asked for.
func maxMin(asked []int64, weights []float64, total float64) []float64 {
	shares := make([]float64, len(asked))
	order := make([]int, 0, len(asked))
	for i := range asked {
		if asked[i] > 0 && weights[i] > 0 {
			order = append(order, i)
		}
	}
	// The process that asked for least for its weight comes first; ties go by index.
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(float64(asked[a])/weights[a], float64(asked[b])/weights[b]), a-b)
	})
	// The weights are added up from the end: with differences the last of many could miss its own.
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

// Spans divide a run wherever a process starts or ends, and after each process's share was admitted
// many times. In each span the admissions are divided between the processes that ran and asked in it: a
// process that comes late, or does not ask for a while, has no part in the admissions of other spans.
//
// There are two spans for each point of the Series at most. In one that goes over several changes a
// process weighs as much as the part of it that it has run.
type Spans struct {
	weights []int64
	since   []int64 // of each process: when it began to run; -1 while it does not
	ran     []int64 // nanoseconds of this span, before since
	began   int64   // of this span
	asked   []int64 // by each process, until then
	cut     bool    // since the last point a span has ended
	mixed   bool    // in this span a process has come or gone
	shares  []spanShares
}

type spanShares struct { // of one algorithm
	admitted int64 // until this span
	left     float64
	shares   []float64
}

// Count holds the tokens so far: those that each process has asked for, and those that each algorithm
// has admitted.
type Count struct{ Asked, Admitted []int64 }

// NewSpans returns Spans of processes with these weights, none of which runs yet.
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

// Runs says that a process begins to run at a time in nanoseconds, or ends. count is not asked
// where no span ends.
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

// spanShare is how many tokens the first algorithm admits for each process that runs before a span ends. In a
// span of a few requests, only processes that ask often would seem to ask for more than their part.
const spanShare = 30

// Point is for each point of the Series.
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

// End ends a span, and divides what was admitted in it. Admissions beyond the demand of the span count
// in the next.
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

// Reset forgets all counts at the end of the warm-up, but not which processes run.
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

// Shares are those of one algorithm in the spans that have ended.
func (s *Spans) Shares(algorithm int) []float64 { return s.shares[algorithm].shares }

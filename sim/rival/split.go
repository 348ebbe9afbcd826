package rival

import "fmt"

// staticSplit gives each process a token bucket of its own: its weight's part of R and of Burst, but a burst of at least
// one token. It asks nobody. The parts are exact and add up to the limit for the processes of the start, unless a burst
// had to be raised to 1; a process that comes later has a part of the same size, which nobody gives up.
type staticSplit struct {
	rates   [][]rate // of each process that has a weight
	plain   []rate   // of every other
	buckets pairs[debt]
}

func newStaticSplit(f Fleet, _ string) (Algorithm, error) {
	var total int64
	for p := range f.Processes {
		total += weight(f, p)
	}
	byWeight := map[int64][]rate{}
	ratesFor := func(w int64) (rates []rate, err error) {
		if rates, ok := byWeight[w]; ok {
			return rates, nil
		}
		for _, l := range f.Limits {
			r, err := newRate(l, w, total)
			if err != nil {
				return nil, err
			}
			rates = append(rates, r)
		}
		byWeight[w] = rates
		return rates, nil
	}
	plain, err := ratesFor(1)
	if err != nil {
		return nil, err
	}
	s := &staticSplit{plain: plain, buckets: newPairs[debt]()}
	for p, w := range f.Weights {
		rates, err := ratesFor(w)
		if err != nil {
			return nil, fmt.Errorf("process %d: %w", p, err)
		}
		s.rates = append(s.rates, rates)
	}
	return s, nil
}

func weight(f Fleet, p int) int64 {
	if p < len(f.Weights) {
		return f.Weights[p]
	}
	return 1
}

func (s *staticSplit) Decide(now int64, p, key int, n int64) bool {
	rates := s.plain
	if p < len(s.rates) {
		rates = s.rates[p]
	}
	d := s.buckets.of(p, key)
	d.settle(rates, now)
	if !d.hasRoom(rates, n) {
		return false
	}
	d.take(rates, n)
	return true
}

// RoundTrips is 0: nobody is asked.
func (s *staticSplit) RoundTrips() int64 { return 0 }

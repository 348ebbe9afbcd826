package rival

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
)

// pairs holds what processes keep of keys. Only pairs that have met take memory: most processes of
// a large fleet never see most keys.
type pairs[T any] map[[2]int]*T

// of is what p keeps of a key, fresh at first.
func (ps pairs[T]) of(p, key int, fresh T) *T {
	x := ps[[2]int{p, key}]
	if x == nil {
		x = new(T)
		*x = fresh // not &fresh, which would take memory in every call
		ps[[2]int{p, key}] = x
	}
	return x
}

// staticSplit gives each process a token bucket of its own: its weight's part of R and of Burst,
// but a burst of at least one token. It asks nobody. The parts are exact and add up to the limit
// for the processes of the start, unless a burst had to be raised to 1. A process that comes later
// has a part of the same size, which nobody gives up.
type staticSplit struct {
	calls
	parts   [][]rate // of each process that has a weight
	plain   []rate   // of every other
	buckets pairs[Central]
}

func newStaticSplit(f Fleet, _ string) (_ Algorithm, err error) {
	total := int64(f.Processes)
	for p, w := range f.Weights {
		if p < f.Processes {
			total += w - 1
		}
	}
	s := &staticSplit{buckets: pairs[Central]{}}
	if s.plain, err = ratesOf(f.Limits, 1, total); err != nil {
		return nil, err
	}
	byWeight := map[int64][]rate{1: s.plain}
	for p, w := range f.Weights {
		if byWeight[w] == nil {
			if byWeight[w], err = ratesOf(f.Limits, w, total); err != nil {
				return nil, fmt.Errorf("process %d: %w", p, err)
			}
		}
		s.parts = append(s.parts, byWeight[w])
	}
	return s, nil
}

func (s *staticSplit) Decide(now int64, p, key int, n int64) bool {
	rates := s.plain
	if p < len(s.parts) {
		rates = s.parts[p]
	}
	return s.buckets.of(p, key, Central{rates: rates}).Take(now, n)
}

// localBatches is leasing without a ledger: a process that runs out draws a batch from the central
// bucket and spends it whenever it likes. Nobody remembers what is out there, so the bucket refills
// behind it: N processes that each hold all but one token of a batch admit Burst + N*(batch-1) at
// one moment.
//
// Where the bucket has less than a batch it gives what it has, if that is enough for the request.
// If not, nothing is drawn, and the next request asks again.
type localBatches struct {
	calls
	batch   int64
	burst   int64 // what no request may exceed, in tokens
	buckets []Central
	stocks  pairs[int64]
}

func newLocalBatches(f Fleet, argument string) (Algorithm, error) {
	fresh, err := NewCentral(f.Limits)
	if err != nil {
		return nil, err
	}
	l := &localBatches{buckets: slices.Repeat([]Central{fresh}, f.Keys), stocks: pairs[int64]{}}
	l.burst = slices.MinFunc(fresh.rates, func(a, b rate) int { return cmp.Compare(a.burst, b.burst) }).burst
	if argument == "" {
		l.batch = defaultBatch(f)
		return l, nil
	}
	if l.batch, err = strconv.ParseInt(argument, 10, 64); err != nil || l.batch < 1 {
		return nil, fmt.Errorf("%w: the batch is %q tokens, must be 1 or more", ErrArgument, argument)
	}
	return l, nil
}

// defaultBatch is what a process would use in 100 ms if all had the same part of the tightest rate,
// rounded down, but at least 1.
func defaultBatch(f Fleet) int64 {
	batch := int64(math.MaxInt64)
	for _, l := range f.Limits {
		const span = 100_000_000 // nanoseconds
		tokens := times(big.NewRat(l.Tokens, int64(l.Per)), big.NewRat(span, int64(f.Processes)))
		if whole := new(big.Int).Div(tokens.Num(), tokens.Denom()); whole.IsInt64() {
			batch = min(batch, whole.Int64())
		}
	}
	return max(batch, 1)
}

func (l *localBatches) Decide(now int64, p, key int, n int64) bool {
	stock := l.stocks.of(p, key, 0)
	if n > l.burst {
		return false
	}
	if *stock < n {
		l.made++
		*stock += l.buckets[key].draw(now, n-*stock, l.batch)
	}
	if *stock < n {
		return false
	}
	*stock -= n
	return true
}

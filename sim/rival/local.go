package rival

import (
	"fmt"
	"math"
	"math/big"
	"strconv"

	"github.com/yuzhi-go/yuzhi/lease"
)

// pairs holds what processes keep of keys. Only pairs that have met take memory: most processes of
// a large fleet never see most keys.
type pairs[T any] map[pair]*T

type pair struct{ p, key int }

// of is what p keeps of a key, zero at first.
func (ps pairs[T]) of(p, key int) *T {
	x := ps[pair{p, key}]
	if x == nil {
		x = new(T)
		ps[pair{p, key}] = x
	}
	return x
}

// staticSplit gives each process a token bucket of its own: its weight's part of R and of Burst,
// but a burst of at least one token. It asks nobody. The parts are exact and add up to the limit
// for the processes of the start, unless a burst had to be raised to 1. A process that comes later
// has a part of the same size, which nobody gives up.
type staticSplit struct {
	calls
	rates   [][]rate // of each process that has a weight
	plain   []rate   // of every other
	buckets pairs[debt]
}

func newStaticSplit(f Fleet, _ string, _ clock) (Algorithm, error) {
	total := int64(f.Processes)
	for p, w := range f.Weights {
		if p < f.Processes {
			total += w - 1
		}
	}
	plain, err := partsOf(f.Limits, 1, total)
	if err != nil {
		return nil, err
	}
	s := &staticSplit{plain: plain, buckets: pairs[debt]{}}
	byWeight := map[int64][]rate{1: plain}
	for p, w := range f.Weights {
		if byWeight[w] == nil {
			if byWeight[w], err = partsOf(f.Limits, w, total); err != nil {
				return nil, fmt.Errorf("process %d: %w", p, err)
			}
		}
		s.rates = append(s.rates, byWeight[w])
	}
	return s, nil
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
	burst   int64
	buckets []Central
	stocks  pairs[int64]
}

// defaultBatch is what a process would use in 100 ms if all had the same part of the tightest rate.
const defaultBatch = 100_000 // microseconds

func newLocalBatches(f Fleet, argument string, _ clock) (Algorithm, error) {
	fresh, err := NewCentral(f.Limits)
	if err != nil {
		return nil, err
	}
	l := &localBatches{burst: fresh.burst(), buckets: make([]Central, f.Keys), stocks: pairs[int64]{}}
	for k := range l.buckets {
		l.buckets[k] = fresh
	}
	if argument == "" {
		l.batch = batchOf(f.Limits, f.Processes)
		return l, nil
	}
	if l.batch, err = strconv.ParseInt(argument, 10, 64); err != nil || l.batch < 1 {
		return nil, fmt.Errorf("%w: the batch is %q tokens, must be 1 or more", ErrArgument, argument)
	}
	return l, nil
}

// batchOf is floor(R * 100 ms / processes) of the least R, at least 1.
func batchOf(limits []lease.Limit, processes int) int64 {
	batch := int64(math.MaxInt64)
	for _, l := range limits {
		tokens := new(big.Int).Mul(big.NewInt(l.Tokens), big.NewInt(defaultBatch*1000))
		tokens.Div(tokens, new(big.Int).Mul(big.NewInt(int64(l.Per)), big.NewInt(int64(processes))))
		if tokens.IsInt64() {
			batch = min(batch, tokens.Int64())
		}
	}
	return max(batch, 1)
}

func (l *localBatches) Decide(now int64, p, key int, n int64) bool {
	stock := l.stocks.of(p, key)
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

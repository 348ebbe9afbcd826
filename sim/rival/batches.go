package rival

import (
	"fmt"
	"math"
	"math/big"
	"strconv"

	"github.com/yuzhi-go/yuzhi/lease"
)

// localBatches is leasing without a ledger: a process that runs out draws a batch from the central bucket and spends it
// whenever it likes. Nobody remembers what is out there, so the bucket refills behind it: N processes that each hold all
// but one token of a batch admit Burst + N*(batch-1) at one moment.
//
// Where the bucket has less than a batch it gives what it has, if that is enough for the request; if not, nothing is
// drawn, and the next request asks again.
type localBatches struct {
	calls
	batch   int64
	burst   int64
	buckets []Central
	stocks  pairs[int64]
}

// defaultBatch is what a process would use in 100 ms if all had the same part of the tightest limit's rate.
const defaultBatch = 100_000 // microseconds

func newLocalBatches(f Fleet, argument string) (Algorithm, error) {
	fresh, err := NewCentral(f.Limits)
	if err != nil {
		return nil, err
	}
	l := &localBatches{burst: smallestBurst(fresh.rates), buckets: make([]Central, f.Keys), stocks: newPairs[int64]()}
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

// draw takes want tokens, or what there is, but nothing if that is less than need.
func (c *Central) draw(now, need, want int64) int64 {
	c.debt.settle(c.rates, now)
	n := min(max(need, want), c.debt.level(c.rates))
	if n < need {
		return 0
	}
	c.debt.take(c.rates, n)
	return n
}

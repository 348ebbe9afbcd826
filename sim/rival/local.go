package rival

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"slices"
)

// pairs has the state of each process for each key. Only pairs with a request take memory: most processes of
// a large fleet never use most keys.
type pairs[T any] map[[2]int]*T

// of returns the state of p for a key; a new pair starts as a copy of fresh.
func (ps pairs[T]) of(p, key int, fresh T) *T {
	x := ps[[2]int{p, key}]
	if x == nil {
		x = new(T)
		*x = fresh // &fresh would allocate in every call
		ps[[2]int{p, key}] = x
	}
	return x
}

// staticSplit gives each process a token bucket of its own. The bucket has exactly the process's weight's
// fraction of R and of Burst, but a burst of at least one token. The fractions of the initial processes add
// up to the limit. A process that joins later gets a fraction of the same size in addition.
type staticSplit struct {
	calls
	weights []int64          // weights of the first processes; the others have 1
	parts   map[int64][]rate // rates of a process by its weight
	buckets pairs[Central]
}

func newStaticSplit(f Fleet) (_ Algorithm, err error) {
	total := int64(f.Processes)
	for p, w := range f.Weights {
		if p < f.Processes {
			total += w - 1
		}
	}
	s := &staticSplit{weights: f.Weights, parts: map[int64][]rate{}, buckets: pairs[Central]{}}
	for _, w := range append([]int64{1}, f.Weights...) {
		if s.parts[w] == nil {
			if s.parts[w], err = ratesOf(f.Limits, w, total); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

func (s *staticSplit) Decide(now int64, p, key int, n int64) bool {
	weight := int64(1)
	if p < len(s.weights) {
		weight = s.weights[p]
	}
	return s.buckets.of(p, key, centralOf(s.parts[weight])).Take(now, n)
}

// batches leases tokens of a central bucket without a ledger. A process that runs out of tokens draws a batch,
// or all tokens of a bucket that has less than a batch, if they suffice for the request. A process spends its
// tokens at any time, and the bucket refills meanwhile: N processes that each hold all but one token of a batch
// admit Burst + N*(batch-1) at one time.
type batches struct {
	calls
	batch   int64
	burst   int64     // largest request, in tokens
	buckets []Central // bucket of each key
	held    pairs[int64]
}

func newLocalBatches(f Fleet) (Algorithm, error) {
	central, err := NewCentral(f.Limits)
	if err != nil {
		return nil, err
	}
	smallest := slices.MinFunc(central.rates, func(a, b rate) int { return cmp.Compare(a.burst, b.burst) })
	return &batches{batch: batchOf(f), burst: smallest.burst, buckets: slices.Repeat([]Central{central}, f.Keys),
		held: pairs[int64]{}}, nil
}

func (b *batches) Decide(now int64, p, key int, n int64) bool {
	if n <= 0 || n > b.burst {
		return n == 0
	}
	held := b.held.of(p, key, 0)
	if *held < n {
		b.made++
		*held += b.buckets[key].draw(now, n-*held, b.batch)
	}
	if *held < n {
		return false
	}
	*held -= n
	return true
}

// batchOf returns the number of tokens that the tightest rate adds in 100 ms, divided by the number of
// processes and rounded down, but at least 1.
func batchOf(f Fleet) int64 {
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

// settleAfterwards lets every process admit by its own view of the bucket. Once per period, each process at a
// time of its own (p*period/N) reports its admissions and gets the global state. The bucket subtracts all
// reported tokens, so its level may fall below 0, and then no process admits until the rate has refilled it.
// Between two settlements a process sees no admissions of the others, so the fleet may admit the bucket's
// tokens up to N times. If R*period is close to Burst, the global bucket is often full while processes spend
// its refill from their views, and the fleet admits less than R in the long run.
//
// A process settles all its keys in one round trip, from its first request on. A new key looks full to the
// process until the first settlement after the key's first request.
type settleAfterwards struct {
	full   Central
	period int64 // microseconds
	first  int   // processes at the start
	stores []store
	views  pairs[view]
	since  map[int]int64 // the time of each process's first request, by process
	now    int64
}

// store is the global state of one key. The simulation computes the settlements of a key at the next request
// for the key, in order of time and then of processes: no request could see their result earlier.
type store struct {
	Central
	due  []settlement // settlements of processes with tokens to report
	past []settlement // settlements of the last two periods
}

// settlement is one time at which a process reports its admissions.
type settlement struct {
	at   int64
	p    int
	from *view
	left Central // the bucket after the settlement
}

func (s settlement) after(o settlement) bool { return s.at > o.at || s.at == o.at && s.p > o.p }

// view is a process's copy of the bucket of one key.
type view struct {
	Central
	settled int64 // time of the last settlement in the view, or of the key's first request at the process
	pending int64 // tokens admitted since the last settlement
}

func newSettleAfterwards(f Fleet) (Algorithm, error) { return settlingEvery(100_000, f) }

// settlingEvery returns a settleAfterwards with a period in microseconds.
func settlingEvery(period int64, f Fleet) (Algorithm, error) {
	full, err := NewCentral(f.Limits)
	if err == nil && full.windowed {
		err = fmt.Errorf("%w: settle_afterwards supports only token buckets", ErrLimit)
	}
	if err != nil {
		return nil, err
	}
	return &settleAfterwards{
		full: full, period: period, first: f.Processes,
		stores: slices.Repeat([]store{{Central: full}}, f.Keys), views: pairs[view]{}, since: map[int]int64{},
	}, nil
}

func (s *settleAfterwards) Decide(now int64, p, key int, n int64) bool {
	s.now = now
	if _, known := s.since[p]; !known {
		s.since[p] = now
	}
	k, last := &s.stores[key], s.last(p, now)
	v := s.views.of(p, key, view{Central: s.full, settled: now})
	k.settle(now, s.period)
	if last > v.settled {
		v.Central, v.settled = s.asOf(k, settlement{at: last, p: p}), last
	}
	if !v.Take(now, n) {
		return false
	}
	if v.pending == 0 {
		k.due = insert(k.due, settlement{at: last + s.period, p: p, from: v}, settlement.after)
	}
	v.pending += n
	return true
}

// settle computes the settlements up to now, and drops settlements that no process can need.
func (k *store) settle(now, period int64) {
	for len(k.due) > 0 && k.due[0].at <= now {
		next := k.due[0]
		k.due = k.due[1:]
		k.refill(next.at)
		k.spend(next.from.pending)
		next.from.pending = 0
		next.left = k.Central
		k.past = append(k.past, next)
	}
	for len(k.past) > 1 && k.past[1].at <= now-period {
		k.past = k.past[1:]
	}
}

// asOf returns the bucket after a given settlement, or a full bucket before the first settlement.
func (s *settleAfterwards) asOf(k *store, then settlement) Central {
	for i := range slices.Backward(k.past) {
		if !k.past[i].after(then) {
			return k.past[i].left
		}
	}
	return s.full
}

// last returns p's latest settlement time up to at, or a period before p's first settlement.
func (s *settleAfterwards) last(p int, at int64) int64 {
	phase := int64(p%s.first) * s.period / int64(s.first)
	if at < phase {
		return phase - s.period
	}
	return at - (at-phase)%s.period
}

// RoundTrips counts every process's settlements since its first request.
func (s *settleAfterwards) RoundTrips() (n int64) {
	for p, since := range s.since {
		n += (s.last(p, s.now) - s.last(p, since)) / s.period
	}
	return n
}

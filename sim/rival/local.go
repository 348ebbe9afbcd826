package rival

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"slices"
)

// pairs has the state of each process for each key, from the first request of the process for the key on.
// Most processes of a large fleet never use most keys.
type pairs[T any] map[[2]int]*T

// of returns the state of process p for a key. A new state is a copy of fresh.
func (ps pairs[T]) of(p, key int, fresh T) *T {
	x := ps[[2]int{p, key}]
	if x == nil {
		x = new(T)
		*x = fresh // &fresh would allocate in every call
		ps[[2]int{p, key}] = x
	}
	return x
}

// staticSplit gives each process a token bucket with a fraction of R and of Burst, but a burst of at least
// one token. The fractions of the initial processes are in proportion to their weights, and add up to the
// limit. A process that joins later gets a fraction in addition.
type staticSplit struct {
	calls
	weights []int64          // weights of the first processes; other processes have 1
	parts   map[int64][]rate // the rates of a process, by the weight of the process
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

// batches leases tokens of a central bucket without a ledger. A process that runs out of tokens draws a
// batch. A bucket with less than a batch gives all its tokens if they suffice for the request, and else none.
// A process may hold its tokens for any time, while the bucket refills: N processes that each hold all but
// one token of a batch admit Burst + N*(batch-1) at once.
type batches struct {
	calls
	batch   int64
	burst   int64        // largest request, in tokens
	buckets []Central    // bucket of each key
	held    pairs[int64] // unspent tokens of each process
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

// batchOf returns the number of tokens that the lowest rate adds in 100 ms, divided by the number of
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

// settleAfterwards lets every process admit by a copy of the bucket, its view. Process p of N settles once
// per period, p*period/N after the period's start: it reports its admissions and gets the state of the
// bucket. The bucket subtracts all reported tokens. Its level may fall below 0, and then no process admits
// until the bucket has refilled. A view lacks the admissions of the other processes since their settlements,
// so the fleet may admit the bucket's tokens up to N times. If R*period is close to Burst, the bucket is
// often full while processes spend its refill from their views, and the fleet admits less than R in the long
// run.
//
// A process settles all its keys in one round trip, from its first request on. A view of a new key is full
// until the first settlement after the key's first request at the process.
type settleAfterwards struct {
	full   Central
	period int64 // microseconds
	first  int   // number of processes at the start
	stores []store
	views  pairs[view]
	since  map[int]int64 // time of the first request of a process
	now    int64         // time of the last request
}

// store has the bucket of one key. A request for the key first makes the settlements that are due, in order
// of time and then of processes.
type store struct {
	Central
	due  []settlement // settlements of processes with tokens to report
	past []settlement // settlements of the last two periods
}

// settlement is one time at which a process reports its admissions.
type settlement struct {
	at   int64
	p    int
	from *view   // the view of process p
	left Central // the bucket after the settlement
}

func (s settlement) after(o settlement) bool { return s.at > o.at || s.at == o.at && s.p > o.p }

// view is a process's copy of the bucket of one key.
type view struct {
	Central
	settled int64 // time of the last settlement that the view includes, or of the view's first request
	pending int64 // tokens admitted since the last settlement
}

func newSettleAfterwards(f Fleet) (Algorithm, error) {
	full, err := NewCentral(f.Limits)
	if err == nil && full.windowed {
		err = fmt.Errorf("%w: settle_afterwards supports only token buckets", ErrLimit)
	}
	if err != nil {
		return nil, err
	}
	return &settleAfterwards{
		full: full, period: 100_000, first: f.Processes,
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

// settle computes the settlements up to now, and drops those that no view can need.
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

// asOf returns the bucket after a settlement, or a full bucket before the first settlement.
func (s *settleAfterwards) asOf(k *store, then settlement) Central {
	for i := range slices.Backward(k.past) {
		if !k.past[i].after(then) {
			return k.past[i].left
		}
	}
	return s.full
}

// last returns the time of p's latest settlement up to at, or that of its first settlement minus a period.
func (s *settleAfterwards) last(p int, at int64) int64 {
	phase := int64(p%s.first) * s.period / int64(s.first)
	if at < phase {
		return phase - s.period
	}
	return at - (at-phase)%s.period
}

// RoundTrips returns the number of settlements of all processes, each since its first request.
func (s *settleAfterwards) RoundTrips() (n int64) {
	for p, since := range s.since {
		n += (s.last(p, s.now) - s.last(p, since)) / s.period
	}
	return n
}

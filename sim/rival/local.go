package rival

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/internal/violation"
	"github.com/yuzhi-go/yuzhi/lease"
)

// pairs holds what processes keep of keys. Only pairs that have met take memory: most processes of
// a large fleet never see most keys.
type pairs[T any] map[[2]int]*T

// of returns what p keeps of a key, fresh at first.
func (ps pairs[T]) of(p, key int, fresh T) *T {
	x := ps[[2]int{p, key}]
	if x == nil {
		x = new(T)
		*x = fresh // not &fresh, which would take memory in every call
		ps[[2]int{p, key}] = x
	}
	return x
}

// staticSplit gives each process a token bucket of its own: exactly its weight's part of R and of
// Burst, but a burst of at least one token. The parts of the processes of the start add up to the
// limit. A process that comes later has a part of the same size, on top.
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
	return s.buckets.of(p, key, centralOf(rates)).Take(now, n)
}

// localBatches is leasing without a ledger: a process that runs out draws a batch from the central
// bucket and spends it whenever it likes, and the bucket refills meanwhile. N processes that each hold
// all but one token of a batch admit Burst + N*(batch-1) at one moment.
//
// A bucket that has less than a batch gives what it has if that is enough for the request, else nothing.
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
	if l.batch, err = batchOf(argument); err != nil {
		return nil, err
	}
	return l, nil
}

// defaultBatch returns the tokens of 100 ms of the tightest rate, divided by the processes and rounded
// down, at least 1.
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

// windowLeases leases batches of one counter per aligned window and limit. What a process has not spent when
// a window ends is void, so nothing outlives it, and a whole quota may be admitted on each side of a
// boundary. Batches that many processes do not spend are missing for the rest of the window.
type windowLeases struct {
	calls
	batch, burst int64
	rates        []rate
	used         []inWindow // of each key and limit, leased in all
	stocks       pairs[stock]
}

// inWindow counts the tokens of one window.
type inWindow struct{ window, n int64 }

// stock counts the tokens that a process holds of a key, for the windows of all limits.
type stock struct {
	windows [lease.LimitsMax]int64
	n       int64
}

func newWindowLeases(f Fleet, argument string) (Algorithm, error) {
	rates, err := ratesOf(f.Limits, 1, 1)
	if err != nil {
		return nil, err
	}
	w := &windowLeases{rates: rates, stocks: pairs[stock]{}, burst: never}
	w.used = make([]inWindow, f.Keys*len(rates))
	for _, r := range rates {
		w.burst = min(w.burst, r.burst)
	}
	if w.batch, err = batchOf(cmp.Or(argument, "20")); err != nil {
		return nil, err
	}
	return w, nil
}

func batchOf(argument string) (int64, error) {
	batch, err := strconv.ParseInt(argument, 10, 64)
	if err != nil || batch < 1 {
		return 0, violation.New(ErrArgument, "", argument, "must be a batch of 1 or more tokens")
	}
	return batch, nil
}

func (w *windowLeases) Decide(now int64, p, key int, n int64) bool {
	used, left := w.used[key*len(w.rates):][:len(w.rates)], int64(never)
	var windows [lease.LimitsMax]int64
	for i := range w.rates {
		r := &w.rates[i]
		windows[i] = exact.FloorDiv(now-r.origin, r.window)
		if used[i].window != windows[i] {
			used[i] = inWindow{window: windows[i]}
		}
		left = min(left, r.burst-used[i].n)
	}
	held := w.stocks.of(p, key, stock{})
	if held.windows != windows {
		*held = stock{windows: windows}
	}
	if n <= 0 || n > w.burst {
		return n == 0
	}
	if lacking := n - held.n; lacking > 0 {
		w.made++
		if left < lacking {
			return false
		}
		got := min(max(lacking, w.batch), left)
		held.n += got
		for i := range used {
			used[i].n += got
		}
	}
	held.n -= n
	return true
}

// settleAfterwards has every process admit by its own view of the bucket. Once in a period, each at a
// moment of its own (p*period/N), it sends what it has admitted since and takes the global state. The
// bucket takes all that is sent, so its level may fall below 0, and then no process admits until the
// rate has paid for it. Between two settlements a process sees nothing of the others' admissions: what
// the bucket holds is admitted up to N times. Where R*period comes near Burst, the bucket stands full
// while its refill is spent elsewhere: less than R is admitted in the long run.
//
// A process settles all its keys in one round trip, from its first request on. A key that is new to it
// looks full until then.
type settleAfterwards struct {
	full   Central
	period int64 // microseconds
	first  int   // processes at the start
	stores []store
	views  pairs[view]
	since  map[int]int64 // the time of each process's first request
	now    int64
}

const (
	defaultPeriod = 100 * time.Millisecond
	maxPeriod     = 24 * time.Hour
)

// store is the global state of one key. Settlements are made when the next request for the key comes,
// in order of time and then of processes: no request could see them earlier.
type store struct {
	Central
	due  []settlement // of processes with something to send
	past []settlement // of the last two periods
}

// settlement is one moment at which a process sends what it has admitted.
type settlement struct {
	at   int64
	p    int
	from *view
	left Central // the bucket afterwards, once it was made
}

func (s settlement) after(o settlement) bool { return s.at > o.at || s.at == o.at && s.p > o.p }

// view is a process's copy of one key: the bucket as it sees it.
type view struct {
	Central
	settled int64 // the last settlement that it knows of, or when the process first saw the key
	pending int64 // tokens to send
}

func newSettleAfterwards(f Fleet, argument string) (Algorithm, error) {
	full, err := NewCentral(f.Limits)
	if err == nil && full.windowed {
		err = fmt.Errorf("%w: settle_afterwards supports only token buckets", ErrLimit)
	}
	if err != nil {
		return nil, err
	}
	period := defaultPeriod
	if argument != "" {
		period, err = time.ParseDuration(argument)
		if err != nil || period < time.Microsecond || period > maxPeriod || period%time.Microsecond != 0 {
			return nil, violation.New(ErrArgument, "", argument,
				"must be a period of whole microseconds with a unit, from 1us to %v", maxPeriod)
		}
	}
	return &settleAfterwards{
		full: full, period: period.Microseconds(), first: f.Processes,
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

// settle makes the settlements that are due by now, and forgets those that no process can ask for.
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

// asOf returns the bucket at a settlement of the last period: full before the first of all.
func (s *settleAfterwards) asOf(k *store, then settlement) Central {
	for i := range slices.Backward(k.past) {
		if !k.past[i].after(then) {
			return k.past[i].left
		}
	}
	return s.full
}

// last is p's last moment of settling until a time; before its first one, it is a period earlier.
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

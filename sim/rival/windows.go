package rival

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"slices"
	"strconv"
)

// windows is an algorithm that keeps, for every key and limit, what was admitted in a window of
// Burst/R. rule says how one limit counts it, and kept is what the store has of it.
type windows[R rule[K], K any] struct {
	calls
	local clock
	rules []R // of each limit
	kept  []K // of every key, limit by limit
}

type rule[K any] interface {
	// hasRoom says whether n more fit at the caller's time local, and drops what has expired by
	// now.
	hasRoom(kept *K, now, local, n int64) bool
	// add notes an admission of n.
	add(kept *K, now, local, n int64)
}

func newWindows[R rule[K], K any](f Fleet, rules []R, local clock) *windows[R, K] {
	return &windows[R, K]{local: local, rules: rules, kept: make([]K, f.Keys*len(rules))}
}

func (w *windows[R, K]) Decide(now int64, p, key int, n int64) bool {
	w.made++
	local := w.local(p, now)
	kept := w.kept[key*len(w.rules):][:len(w.rules)]
	ok := true
	for i, r := range w.rules {
		ok = r.hasRoom(&kept[i], now, local, n) && ok // every limit looks, and drops what is old
	}
	for i, r := range w.rules {
		if ok {
			r.add(&kept[i], now, local, n)
		}
	}
	return ok
}

// ordered is a queue in rising order. Where most are added at the end, adding and dropping take
// constant time.
type ordered[T any] struct {
	all  []T
	head int // all before it are gone
}

func (o *ordered[T]) len() int    { return len(o.all) - o.head }
func (o *ordered[T]) at(i int) *T { return &o.all[o.head+i] } // at(0) is the first
func (o *ordered[T]) clear()      { o.all, o.head = o.all[:0], 0 }

func (o *ordered[T]) drop() {
	o.head++
	if o.len() == 0 {
		o.clear()
	}
}

// insert puts x behind all that are not after it. It moves the others to the front once that costs
// no more than those before them have paid for.
func (o *ordered[T]) insert(x T, after func(a, b T) bool) {
	if len(o.all) == cap(o.all) && o.head > len(o.all)/2 {
		o.all, o.head = o.all[:copy(o.all, o.all[o.head:])], 0
	}
	i := len(o.all)
	for i > o.head && after(o.all[i-1], x) {
		i--
	}
	o.all = slices.Insert(o.all, i, x)
}

// logRule is the sorted set of a usual script: what is older than the window by the caller's clock
// is removed, the rest is counted, and the request is added at the caller's time.
type logRule rate

// admissions are those that nobody has seen leave the window, at most as many as a burst has
// tokens.
type admissions struct {
	sum   int64
	until int64 // true time: one window after the last admission the key is forgotten
	log   ordered[admission]
}

type admission struct{ at, n int64 }

func newSlidingLog(f Fleet, _ string, local clock) (Algorithm, error) {
	rates, err := ratesOf(f.Limits)
	rules := make([]logRule, len(rates))
	for i, r := range rates {
		rules[i] = logRule(r)
	}
	if err != nil {
		return nil, err
	}
	return newWindows[logRule, admissions](f, rules, local), nil
}

func (r logRule) hasRoom(a *admissions, now, local, n int64) bool {
	if now >= a.until {
		a.sum = 0
		a.log.clear()
	}
	for a.log.len() > 0 && a.log.at(0).at <= local-r.window {
		a.sum -= a.log.at(0).n
		a.log.drop()
	}
	return n <= r.burst-a.sum
}

func (r logRule) add(a *admissions, now, local, n int64) {
	a.sum += n
	a.until = now + r.window
	a.log.insert(admission{local, n}, func(a, b admission) bool { return a.at > b.at })
}

// cellRule counts admissions per cell of time, a cell being the window Burst/R divided by a number.
// The cells' bounds are multiples of that length since time 0, exactly.
//
// A fixed window is one cell whose counter alone must stay within the quota. A window that slides
// over C cells counts the current one, C-1 before it, and of the oldest the part that the window
// still covers, as if its admissions had been even:
//
//	estimate = c[k] + ... + c[k-C+1] + c[k-C] * (1 - e/L)        admitted if estimate + n <= Burst
//
// in cell k of length L = Burst/R/C, e after its start. With C = 1 this is Cloudflare's pair of
// counters.
type cellRule struct {
	quota         int64
	history       int64  // cells before the current one that count
	scale, length uint64 // a microsecond is scale, and a cell is length
	keep          int64  // microseconds for which a counter may be needed by a right clock
}

// counters are those in the store, by rising cell. By a right clock there are at most history + 3,
// else as many as the clocks are apart.
type counters struct {
	cells []counter
	next  int64 // true time before which none of them expires
}

type counter struct {
	cell, n int64
	until   int64 // true time
}

const (
	defaultCells = 10
	maxCells     = 10_000
)

func newFixedWindow(f Fleet, _ string, local clock) (Algorithm, error) {
	return newCells(f, 1, 0, local)
}

func newSlidingCells(f Fleet, argument string, local clock) (Algorithm, error) {
	count := int64(defaultCells)
	if argument != "" {
		var err error
		if count, err = strconv.ParseInt(argument, 10, 64); err != nil || count < 1 || count > maxCells {
			return nil, fmt.Errorf("%w: the number of cells is %q, must be 1 to %d", ErrArgument, argument, maxCells)
		}
	}
	return newCells(f, count, count, local)
}

func newCells(f Fleet, count, history int64, local clock) (Algorithm, error) {
	var rules []cellRule
	for _, l := range f.Limits {
		// The length of a cell in microseconds: Burst*Per/(Tokens*count), Per being in nanoseconds.
		length := part(
			new(big.Int).Mul(big.NewInt(l.Capacity()), big.NewInt(int64(l.Per))),
			new(big.Int).Mul(big.NewInt(l.Tokens), big.NewInt(1000)), 1, count)
		bound := ""
		switch {
		case length.Cmp(big.NewRat(1, 1)) < 0:
			bound = "must be at least 1"
		case length.Num().BitLen() > 63 || length.Denom().BitLen() > 63:
			bound = "which cannot be held exactly: both numbers must be below 2^63"
		}
		if bound != "" {
			return nil, fmt.Errorf("%w: Burst/R of the limit %v in %d cells is %v us each, %s",
				ErrLimit, l, count, length, bound)
		}
		rules = append(rules, cellRule{
			quota:   l.Capacity(),
			history: history,
			scale:   length.Denom().Uint64(),
			length:  length.Num().Uint64(),
			keep:    quotientUp(new(big.Int).Mul(length.Num(), big.NewInt(history+1)), length.Denom()),
		})
	}
	return newWindows[cellRule, counters](f, rules, local), nil
}

// cell is the number of the cell that holds a time, and how far into it the time is.
func (r cellRule) cell(at int64) (k int64, into uint64) {
	before := at < 0
	if before {
		at = -at
	}
	// A cell is a microsecond at least, so there are no more cells than microseconds.
	hi, lo := bits.Mul64(uint64(at), r.scale)
	q, into := bits.Div64(hi, lo, r.length)
	switch {
	case !before:
		return int64(q), into
	case into == 0:
		return -int64(q), 0
	default:
		return -int64(q) - 1, r.length - into
	}
}

func (r cellRule) hasRoom(c *counters, now, local, n int64) bool {
	if now >= c.next {
		c.cells = slices.DeleteFunc(c.cells, func(x counter) bool { return now >= x.until })
		c.next = math.MaxInt64
		for _, x := range c.cells {
			c.next = min(c.next, x.until)
		}
	}
	k, into := r.cell(local)
	var sum, oldest int64
	for i := len(c.cells) - 1; i >= 0 && c.cells[i].cell >= k-r.history; i-- {
		switch x := c.cells[i]; {
		case x.cell > k: // of a faster clock
		case x.cell == k || x.cell > k-r.history:
			sum += x.n
		default:
			oldest = x.n
		}
	}
	room := r.quota - sum
	return n <= room && !product(uint64(room-n), r.length).less(product(uint64(oldest), r.length-into))
}

// add may leave next too early, which costs one look.
func (r cellRule) add(c *counters, now, local, n int64) {
	k, _ := r.cell(local)
	until := now + r.keep
	i, found := slices.BinarySearchFunc(c.cells, k, func(x counter, k int64) int { return cmp.Compare(x.cell, k) })
	if found {
		c.cells[i].n += n
		c.cells[i].until = until
		return
	}
	c.cells = slices.Insert(c.cells, i, counter{k, n, until})
	c.next = min(c.next, until)
}

package rival

import (
	"cmp"
	"fmt"
	"math/big"
	"math/bits"
	"slices"

	"github.com/yuzhi-go/yuzhi/internal/exact"
)

// windows is a Remote that keeps perKey windows for every key: one for each limit, or one for all limits.
type windows struct {
	calls
	local  func(p int, now int64) int64
	perKey int
	all    []window // ordered by key, then by limit
}

// window is the state of a key in the store: the admissions of a window, or a central limiter. now is the
// true time, and local the time by which the algorithm goes.
type window interface {
	expire(now, local int64) // drops expired state
	hasRoom(local, n int64) bool
	add(now, local, n int64)
	clone() window
}

// newWindows makes the windows of all keys; window(i) makes window i of a key.
func newWindows(f Fleet, perKey int, window func(i int) window) *windows {
	w := &windows{local: f.Local, perKey: perKey}
	for i := range f.Keys * perKey {
		w.all = append(w.all, window(i%perKey))
	}
	return w
}

func (w *windows) Decide(now int64, p, key int, n int64) bool {
	w.made++
	local := w.local(p, now)
	all := w.all[key*w.perKey:][:w.perKey]
	ok := true
	for _, x := range all {
		x.expire(now, local) // of every window, even if one before has no room
		ok = ok && x.hasRoom(local, n)
	}
	for _, x := range all {
		if ok {
			x.add(now, local, n)
		}
	}
	return ok
}

func (w *windows) Clone() Remote {
	o := *w
	o.all = slices.Clone(w.all)
	for i, x := range o.all {
		o.all[i] = x.clone()
	}
	return &o
}

// admissions works like the sorted set of a usual script, which removes the entries older than the window.
type admissions struct {
	*rate
	sum   int64
	until int64 // true time at which the key expires: one window after the last admission
	log   []admission
}

type admission struct{ at, n int64 }

func newSlidingLog(f Fleet) (Algorithm, error) {
	rates, err := ratesOf(f.Limits, 1, 1)
	if err != nil {
		return nil, err
	}
	return newWindows(f, len(rates), func(i int) window { return &admissions{rate: &rates[i]} }), nil
}

func (a *admissions) expire(now, local int64) {
	for len(a.log) > 0 && (now >= a.until || a.log[0].at <= local-a.window) {
		a.sum -= a.log[0].n
		a.log = a.log[1:]
	}
}

func (a *admissions) hasRoom(_, n int64) bool { return n <= a.burst-a.sum }

func (a *admissions) add(now, local, n int64) {
	a.sum += n
	a.until = now + a.window
	a.log = insert(a.log, admission{local, n}, func(a, b admission) bool { return a.at > b.at })
}

func (a *admissions) clone() window {
	o := *a
	o.log = slices.Clone(a.log)
	return &o
}

// insert puts x into a sorted slice, behind all elements that are not after x. insert searches from the end,
// where most new elements belong.
func insert[T any](all []T, x T, after func(a, b T) bool) []T {
	i := len(all)
	for i > 0 && after(all[i-1], x) {
		i--
	}
	return slices.Insert(all, i, x)
}

// cellRule is the rule of a limit that counts admissions per cell. A window Burst/R has one or more cells of
// equal length. The first cell starts at time 0, or at the start of a calendar's period.
//
// A fixed window is one cell. A sliding window over C cells counts the current cell, the C-1 cells before,
// and the part of cell k-C that the window covers, as if the admissions of cell k-C were evenly spread:
//
//	estimate = c[k] + ... + c[k-C+1] + c[k-C] * (1 - e/L)        admitted if estimate + n <= Burst
//
// The request comes e microseconds after the start of cell k. A cell has L = Burst/R/C microseconds.
type cellRule struct {
	quota         int64
	history       int64  // number of earlier cells that count
	origin        int64  // microseconds from time 0 to the start of a cell
	scale, length uint64 // units of a microsecond, and of a cell
	keep          int64  // microseconds for which the store keeps a counter
}

// counters has the counters of a key in the store. With correct clocks there are at most history + 3
// counters.
type counters struct {
	*cellRule
	cells []counter // ordered by cell
}

type counter struct {
	cell, n int64
	until   int64 // true time at which the counter expires
}

func newFixedWindow(f Fleet) (Algorithm, error) { return newCells(f, 1, 0) }

func newSlidingCells(f Fleet) (Algorithm, error) { return newCells(f, 10, 10) }

func newCells(f Fleet, count, history int64) (Algorithm, error) {
	if err := validLimits(f.Limits); err != nil {
		return nil, err
	}
	var rules []cellRule
	for _, l := range f.Limits {
		// Burst/R/count in microseconds; Per is in nanoseconds.
		length := times(big.NewRat(l.Capacity(), l.Tokens), big.NewRat(int64(l.Per), 1000*count))
		if length.Cmp(big.NewRat(1, 1)) < 0 || length.Num().BitLen() > 63 || length.Denom().BitLen() > 63 {
			return nil, fmt.Errorf("%w: limit %v in %d cells: a cell has %v us, must be at least 1, and both "+
				"numbers below 2^63", ErrLimit, l, count, length)
		}
		rules = append(rules, cellRule{
			quota: l.Capacity(), history: history, origin: l.Offset.Microseconds(), scale: length.Denom().Uint64(),
			length: length.Num().Uint64(),
			keep:   ceiling(times(length, big.NewRat(history+1, 1))),
		})
	}
	return newWindows(f, len(rules), func(i int) window { return &counters{cellRule: &rules[i]} }), nil
}

// cell returns the number of the cell that contains the time at, and the units from the cell's start to at.
func (r *cellRule) cell(at int64) (k int64, into uint64) {
	// A cell lasts at least a microsecond, so the number of a cell fits into an int64 as at does.
	at -= r.origin
	if at >= 0 {
		x := exact.Product(uint64(at), r.scale)
		q, into := bits.Div64(x.Hi, x.Lo, r.length)
		return int64(q), into
	}
	x := exact.Product(uint64(-at), r.scale).Minus(exact.Uint128{Lo: 1})
	q, left := bits.Div64(x.Hi, x.Lo, r.length)
	return -1 - int64(q), r.length - 1 - left
}

func (c *counters) expire(now, _ int64) {
	c.cells = slices.DeleteFunc(c.cells, func(x counter) bool { return now >= x.until })
}

func (c *counters) hasRoom(local, n int64) bool {
	k, into := c.cell(local)
	var sum, oldest int64
	for i := len(c.cells) - 1; i >= 0 && c.cells[i].cell >= k-c.history; i-- {
		switch x := c.cells[i]; {
		case x.cell > k: // made by a caller with a faster clock
		case x.cell == k || x.cell > k-c.history:
			sum += x.n
		default:
			oldest = x.n
		}
	}
	room := c.quota - sum
	return n <= room && !exact.Product(uint64(room-n), c.length).Less(exact.Product(uint64(oldest), c.length-into))
}

func (c *counters) add(now, local, n int64) {
	k, _ := c.cell(local)
	until := now + c.keep
	i, found := slices.BinarySearchFunc(c.cells, k, func(x counter, k int64) int { return cmp.Compare(x.cell, k) })
	if found {
		c.cells[i].n += n
		c.cells[i].until = until
		return
	}
	c.cells = slices.Insert(c.cells, i, counter{k, n, until})
}

func (c *counters) clone() window {
	o := *c
	o.cells = slices.Clone(c.cells)
	return &o
}

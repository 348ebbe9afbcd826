package rival

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"slices"
	"strconv"
)

// cells counts admissions per cell of time, a cell being the window Burst/R divided by a number. The cells' bounds are
// multiples of that length since time 0, exactly. A cell of the caller's clock has a counter in the store, which is
// kept after each admission for as long as a right clock may need it.
//
// A fixed window is one cell whose counter alone must stay within the quota. A window that slides over C cells counts
// the current one, C-1 before it, and of the oldest the part that the window still covers, as if its admissions had
// been even:
//
//	estimate = c[k] + ... + c[k-C+1] + c[k-C] * (1 - e/L)        admitted if estimate + n <= Burst
//
// in cell k of length L = Burst/R/C, e after its start. With C = 1 this is Cloudflare's pair of counters.
type cells struct {
	calls
	local    clock
	shapes   []shape
	counters []counters // of every key and limit
}

// shape is the division of time of one limit: a microsecond is scale, and a cell is length.
type shape struct {
	quota         int64
	history       int64 // cells before the current one that count
	scale, length uint64
	kept          int64 // microseconds
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
	c := &cells{local: local, counters: make([]counters, f.Keys*len(f.Limits))}
	for _, l := range f.Limits {
		// The length of a cell in microseconds: Burst*Per/(Tokens*count), Per being in nanoseconds.
		length := part(
			new(big.Int).Mul(big.NewInt(l.Capacity()), big.NewInt(int64(l.Per))),
			new(big.Int).Mul(big.NewInt(l.Tokens), big.NewInt(1000)), 1, count)
		if length.Cmp(big.NewRat(1, 1)) < 0 {
			return nil, fmt.Errorf("%w: Burst/R of the limit %v in %d cells is %v us each, must be at least 1", ErrFleet, l, count, length)
		}
		if length.Num().BitLen() > 63 || length.Denom().BitLen() > 63 {
			return nil, fmt.Errorf("%w: Burst/R of the limit %v in %d cells is %v us each, which cannot be held exactly: both must be below 2^63", ErrFleet, l, count, length)
		}
		kept := new(big.Int).Mul(length.Num(), big.NewInt(history+1))
		kept.Add(kept, length.Denom()).Sub(kept, big.NewInt(1)).Div(kept, length.Denom())
		c.shapes = append(c.shapes, shape{
			quota:   l.Capacity(),
			history: history,
			scale:   length.Denom().Uint64(),
			length:  length.Num().Uint64(),
			kept:    kept.Int64(),
		})
	}
	return c, nil
}

func (c *cells) Decide(now int64, p, key int, n int64) bool {
	c.made++
	local := c.local(p, now)
	all := c.counters[key*len(c.shapes):][:len(c.shapes)]
	ok := true
	for i, s := range c.shapes {
		all[i].expire(now)
		ok = ok && s.hasRoom(&all[i], local, n)
	}
	if ok {
		for i, s := range c.shapes {
			k, _ := s.cell(local)
			all[i].add(k, n, now+s.kept)
		}
	}
	return ok
}

// cell is the number of the cell that holds a time, and how far into it the time is.
func (s shape) cell(at int64) (k int64, into uint64) {
	// A cell is a microsecond at least, so there are no more cells than microseconds.
	if at >= 0 {
		hi, lo := bits.Mul64(uint64(at), s.scale)
		q, rest := bits.Div64(hi, lo, s.length)
		return int64(q), rest
	}
	hi, lo := bits.Mul64(-uint64(at), s.scale)
	q, rest := bits.Div64(hi, lo, s.length)
	if rest == 0 {
		return -int64(q), 0
	}
	return -int64(q) - 1, s.length - rest
}

func (s shape) hasRoom(c *counters, at, n int64) bool {
	k, into := s.cell(at)
	var sum, oldest int64
	for i := len(c.all) - 1; i >= 0 && c.all[i].cell >= k-s.history; i-- {
		switch cell := c.all[i].cell; {
		case cell > k: // of a faster clock
		case cell == k || cell > k-s.history:
			sum += c.all[i].n
		default:
			oldest = c.all[i].n
		}
	}
	room := s.quota - sum
	if n > room {
		return false
	}
	return !product(uint64(room-n), s.length).less(product(uint64(oldest), s.length-into))
}

// counters are those in the store, by rising cell. By a right clock there are at most history + 3, else as many as
// the clocks are apart.
type counters struct {
	all  []counter
	next int64 // true time when the first of them goes
}

type counter struct {
	cell, n int64
	until   int64 // true time
}

func (c *counters) expire(now int64) {
	if now < c.next {
		return
	}
	c.all = slices.DeleteFunc(c.all, func(x counter) bool { return now >= x.until })
	c.next = math.MaxInt64
	for _, x := range c.all {
		c.next = min(c.next, x.until)
	}
}

// add counts n in a cell whose counter is to be kept until then. next may now be too early, which costs one look.
func (c *counters) add(cell, n, until int64) {
	i := len(c.all)
	for i > 0 && c.all[i-1].cell > cell {
		i--
	}
	if i > 0 && c.all[i-1].cell == cell {
		c.all[i-1].n += n
		c.all[i-1].until = until
		return
	}
	c.all = slices.Insert(c.all, i, counter{cell, n, until})
	c.next = min(c.next, until)
}

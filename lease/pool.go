package lease

import (
	"math"
	"sync/atomic"

	"github.com/yuzhi-go/yuzhi/clock"
)

// The word of a Pool: an epoch in the upper 24 bits and, in the lower 40, the count of tokens plus bias. The
// count may go below 0 by as many failed takes as were under way at once; the bias keeps them from
// borrowing from the epoch.
const (
	countBits = 40
	countBias = 1 << (countBits - 1)
	countMask = 1<<countBits - 1
	epochOne  = 1 << countBits
)

// markEmpty as the mark says that the pool was found empty: a Take then only loads and counts.
const markEmpty = math.MaxInt64

// Pool is the data plane of one key: the tokens that this process holds, spent by any number of goroutines
// without a lock. Take is what the hot path runs.
//
// A Take that succeeds is one load of a line that is hardly ever written (the mark) and one atomic add on the
// word. Of the designs measured on a 2-core x86 VM (ns/op; a bare atomic add is 6.5-8.7), a compare-and-swap
// on the word took 13.3, a load of the word before the add 12-14, and this one 6.1-6.9. A failed take never
// adds its token back: an add that came late would land in the next grant and forge a token.
//
// The mark carries both reasons to leave the fast path, so that one comparison serves: a count below it
// means "low, somebody should prefetch", and markEmpty means "empty, do not even try". It may wrongly say
// "not empty" (the next Take finds out), never for good "empty": who sets it looks at the word once more,
// and who adds tokens clears it after adding.
//
// Everything but Take, TakeN, Held and Missed belongs to the Holding that owns the Pool and is serialised by
// its lock. The zero value is not usable; a Holding initialises it.
type Pool struct {
	mark atomic.Int64
	_    [56]byte
	word atomic.Uint64
	_    [56]byte
	// missed counts the tokens of failed takes. It is the one thing that a denied Take writes.
	missed atomic.Int64
	// late counts tokens taken after the strict deadline: they are gone, and nobody was admitted.
	late atomic.Int64
	// deadline is the Instant from which TakeStrict refuses what the pool holds.
	deadline atomic.Int64
}

func (p *Pool) init() {
	p.word.Store(countBias)
	p.mark.Store(markEmpty)
}

func count(word uint64) int64 { return int64(word&countMask) - countBias }

// Epoch is the report interval that a token was taken in; a token may be put back only within the same one.
type Epoch uint32

func epochOf(word uint64) Epoch { return Epoch(word >> countBits) }

// Take takes one token and reports whether there was one. low is true for the one Take that should start a
// prefetch. No lock, no allocation, no clock. For any number of goroutines.
func (p *Pool) Take() (ok, low bool) {
	mark := p.mark.Load()
	if mark == markEmpty {
		p.missed.Add(1)
		return false, false
	}
	n := count(p.word.Add(^uint64(0)))
	if n >= mark {
		return true, false
	}
	return p.taken(n, 1, mark)
}

// TakeN takes n tokens or none. It differs from Take in using a compare-and-swap, so that a large n never
// takes what it cannot use. n must be at least 1.
func (p *Pool) TakeN(n int64) (ok, low bool) {
	mark := p.mark.Load()
	if mark == markEmpty {
		p.missed.Add(n)
		return false, false
	}
	left, _, ok := p.tryTake(n)
	if !ok {
		p.missed.Add(n)
		if left <= 0 {
			p.foundEmpty()
		}
		return false, false
	}
	if left >= mark {
		return true, false
	}
	return p.taken(left, n, mark)
}

// TakeStrict is TakeN for Policy.StrictExpiry: it reads now after taking, and what was taken past the
// deadline is burnt. The deadline is read before taking: a process that was stopped in between then compares
// with the deadline of the tokens that it took or an earlier one, never with that of a later grant.
func (p *Pool) TakeStrict(n int64, c clock.Clock) (ok, low bool) {
	deadline := p.deadline.Load()
	if n == 1 {
		ok, low = p.Take()
	} else {
		ok, low = p.TakeN(n)
	}
	if ok && int64(c.Now()) >= deadline {
		p.late.Add(n)
		p.missed.Add(n)
		return false, low
	}
	return ok, low
}

// TakeQueued takes n tokens or none for a request that was counted as missed when it began to wait. e is the
// interval in which Holding.PutBack can return them to the pool.
func (p *Pool) TakeQueued(n int64) (e Epoch, ok bool) {
	_, e, ok = p.tryTake(n)
	return e, ok
}

// tryTake takes n tokens or none and counts nothing. left is what remains; e is the epoch they came from.
func (p *Pool) tryTake(n int64) (left int64, e Epoch, ok bool) {
	for {
		w := p.word.Load()
		c := count(w)
		if c < n {
			return max(c, 0), 0, false
		}
		if p.word.CompareAndSwap(w, w-uint64(n)) {
			return c - n, epochOf(w), true
		}
	}
}

// taken is the slow half of a take of n that left the count at left, below mark.
func (p *Pool) taken(left, n, mark int64) (ok, low bool) {
	if left < 0 {
		p.missed.Add(n)
		p.foundEmpty()
		return false, false
	}
	// Disarming by compare-and-swap picks one of the takes that fall below.
	return true, mark > 0 && p.mark.CompareAndSwap(mark, 0)
}

func (p *Pool) foundEmpty() {
	p.mark.Store(markEmpty)
	if count(p.word.Load()) > 0 {
		p.mark.Store(0)
	}
}

// Held is the number of tokens in the pool now. For any number of goroutines.
func (p *Pool) Held() int64 { return max(0, count(p.word.Load())) }

// Missed is the number of tokens that failed takes asked for, so far.
func (p *Pool) Missed() int64 { return p.missed.Load() }

// Epoch is the present report interval.
func (p *Pool) Epoch() Epoch { return epochOf(p.word.Load()) }

// put gives back n tokens that were taken in epoch e; false if a report has been built since: they were
// reported as spent, so now they are refunds.
func (p *Pool) put(n int64, e Epoch) bool {
	for {
		w := p.word.Load()
		if epochOf(w) != e {
			return false
		}
		if p.word.CompareAndSwap(w, w-uint64(count(w))+uint64(max(0, count(w))+n)) {
			p.refresh()
			return true
		}
	}
}

// report starts a new epoch and removes the part of the tokens that giveBack, given the count, says. It
// returns the count before and what was removed.
func (p *Pool) report(giveBack func(held int64) int64) (held, returned int64) {
	for {
		w := p.word.Load()
		held = max(0, count(w))
		returned = giveBack(held)
		if p.word.CompareAndSwap(w, w+epochOne-uint64(count(w))+uint64(held-returned)) {
			return held, returned
		}
	}
}

// drain empties the pool, starts a new epoch, and returns what it held.
func (p *Pool) drain() int64 {
	held, _ := p.report(func(held int64) int64 { return held })
	return held
}

// add puts n new tokens into the pool.
func (p *Pool) add(n int64) {
	for n > 0 {
		w := p.word.Load()
		if p.word.CompareAndSwap(w, w-uint64(count(w))+uint64(max(0, count(w))+n)) {
			p.refresh()
			return
		}
	}
}

func (p *Pool) refresh() {
	if p.mark.Load() == markEmpty {
		p.mark.Store(0)
	}
}

// arm sets the watermark: the first take that leaves fewer than n tokens reports low. It does nothing on an
// empty pool. The pool must hold at least n tokens, or low is reported by the next take.
func (p *Pool) arm(n int64) {
	if m := p.mark.Load(); m != markEmpty {
		p.mark.CompareAndSwap(m, n)
	}
}

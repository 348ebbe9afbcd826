package lease

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/yuzhi-go/yuzhi/clock"
)

// The word of a Pool: a report interval in the upper 24 bits and, in the lower 40, the count of tokens plus bias. The
// count may go below 0 by as many failed takes as were under way at once; the bias keeps them from
// borrowing from the interval.
const (
	countBits   = 40
	countBias   = 1 << (countBits - 1)
	countMask   = 1<<countBits - 1
	intervalOne = 1 << countBits
)

// What the mark says. Up to markMost it is a count: a take that leaves fewer tokens has something to do beside (a
// prefetch is due, or a look at who takes). The rest are the states in which the word is left alone.
const (
	markMost    = MarkStriped - 1
	MarkStriped = math.MaxInt64 - 2 // the stripes serve
	MarkDenied  = math.MaxInt64 - 1 // empty, and so is the bucket: count and deny
	MarkEmpty   = math.MaxInt64     // empty
)

// Pool is the data plane of one key: the tokens that this process holds, spent by any number of goroutines
// without a lock. Take is what the hot path runs.
//
// A Take that succeeds is one load of a line that is hardly ever written (the mark) and one atomic add on the word. A
// failed take never adds its token back: an add that came late would land in the next grant and forge a token. A
// denied Take loads the mark and counts, in a counter of its P's own, without an atomic instruction.
//
// Where several Ps take the same key's tokens all the time, the line of the word goes back and forth between the cores.
// Then the Pool hands out from stripes, one for each P, which fetch from the word in chunks; see pool_stripes.go.
//
// Measured on a 2-core x86 VM, ns per operation of one goroutine / of two that contend, behind a call each:
//
//	bare atomic add                                    7.1 / 10.9
//	compare-and-swap on the word                      13.3
//	load the word, then add                           12-14
//	load the mark, then add (this, uncontended)        8.2 / 12.3
//	a stripe for each P, pinned (this, contended)      9.7 / 4.8
//	a stripe chosen by the address of the stack             / 31
//	denied, counted by the pinned P (this)             6.6
//
// Stripes for every key were tried: one goroutine then pays 9.7 instead of 8.2, and every key costs a line for each P.
// Plain instead of atomic counts in the stripes would be faster still; but then nobody else can take back what a stripe
// holds without stopping its P.
//
// The takes (Take and its parts, TakeN, TakeStrict), Held and Missed are for any number of goroutines; everything else
// belongs to the Holding that owns the Pool and is serialised by its lock. The zero value is not usable; a Holding initialises it.
type Pool struct {
	mark atomic.Int64
	// stripes are set once, before the mark says for the first time that they are used.
	stripes []stripe
	// word is on the mark's line: where that would hurt, the stripes serve.
	word atomic.Uint64
	_    [24]byte

	// missed counts the tokens of failed takes that no stripe counts.
	missed atomic.Int64
	// late counts tokens taken after the strict deadline: they are gone, and nobody was admitted.
	late atomic.Int64
	// deadline is the Instant from which TakeStrict refuses what the pool holds.
	deadline atomic.Int64
	// capacity is the largest n that can ever be granted. A take of more is no demand, so it is not counted.
	capacity atomic.Int64

	// mu guards everything below, and every change of the mark and of what the stripes hold but their takes.
	mu         sync.Mutex
	watermark  int64 // the first take that leaves fewer reports low; 0 for none
	denied     bool
	stripesMax int
	switches   switches
}

// init makes p usable; stripesMax is the number of Ps, or 0 for a pool that does without stripes.
func (p *Pool) init(stripesMax int) {
	p.stripesMax = stripesMax
	p.capacity.Store(math.MaxInt64)
	p.word.Store(countBias)
	p.mark.Store(MarkEmpty)
}

func count(word uint64) int64 { return int64(word&countMask) - countBias }

// Interval is the report interval that a token was taken in; a token may be put back only within the same one.
type Interval uint32

func intervalOf(word uint64) Interval { return Interval(word >> countBits) }

// Taken is what became of a take.
type Taken int8

const (
	Refused Taken = iota // and counted as missed
	Denied               // Refused, and Deny says that there is no more for now
	Took
	TookLow // Took, and this is the one take that should start a prefetch
)

// Ok reports whether the tokens were taken.
func (t Taken) Ok() bool { return t >= Took }

// Take takes one token. No lock, no allocation, no clock. For any number of goroutines.
func (p *Pool) Take() Taken {
	left, mark := p.Begin()
	switch {
	case left >= mark:
		return Took
	case mark == MarkDenied:
		i := Pin()
		p.MissAt(i)
		Unpin(i)
		return Denied
	case mark == MarkStriped:
		i := Pin()
		ok := p.TakeAt(i)
		Unpin(i)
		if ok {
			return Took
		}
	}
	return p.End(left, mark)
}

// Begin, MissAt, TakeAt and End are Take in parts that can be inlined, for the one caller to whom a call more or less
// matters: where left >= mark a token was taken and there is nothing else to do; where the mark is MarkDenied, MissAt
// is all that is left; where it is MarkStriped, a token is taken if TakeAt says so; otherwise End says.
func (p *Pool) Begin() (left, mark int64) {
	mark = p.mark.Load()
	if mark > markMost {
		return -1, mark
	}
	return count(p.word.Add(^uint64(0))), mark
}

// End is a Take that neither the word nor a stripe has served; see Begin.
func (p *Pool) End(left, mark int64) Taken {
	switch {
	case mark == MarkEmpty:
		p.missed.Add(1)
		return Refused
	case left >= 0:
		return p.taken(left)
	}
	return p.takeLocked(1)
}

// TakeN takes n tokens or none. It differs from Take in using a compare-and-swap, so that a large n never
// takes what it cannot use, and in that more than can ever be granted is refused without being counted as missed. n must
// be at least 1.
func (p *Pool) TakeN(n int64) Taken {
	if !p.counts(n) {
		return Refused
	}
	mark := p.mark.Load()
	switch {
	case mark == MarkEmpty:
		p.missed.Add(n)
		return Refused
	case mark == MarkDenied:
		p.missed.Add(n)
		return Denied
	case mark == MarkStriped:
		if p.takeStriped(n) {
			return Took
		}
		return p.takeLocked(n)
	}
	left, ok := p.takeWord(n)
	switch {
	case !ok:
		return p.takeLocked(n)
	case left >= mark:
		return Took
	}
	return p.taken(left)
}

// counts reports whether a refused take of n tokens counts as missed.
func (p *Pool) counts(n int64) bool { return n == 1 || n <= p.capacity.Load() }

// TakeStrict is TakeN for Policy.StrictExpiry: it reads now after taking, and what was taken past the
// deadline is burnt. The deadline is read before taking: a process that was stopped in between then compares
// with the deadline of the tokens that it took or an earlier one, never with that of a later grant.
func (p *Pool) TakeStrict(n int64, c clock.Clock) Taken {
	deadline := p.deadline.Load()
	var t Taken
	if n == 1 {
		t = p.Take()
	} else {
		t = p.TakeN(n)
	}
	if t.Ok() && int64(c.Now()) >= deadline {
		p.late.Add(n)
		p.missed.Add(n)
		return Refused
	}
	return t
}

// TakeQueued takes n tokens or none for a request that was counted as missed when it began to wait. in is the
// interval in which Holding.PutBack can return them to the pool.
func (p *Pool) TakeQueued(n int64) (in Interval, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Everything that changes the interval has the lock.
	if _, ok = p.takeWord(n); !ok {
		p.harvest()
		_, ok = p.takeWord(n)
	}
	p.settle()
	return p.Interval(), ok
}

// takeWord takes n tokens or none from the word and counts nothing. left is what remains there.
func (p *Pool) takeWord(n int64) (left int64, ok bool) {
	for {
		w := p.word.Load()
		c := count(w)
		if c < n {
			return max(c, 0), false
		}
		if p.word.CompareAndSwap(w, w-uint64(n)) {
			return c - n, true
		}
	}
}

// taken is the rest of a take that left the word's count at left, below the mark.
func (p *Pool) taken(left int64) Taken {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := Took
	if p.isLow(left) {
		t = TookLow
	}
	p.note()
	p.settle()
	return t
}

// isLow disarms the watermark where left is below it.
func (p *Pool) isLow(left int64) bool {
	low := left < p.watermark
	if low {
		p.watermark = 0
	}
	return low
}

// takeLocked takes n tokens or none, from wherever they are, and moves more to this P's stripe. That nothing is
// denied while a stripe holds enough follows from the lock: whatever the stripes held is in the word then, and nobody
// adds.
func (p *Pool) takeLocked(n int64) Taken {
	p.mu.Lock()
	defer p.mu.Unlock()
	left, ok := p.takeWord(n)
	if !ok {
		p.harvest()
		left, ok = p.takeWord(n)
	}
	if !ok {
		p.missed.Add(n)
		p.settle()
		if p.mark.Load() == MarkDenied {
			return Denied
		}
		return Refused
	}
	if left = p.stock(left); p.isLow(left) {
		p.settle()
		return TookLow
	}
	p.settle()
	return Took
}

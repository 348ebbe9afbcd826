package pool

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/yuzhi-go/yuzhi/clock"
)

// The word of a Pool has a report interval in its upper 24 bits, and in the lower 40 bits the count of tokens
// plus a bias. Takes that fail at the same time lower the count below 0. The bias keeps their subtractions
// from borrowing from the bits of the interval.
const (
	countBits   = 40
	countBias   = 1 << (countBits - 1)
	countMask   = 1<<countBits - 1
	intervalOne = 1 << countBits
)

// A take first reads the mark. A mark up to markMost is a token count: a take that leaves fewer tokens calls
// End. A take that finds a higher mark does not touch the word.
const (
	markMost    = MarkStriped - 1
	MarkStriped = math.MaxInt64 - 2 // takes use the stripes
	MarkDenied  = math.MaxInt64 - 1 // the pool is empty, and so is the bucket
	MarkEmpty   = math.MaxInt64     // the pool is empty
)

// Pool has the unspent tokens of one key in one process, which goroutines spend without a lock.
//
// A Take that succeeds loads the mark, which is hardly ever written, and does one atomic add on the word. A
// failed Take does not add its token back: an add after the next grant would forge a token.
//
// If several Ps take the same key's tokens all the time, the word's cache line bounces between their cores.
// Contended takes use stripes, one for each P, which fetch tokens from the word in chunks; see stripes.go.
// With two contending goroutines, stripes reduce the cost of a take from 12.3 to 4.8 ns; with a single
// goroutine, stripes raise the cost from 8.2 to 9.7 ns.
//
// Any number of goroutines may call Take and its parts, TakeN, TakeStrict, Miss, Drawn, Denies, Held and
// Missed. The user of the Client that owns the Pool serialises all other methods with a lock. The zero Pool
// is not usable.
type Pool struct {
	mark atomic.Int64
	// stripes is set once, before the mark first sends takes to the stripes.
	stripes []stripe
	// word shares the mark's cache line. Under contention takes use the stripes instead of the word.
	word atomic.Uint64
	_    [24]byte

	missed   atomic.Int64 // tokens of denied requests that no stripe counts
	late     atomic.Int64 // tokens taken after the strict deadline; they admitted no request
	deadline atomic.Int64 // see Deadline
	capacity atomic.Int64 // see Capacity
	epoch    atomic.Int64 // the bucket's epoch at the last reply; 0 for none
	running  atomic.Int64 // the bucket's running time at the last reply

	// mu guards the fields below, every change of the mark, and every change of the stripes except takes.
	mu         sync.Mutex
	watermark  int64 // the first take that leaves fewer tokens returns TookLow; 0 for none
	denied     bool  // see Deny
	stripesMax int
	switches   switches
}

// Init makes p usable; stripesMax is the number of Ps, or 0 for a pool without stripes.
func (p *Pool) Init(stripesMax int) {
	p.stripesMax = stripesMax
	p.capacity.Store(math.MaxInt64)
	p.word.Store(countBias)
	p.mark.Store(MarkEmpty)
}

func count(word uint64) int64 { return int64(word&countMask) - countBias }

// Most is the largest number of tokens that a Pool can hold.
const Most = 1 << (countBits - 2)

// Interval is the number of a report interval (5.7). A token may be put back only in the interval of its
// take.
type Interval uint32

// Taken is the result of a take.
type Taken int8

const (
	Refused Taken = iota
	Denied        // refused, and the bucket has no tokens for now; see Deny
	Took          // the tokens were taken
	TookLow       // the tokens were taken, and the caller should start a prefetch
)

// OK reports whether the tokens were taken.
func (t Taken) OK() bool { return t >= Took }

// Take takes one token without an allocation or a clock, mostly without a lock.
func (p *Pool) Take() Taken {
	left, mark := p.Begin()
	switch {
	case left >= mark:
		return Took
	case mark == MarkDenied:
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

// Begin is the first part of Take; callers can inline Begin. If left >= mark, Begin has taken a token. If
// mark is MarkDenied, the take is Denied. If mark is MarkStriped, TakeAt may take a token. End completes
// every other take.
func (p *Pool) Begin() (left, mark int64) {
	mark = p.mark.Load()
	if mark > markMost {
		return -1, mark
	}
	return count(p.word.Add(^uint64(0))), mark
}

// End completes a Take for which Begin and TakeAt took no token, or Begin left fewer than mark.
func (p *Pool) End(left, mark int64) Taken {
	switch {
	case mark == MarkEmpty:
		return Refused
	case left >= 0:
		return p.taken(left)
	}
	return p.takeSlowly(1)
}

// TakeN takes n tokens or none; n must be at least 1. TakeN uses compare-and-swap, so that a large n never
// removes tokens that the request cannot use. TakeN refuses an n above Capacity.
func (p *Pool) TakeN(n int64) Taken {
	mark := p.mark.Load()
	switch {
	case n > 1 && n > p.capacity.Load():
		return Refused
	case mark == MarkEmpty:
		return Refused
	case mark == MarkDenied:
		return Denied
	case mark == MarkStriped:
		if p.takeStriped(n) {
			return Took
		}
		return p.takeSlowly(n)
	}
	left, ok := p.takeWord(n)
	switch {
	case !ok:
		return p.takeSlowly(n)
	case left >= mark:
		return Took
	}
	return p.taken(left)
}

// TakeStrict is TakeN for Policy.StrictExpiry: TakeStrict reads the clock after the take, and burns tokens
// taken past the deadline. TakeStrict reads the deadline before the take, because a grant during the take may
// set a later one.
func (p *Pool) TakeStrict(n int64, c clock.Clock) Taken {
	deadline := p.deadline.Load()
	var t Taken
	if n == 1 {
		t = p.Take()
	} else {
		t = p.TakeN(n)
	}
	if t.OK() && int64(c.Now()) >= deadline {
		p.late.Add(n)
		return Refused
	}
	return t
}

// TakeQueued takes n tokens or none for a request that was refused before.
func (p *Pool) TakeQueued(n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.takeAnyLocked(n)
	p.remarkLocked()
	return ok
}

// takeAnyLocked takes n tokens or none from the word and the stripes together. left is the word's new count.
func (p *Pool) takeAnyLocked(n int64) (left int64, ok bool) {
	if left, ok = p.takeWord(n); !ok {
		p.emptyStripesLocked()
		left, ok = p.takeWord(n)
	}
	return left, ok
}

// takeWord takes n tokens or none from the word. left is the word's new count.
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

// taken completes a take that left fewer tokens in the word than the mark.
func (p *Pool) taken(left int64) Taken {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lookLocked()
	return p.tookLocked(left)
}

// takeSlowly takes n tokens or none from the word and the stripes, and moves more to the present P's stripe.
func (p *Pool) takeSlowly(n int64) Taken {
	p.mu.Lock()
	defer p.mu.Unlock()
	left, ok := p.takeAnyLocked(n)
	if ok {
		return p.tookLocked(p.stockLocked(left))
	}
	p.remarkLocked()
	if p.mark.Load() == MarkDenied {
		return Denied
	}
	return Refused
}

// tookLocked completes a take that left the given number of tokens in the word. The first take below the
// watermark returns TookLow and clears the watermark.
func (p *Pool) tookLocked(left int64) Taken {
	t := Took
	if left < p.watermark {
		t, p.watermark = TookLow, 0
	}
	p.remarkLocked()
	return t
}

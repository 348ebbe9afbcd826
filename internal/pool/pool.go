package pool

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/yuzhi-go/yuzhi/clock"
)

// The word of a Pool has a report interval in its upper 24 bits, and in the lower 40 the count of
// tokens plus a bias. Takes that fail at the same moment bring the count below 0, each by one; the
// bias keeps them from borrowing from the interval.
const (
	countBits   = 40
	countBias   = 1 << (countBits - 1)
	countMask   = 1<<countBits - 1
	intervalOne = 1 << countBits
)

// The mark says what a take has to do. Up to markMost it is a number of tokens: a take that leaves fewer has
// something to do beside, such as to report low. Above are the states in which a take leaves the word alone.
const (
	markMost    = MarkStriped - 1
	MarkStriped = math.MaxInt64 - 2 // the stripes serve
	MarkDenied  = math.MaxInt64 - 1 // empty, and so is the bucket
	MarkEmpty   = math.MaxInt64     // empty
)

// Pool is the tokens of one key that this process holds. Any number of goroutines spend them without a lock;
// most requests end in Take.
//
// A Take that succeeds loads the mark, which is hardly ever written, and does one atomic add on the
// word. A failed one does not add its token back: if that add came late it would land in the next
// grant and forge a token. No take counts what it did not get: Miss does, where a denial is decided.
//
// Where several Ps take the same key's tokens all the time, the word's cache line goes back and
// forth between their cores. Then tokens are handed out from stripes, one for each P, which fetch
// from the word in chunks; see stripes.go. With two goroutines that contend a take is 4.8 ns
// instead of 12.3, but one alone is faster without them, 8.2 ns against 9.7.
//
// The takes (Take and its parts, TakeN, TakeStrict), Miss, Drawn, Held and Missed are for any number of
// goroutines. Everything else belongs to the Client that has the Pool, and is serialised by its
// user's lock. The zero value is not usable.
type Pool struct {
	mark atomic.Int64
	// stripes are set once, before the mark says for the first time that they are used.
	stripes []stripe
	// word shares the mark's cache line. Where that would hurt, the stripes serve.
	word atomic.Uint64
	_    [24]byte

	missed   atomic.Int64 // tokens of denied requests that no stripe counts
	late     atomic.Int64 // tokens taken after the strict deadline: gone, with no request admitted
	deadline atomic.Int64 // see SetDeadline
	capacity atomic.Int64 // the largest n that can ever be granted: a take of more is no demand
	epoch    atomic.Int64 // of the bucket, at the last reply; 0 for none
	running  atomic.Int64 // the bucket's running time then

	// mu guards what is below, every change of the mark, and every change of the stripes except takes.
	mu         sync.Mutex
	watermark  int64 // the first take that leaves fewer reports low; 0 for none
	denied     bool  // see Deny
	stripesMax int
	switches   switches
}

// Init makes p usable; stripesMax is the number of Ps, or 0 for a pool that does without stripes.
func (p *Pool) Init(stripesMax int) {
	p.stripesMax = stripesMax
	p.capacity.Store(math.MaxInt64)
	p.word.Store(countBias)
	p.mark.Store(MarkEmpty)
}

func count(word uint64) int64 { return int64(word&countMask) - countBias }

// Most is the largest number of tokens that a Pool can hold: with room for overshoot in its word.
const Most = 1 << (countBits - 2)

// Interval is a time between two reports. A token may be put back in that in which it was taken.
type Interval uint32

// Taken tells how a take ended.
type Taken int8

const (
	Refused Taken = iota
	Denied        // Refused, and Deny says that there is no more for now
	Took          // a token was taken
	TookLow       // Took, and this is the one take that should start a prefetch
)

// OK reports whether the tokens were taken.
func (t Taken) OK() bool { return t >= Took }

// Take takes one token. No lock, no allocation, no clock. For any number of goroutines.
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

// Begin is the first part of Take, before TakeAt and End: apart so that callers can inline them.
// If left >= mark a token was taken and all is done. If mark is MarkDenied the take is Denied; if it
// is MarkStriped, a token was taken if TakeAt says so. Otherwise End tells.
func (p *Pool) Begin() (left, mark int64) {
	mark = p.mark.Load()
	if mark > markMost {
		return -1, mark
	}
	return count(p.word.Add(^uint64(0))), mark
}

// End ends a Take that has no token yet, or that has something to do beside; see Begin.
func (p *Pool) End(left, mark int64) Taken {
	switch {
	case mark == MarkEmpty:
		return Refused
	case left >= 0:
		return p.taken(left)
	}
	return p.takeSlowly(1)
}

// TakeN takes n tokens or none; n must be at least 1. It swaps where Take adds, so that a large n
// never takes what it cannot use. Above what can ever be granted it is refused.
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

// TakeStrict is TakeN for Policy.StrictExpiry: it reads the clock after taking, and burns what was
// taken past the deadline. It reads the deadline before taking: a process that was stopped in
// between must not compare with the deadline of a later grant.
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

// takeAnyLocked takes n tokens or none from wherever they are: no request is denied while the stripes hold
// enough. left is the rest in the word.
func (p *Pool) takeAnyLocked(n int64) (left int64, ok bool) {
	if left, ok = p.takeWord(n); !ok {
		p.emptyStripesLocked()
		left, ok = p.takeWord(n)
	}
	return left, ok
}

// takeWord takes n tokens or none from the word and counts nothing. left is the rest there.
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

// taken does what a take has to do beside that left the word's count at left, below the mark.
func (p *Pool) taken(left int64) Taken {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lookLocked()
	return p.tookLocked(left)
}

// takeSlowly takes n tokens or none from wherever they are, and moves more to this P's stripe.
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

// tookLocked ends a take that left tokens in the word. Below the watermark it reports low and disarms.
func (p *Pool) tookLocked(left int64) Taken {
	t := Took
	if left < p.watermark {
		t, p.watermark = TookLow, 0
	}
	p.remarkLocked()
	return t
}

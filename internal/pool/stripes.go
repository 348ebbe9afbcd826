package pool

import (
	"math/bits"
	"sync/atomic"
	"unsafe"
)

// sampleEvery is the number of tokens that a pool hands out between two samples of the takers: at 10 ns a
// token, a look in 40 µs. It is also how many a pool must hold for stripes to be worth it.
const sampleEvery = 4096

// chunk is how many tokens a stripe fetches at once, or more where there are many. Few fetches are
// better, because each writes the cache line that every take reads.
const chunk = 1024

// stripe is one P's part of a contended Pool, on a cache line of its own. The count is atomic
// although mostly its own P uses it, so that what it holds can be taken back at any time.
type stripe struct {
	count  atomic.Int64 // tokens, less the takes that have failed since the last fetch
	missed counter      // tokens of requests that were denied here
	_      [128 - 8 - unsafe.Sizeof(counter{})]byte
}

// switches remembers which of the last 16 looks met another P than the look before. From four on,
// the pool counts as contended, until there are none.
type switches struct {
	history   uint16
	last      int32
	contended bool
}

// see takes in a look that met P i.
func (s *switches) see(i int) {
	s.history <<= 1
	if int32(i) != s.last {
		s.history |= 1
	}
	s.last = int32(i)
	// A goroutine moves to another P now and then; two that contend, in half of all looks.
	switch n := bits.OnesCount16(s.history); {
	case n >= 4:
		s.contended = true
	case n == 0:
		s.contended = false
	}
}

// lookLocked notes which P takes.
func (p *Pool) lookLocked() {
	if p.stripesMax > 0 {
		i := Pin()
		Unpin(i)
		p.switches.see(at(i, p.stripesMax))
	}
}

// stripeLocked makes the stripes, once, and reports whether there are any.
func (p *Pool) stripeLocked() bool {
	if p.stripes == nil && p.stripesMax > 0 {
		p.stripes = make([]stripe, p.stripesMax)
	}
	return p.stripes != nil
}

// Miss counts a request for one token that was Denied, without an atomic instruction.
func (p *Pool) Miss() {
	i := Pin()
	p.MissAt(i)
	Unpin(i)
}

// MissAt is the part of Miss on P i that can be inlined; see Pin.
func (p *Pool) MissAt(i int) {
	if i = at(i, len(p.stripes)); uint(i) < uint(len(p.stripes)) {
		p.stripes[i].missed.add()
	} else { // there are more Ps now than there were
		p.missed.Add(1)
	}
}

// TakeAt takes a token from the stripe of P i; see Pin.
func (p *Pool) TakeAt(i int) bool {
	i = at(i, len(p.stripes))
	return uint(i) < uint(len(p.stripes)) && p.stripes[i].count.Add(-1) >= 0
}

// takeStriped takes n tokens or none from this P's stripe.
func (p *Pool) takeStriped(n int64) bool {
	i := Pin()
	defer Unpin(i)
	j := at(i, len(p.stripes))
	if j >= len(p.stripes) {
		return false
	}
	s := &p.stripes[j]
	c := s.count.Load()
	return c >= n && s.count.CompareAndSwap(c, c-n)
}

// stockLocked moves a chunk from the word, which has left tokens, to the stripe of this P, and
// returns what the word has then. The last ones stay in the word, where a take reports low.
func (p *Pool) stockLocked(left int64) int64 {
	p.lookLocked()
	if p.mark.Load() != MarkStriped {
		return left
	}
	i := Pin()
	Unpin(i) // from here on it is just a number: the stripe may be filled from anywhere
	i = at(i, len(p.stripes))
	n := max(chunk, left/int64(4*len(p.stripes)))
	if left > p.watermark {
		n = min(n, left-p.watermark)
	}
	n = min(n, left)
	if i >= len(p.stripes) || n <= 0 {
		return left
	}
	left, ok := p.takeWord(n)
	if !ok {
		return left
	}
	s := &p.stripes[i]
	for {
		c := s.count.Load()
		if s.count.CompareAndSwap(c, max(0, c)+n) {
			return left
		}
	}
}

// emptyStripesLocked brings what the stripes hold back to the word.
func (p *Pool) emptyStripesLocked() {
	n := int64(0)
	for i := range p.stripes {
		if p.stripes[i].count.Load() != 0 {
			n += max(0, p.stripes[i].count.Swap(0))
		}
	}
	p.addWord(n)
}

package pool

import (
	"math/bits"
	"sync/atomic"
	"unsafe"
)

// sampleEvery is the number of tokens that a pool hands out between two samples of the P that takes: at 10 ns
// per token, one sample in 40 µs. A pool with fewer tokens uses no stripes.
const sampleEvery = 4096

// chunk is the least number of tokens that a stripe fetches at once. Few fetches are better, because each
// fetch writes the cache line that every take reads.
const chunk = 1024

// stripe is one P's part of a contended Pool, on a cache line of its own. The count is atomic, because
// another P may move the tokens back at any time.
type stripe struct {
	count  atomic.Int64 // tokens, less the takes that have failed since the last fetch
	missed counter      // tokens of denied requests that this stripe counts
	_      [128 - 8 - unsafe.Sizeof(counter{})]byte
}

// switches records which of the last 16 samples met another P than the sample before. A pool becomes
// contended after four switches in 16 samples, and uncontended after none.
type switches struct {
	history   uint16
	last      int32
	contended bool
}

// see records that a sample ran on P i.
func (s *switches) see(i int) {
	s.history <<= 1
	if int32(i) != s.last {
		s.history |= 1
	}
	s.last = int32(i)
	// A single goroutine changes its P now and then. With two contending goroutines, half of the samples meet
	// another P.
	switch n := bits.OnesCount16(s.history); {
	case n >= 4:
		s.contended = true
	case n == 0:
		s.contended = false
	}
}

// lookLocked adds a sample of the present P to switches.
func (p *Pool) lookLocked() {
	if p.stripesMax > 0 {
		i := Pin()
		Unpin(i)
		p.switches.see(at(i, p.stripesMax))
	}
}

// stripeLocked makes the stripes once, and reports whether the pool has stripes.
func (p *Pool) stripeLocked() bool {
	if p.stripes == nil && p.stripesMax > 0 {
		p.stripes = make([]stripe, p.stripesMax)
	}
	return p.stripes != nil
}

// Miss counts a request for one token that was Denied.
func (p *Pool) Miss() {
	i := Pin()
	p.MissAt(i)
	Unpin(i)
}

// MissAt is Miss on P i; callers can inline MissAt between Pin and Unpin.
func (p *Pool) MissAt(i int) {
	if i = at(i, len(p.stripes)); uint(i) < uint(len(p.stripes)) {
		p.stripes[i].missed.add()
	} else { // the pool has no stripe for P i
		p.missed.Add(1)
	}
}

// TakeAt takes a token from the stripe of P i, for a caller between Pin and Unpin.
func (p *Pool) TakeAt(i int) bool {
	i = at(i, len(p.stripes))
	return uint(i) < uint(len(p.stripes)) && p.stripes[i].count.Add(-1) >= 0
}

// takeStriped takes n tokens or none from the present P's stripe.
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

// stockLocked moves a chunk of the word's tokens, whose count is left, to the present P's stripe, and returns
// the new count. The word keeps tokens up to the watermark, so that a take can return TookLow.
func (p *Pool) stockLocked(left int64) int64 {
	p.lookLocked()
	if p.mark.Load() != MarkStriped {
		return left
	}
	i := Pin()
	Unpin(i) // i is only a number from here on: any goroutine may fill the stripe
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

// emptyStripesLocked moves the tokens of all stripes back to the word.
func (p *Pool) emptyStripesLocked() {
	n := int64(0)
	for i := range p.stripes {
		if p.stripes[i].count.Load() != 0 {
			n += max(0, p.stripes[i].count.Swap(0))
		}
	}
	p.addWord(n)
}
